"""All cards of some folders, which of them are right, and who can call whom."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from orchestrator.cards.card import AgentCard, Source, tool_name
from orchestrator.cards.reader import CardFile, read_card
from orchestrator.cards.tools import Known, check_tools
from orchestrator.config.names import did_you_mean, listed
from orchestrator.errors import ConfigurationError, Problem

_NO_CARDS = ("readme", "agents", "claude", "changelog", "contributing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Everything wrong with some cards, by file and in order of line, and what else should be said."""

    errors: Mapping[Path, ConfigurationError]
    warnings: Sequence[Problem]

    def raise_errors(self) -> None:
        """Raises all errors as one, if there are any."""
        if self.errors:
            raise ConfigurationError(*(problem for error in self.errors.values() for problem in error.problems))


class Cards:
    """The cards that were found.

    `cards` are those that are right, by name; `errors` say what is wrong with each other file (unknown agents
    included; unknown tools are found by `validate`). A card that is wrong stops only the runs that can reach it.
    """

    def __init__(self, files: Iterable[CardFile]) -> None:
        self._files: dict[str, CardFile] = {}
        self._problems: dict[Path, list[Problem]] = {}
        warnings: list[Problem] = []
        same: dict[str, list[CardFile]] = {}
        for file in files:
            same.setdefault(tool_name(file.name), []).append(file)
        for key, rivals in same.items():
            warnings += self._choose(key, rivals)
        for file in self._files.values():
            self._add(file.file, [*file.errors, *self._unknown_agents(file.card)])
            warnings += file.warnings
        self.warnings: Sequence[Problem] = tuple(warnings)
        self.errors: Mapping[Path, ConfigurationError] = {
            path: ConfigurationError(*_in_order(problems)) for path, problems in sorted(self._problems.items())
        }
        self.cards: Mapping[str, AgentCard] = {
            file.card.name: file.card
            for file in self._files.values()
            if file.card is not None and file.file not in self.errors
        }

    @classmethod
    def of(cls, cards: Iterable[AgentCard]) -> "Cards":
        """Cards that were made in code rather than read from files."""
        return cls(CardFile(file=card.file or Path(f"<{card.name}>"), source=card.source, card=card) for card in cards)

    def get(self, name: str) -> AgentCard:
        """The card of this name, or of this tool name.

        Raises:
            ConfigurationError: there is none, or it is wrong.
        """
        file = self._file(name)
        if file is None:
            known = [each.name for each in self._files.values()]
            there = f" There are {listed(known)}." if known else " There are no agents at all."
            raise ConfigurationError(f"there is no agent `{name}`.{did_you_mean(name, known)}{there}")
        if file.card is None or file.file in self.errors:
            raise self.errors[file.file]
        return file.card

    def agents_of(self, card: AgentCard) -> list[AgentCard]:
        """The cards that are right among those that `card` may call, in the order it names them."""
        return [file.card for file in self._callable(card) if file.card is not None and file.file not in self.errors]

    def reachable(self, name: str) -> list[AgentCard]:
        """The card of this name and all that it can call, directly or not; the card itself first.

        Raises:
            ConfigurationError: with everything that is wrong in any of them, unknown agents included.
        """
        files = self._reached(self._file(name))
        wrong = [problem for file in files if file.file in self.errors for problem in self.errors[file.file].problems]
        if wrong:
            raise ConfigurationError(*wrong)
        return [file.card for file in files if file.card is not None] or [self.get(name)]

    def validate(
        self, known: Known | None = None, bundled: Collection[str] = (), *, only: str | None = None
    ) -> Findings:
        """Everything that can be said about all cards, or about those that the agent `only` can reach.

        With `known` (every server's tools, as `check_tools` takes it) the names of tools are judged too, also in
        cards that have other errors.
        """
        files = list(self._files.values()) if only is None else self._reached(self._file(only))
        problems = {path: list(error.problems) for path, error in self.errors.items()}
        if only is not None:
            reached = {file.file for file in files}
            problems = {path: found for path, found in problems.items() if path in reached}
        warnings: list[Problem] = list(self.warnings) if only is None else [w for file in files for w in file.warnings]
        for file in files:
            if file.card is not None and known is not None:
                wrong, said = check_tools(file.card, known, bundled)
                warnings += said
                if wrong:
                    problems.setdefault(file.file, []).extend(wrong)
        errors = {path: ConfigurationError(*_in_order(found)) for path, found in sorted(problems.items())}
        return Findings(errors=errors, warnings=tuple(warnings))

    def _add(self, path: Path, problems: Sequence[Problem]) -> None:
        if problems:
            self._problems.setdefault(path, []).extend(problems)

    def _choose(self, key: str, rivals: list[CardFile]) -> list[Problem]:
        """Settles which of several files of one name counts: a user's before a bundled one; two equals are an error."""
        users = [file for file in rivals if file.source == "user"] or rivals
        self._files[key] = users[0]
        for file in users:
            others = [other for other in users if other is not file]
            for other in others:
                place = file.card.place("name").line if file.card is not None else None
                text = f"the agent `{file.name}` is there twice, also (as `{other.name}`) in {other.file}."
                self._add(file.file, [Problem(f"{text} Rename one.", file.file, place)])
        if len(users) == len(rivals):
            return []
        return [Problem(f"your agent `{users[0].name}` takes the place of the bundled one.", users[0].file)]

    def _file(self, name: str) -> CardFile | None:
        exact = next((file for file in self._files.values() if file.name == name), None)
        return exact or self._files.get(name) or self._files.get(tool_name(name))

    def _callable(self, card: AgentCard | None) -> list[CardFile]:
        found: dict[Path, CardFile] = {}
        for name in card.agents if card is not None else ():
            file = self._file(name)
            for each in [file] if file is not None else self._matching(name, card):
                found.setdefault(each.file, each)
        return list(found.values())

    def _matching(self, glob: str, card: AgentCard | None) -> list[CardFile]:
        return [
            file
            for file in self._files.values()
            if fnmatchcase(file.name, glob) and (card is None or file.file != card.file)
        ]

    def _unknown_agents(self, card: AgentCard | None) -> list[Problem]:
        if card is None:
            return []
        known = [file.name for file in self._files.values() if file.card is not card]
        there = f" There are {listed(known)}." if known else " There are no others."
        return [
            card.problem(f"agents: there is no agent `{name}`.{did_you_mean(name, known) or there}", "agents", name)
            for name in card.agents
            if self._file(name) is None and name != "*" and not self._matching(name, card)
        ]

    def _reached(self, start: CardFile | None) -> list[CardFile]:
        found = {start.file: start} if start is not None else {}
        waiting = list(found.values())
        while waiting:
            for file in self._callable(waiting.pop(0).card):
                if file.file not in found:
                    found[file.file] = file
                    waiting.append(file)
        return list(found.values())


def load_cards(folders: Sequence[tuple[Path, Source]]) -> Cards:
    """Reads every `*.md` of some folders, hidden files and papers about the folder itself left out.

    Raises:
        ConfigurationError: a folder is not there. What is wrong in single cards is in `Cards.errors`.
    """
    files: list[CardFile] = []
    for folder, source in folders:
        if not folder.is_dir():
            raise ConfigurationError(Problem("there is no such folder of agents.", folder))
        files += [read_card(path, source) for path in sorted(folder.glob("*.md")) if _may_be_card(path)]
    return Cards(files)


def _may_be_card(path: Path) -> bool:
    return path.is_file() and not path.name.startswith((".", "_")) and path.stem.lower() not in _NO_CARDS


def _in_order(problems: Iterable[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: problem.line or 0)

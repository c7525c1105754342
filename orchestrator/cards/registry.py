"""All cards of some folders, which of them are right, and who can call whom."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from orchestrator.cards.card import VERDICT, AgentCard, Source, tool_name
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


class Cards:
    """The cards that were found.

    `cards` are those that are right, by name; `errors` say what is wrong with each other file (unknown agents
    included; unknown tools are found by `validate`). A card that is wrong stops only the runs that can reach it.
    """

    def __init__(self, files: Iterable[CardFile]) -> None:
        self._read = tuple(files)
        same: dict[str, list[CardFile]] = {}
        for file in self._read:
            same.setdefault(tool_name(file.name), []).append(file)
        chosen = [file for rivals in same.values() for file in _chosen(rivals)]
        self._files: dict[Path, CardFile] = {file.file: file for file in chosen}
        for file in chosen:
            self._files[file.file] = replace(file, errors=(*file.errors, *self._unknown_agents(file)))
        for card in [file.card for file in chosen if file.card is not None and file.card.review]:
            self._judges(self._file(card.review or ""))
        findings = self.validate()
        self.errors: Mapping[Path, ConfigurationError] = findings.errors
        self.warnings: Sequence[Problem] = findings.warnings
        self.cards: Mapping[str, AgentCard] = {card.name: card for card in self._right(self._files.values())}

    @classmethod
    def of(cls, cards: Iterable[AgentCard]) -> "Cards":
        """Cards that were made in code rather than read from files."""
        return cls(CardFile(file=card.file or Path(f"<{card.name}>"), source=card.source, card=card) for card in cards)

    def or_as_in(self, earlier: "Cards") -> "Cards":
        """These cards, but each wrong one as it was in `earlier`, or left out where it was wrong there as well.

        A card counts as wrong with the agents that it names, so that taking one back may take back those that name it.
        """
        before = {file.file: file for file in earlier._read if file.file not in earlier.errors}
        now, cards = {file.file: file for file in self._read}, self
        while cards.errors:
            for path in cards.errors:
                if before.get(path, now[path]) == now[path]:
                    del now[path]
                else:
                    now[path] = before[path]
            cards = Cards(now.values())
        return cards

    @property
    def files(self) -> Sequence[CardFile]:
        """All files that count, wrong ones included."""
        return tuple(self._files.values())

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
        if file.card is None or file.errors:
            raise self.errors[file.file]
        return file.card

    def agents_of(self, card: AgentCard) -> list[AgentCard]:
        """The cards that are right among those that `card` may call, in the order it names them."""
        return self._right(self._callable(card))

    def reviewer_of(self, card: AgentCard) -> AgentCard | None:
        """The card that judges the answers of `card`, if it is right."""
        file = self._file(card.review) if card.review else None
        return next(iter(self._right([file])), None) if file is not None else None

    def reachable(self, name: str) -> list[AgentCard]:
        """The card of this name and all that it can call, directly or not; the card itself first.

        Raises:
            ConfigurationError: with everything that is wrong in any of them, unknown agents included.
        """
        files = self._reached(name)
        if wrong := [problem for file in files if file.errors for problem in self.errors[file.file].problems]:
            raise ConfigurationError(*wrong)
        return self._right(files) or [self.get(name)]

    def validate(
        self, known: Known | None = None, bundled: Collection[str] = (), *, only: str | None = None
    ) -> Findings:
        """Everything that can be said about all cards, or about those that the agent `only` can reach.

        With `known` (every server's tools, as `check_tools` takes it) the names of tools are judged too, also in
        cards that have other errors.
        """
        errors: dict[Path, ConfigurationError] = {}
        warnings: list[Problem] = []
        for file in self._files.values() if only is None else self._reached(only):
            wrong, said = list(file.errors), list(file.warnings)
            if file.card is not None and known is not None:
                unknown, unsure = check_tools(file.card, known, bundled)
                wrong, said = wrong + unknown, said + unsure
            if wrong:
                errors[file.file] = ConfigurationError(*sorted(wrong, key=lambda problem: problem.line or 0))
            warnings += said
        return Findings(errors=dict(sorted(errors.items())), warnings=tuple(warnings))

    def _right(self, files: Iterable[CardFile]) -> list[AgentCard]:
        return [file.card for file in files if file.card is not None and not file.errors]

    def _file(self, name: str) -> CardFile | None:
        files = self._files.values()
        exact = (file for file in files if file.name == name)
        alike = (file for file in files if tool_name(file.name) in (name, tool_name(name)))
        return next(exact, None) or next(alike, None)

    def _named(self, name: str, card: AgentCard) -> list[CardFile]:
        """The files of the agents that a card means by a name, or by a glob over other agents' names."""
        if (file := self._file(name)) is not None:
            return [file]
        return [each for each in self._files.values() if fnmatchcase(each.name, name) and each.file != card.file]

    def _callable(self, card: AgentCard) -> list[CardFile]:
        found = [file for name in card.agents for file in self._named(name, card)]
        return list({file.file: file for file in found}.values())

    def _reached(self, name: str) -> list[CardFile]:
        start = self._file(name)
        found = {start.file: start} if start is not None else {}
        waiting = list(found.values())
        while waiting:
            card = waiting.pop(0).card
            reviewer = self._file(card.review) if card is not None and card.review else None
            called = self._callable(card) if card is not None else []
            for file in [*called, *([reviewer] if reviewer is not None else [])]:
                if file.file not in found:
                    found[file.file] = file
                    waiting.append(file)
        return list(found.values())

    def _unknown_agents(self, file: CardFile) -> list[Problem]:
        if (card := file.card) is None:
            return []
        known = [other.name for other in self._files.values() if other.file != file.file]
        there = f" There are {listed(known)}." if known else " There are no others."
        missing = [("agents", name) for name in card.agents if name != "*" and not self._named(name, card)]
        missing += [("review", card.review)] if card.review and self._file(card.review) is None else []
        return [
            card.problem(f"{key}: there is no agent `{name}`.{did_you_mean(name, known) or there}", key, name)
            for key, name in missing
        ]

    def _judges(self, file: CardFile | None) -> None:
        """A reviewer's answer is a verdict, in its own form or in ours."""
        if file is not None and file.card is not None and file.card.output is None:
            card = file.card.model_copy(update={"output": VERDICT})
            self._files[file.file] = replace(self._files[file.file], card=card)


def load_cards(folders: Sequence[tuple[Path, Source]]) -> Cards:
    """Reads every `*.md` of some folders, hidden files and papers about the folder itself left out.

    Raises:
        ConfigurationError: a folder is not there. What is wrong in single cards is in `Cards.errors`.
    """
    files: list[CardFile] = []
    for folder, source in folders:
        if not folder.is_dir():
            raise ConfigurationError(Problem("there is no such folder of agents.", folder))
        paths = [path for path in sorted(folder.glob("[!._]*.md")) if path.stem.lower() not in _NO_CARDS]
        files += [read_card(path, source) for path in paths if path.is_file()]
    return Cards(files)


def _chosen(rivals: list[CardFile]) -> list[CardFile]:
    """Which of several files of one name count: a user's before a bundled one; two equals are an error in both."""
    users = [file for file in rivals if file.source == "user"] or rivals
    if len(users) == 1:
        said = Problem(f"your agent `{users[0].name}` takes the place of the bundled one.", users[0].file)
        return [replace(users[0], warnings=(said, *users[0].warnings)) if len(rivals) > 1 else users[0]]
    clashes: list[CardFile] = []
    for file in users:
        other = next(each for each in users if each is not file)
        line = file.card.place("name").line if file.card is not None else None
        message = f"the agent `{file.name}` is there twice, also (as `{other.name}`) in {other.file}. Rename one."
        clashes.append(replace(file, errors=(Problem(message, file.file, line), *file.errors)))
    return clashes

"""Reads one card file. Goes on after each problem, so that everything wrong in a card is said at once."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.cards import frontmatter, hosts, values
from orchestrator.cards.card import AgentCard, Place, Source, tool_name
from orchestrator.cards.frontmatter import Broken, FrontMatter, Value
from orchestrator.cards.values import Wrong
from orchestrator.config.names import listed, misspelt
from orchestrator.config.report import Report, mapping, read_text, sequence
from orchestrator.errors import ConfigurationError, Problem
from orchestrator.events import Limits

KEYS = (
    "name",
    "description",
    "model",
    "tools",
    "agents",
    "mcp-servers",
    "role",
    "approve",
    "plan",
    "limits",
    "temperature",
    "input",
    "output",
)
SMALLEST = "---\nname: reviewer\ndescription: When to use this agent, and when not.\n---\nWhat the agent is to do."

_PLAIN = {key.replace("-", ""): key for key in KEYS} | dict(hosts.KEYS)
_SUFFIXES = (".agent", ".chatmode")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFile:
    """What was read: the card with all of it that is right, and what is not. `card` None: nothing could be read."""

    file: Path
    source: Source
    card: AgentCard | None
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()

    @property
    def name(self) -> str:
        """The card's name, as far as it could be read."""
        return self.card.name if self.card is not None else name_of_file(self.file)


def load_card(path: Path, source: Source = "user") -> tuple[AgentCard, list[Problem]]:
    """Reads a card; the second value is warnings.

    Raises:
        ConfigurationError: with all that is wrong in the file. Names of tools and agents are not judged here.
    """
    found = read_card(path, source)
    if found.errors or found.card is None:
        raise ConfigurationError(*found.errors)
    return found.card, list(found.warnings)


def read_card(path: Path, source: Source = "user") -> CardFile:
    """Reads as much of a card as can be read; raises nothing."""
    report = Report(path)
    try:
        parts = frontmatter.split(read_text(path, "agent card"))
        if parts is None:
            report.error(f"there is no front matter. The smallest card that works:\n{SMALLEST}", line=1)
            return CardFile(file=path, source=source, card=None, errors=tuple(report.errors))
        lines, first, body = parts
        front = frontmatter.read(
            lines, first, body, lambda word: _plain(word) in _PLAIN, lambda word: bool(_near(word))
        )
    except ConfigurationError as error:
        return CardFile(file=path, source=source, card=None, errors=tuple(error.problems))
    except Broken as error:
        report.error(f"{error.message} The smallest card that works:\n{SMALLEST}", line=error.line)
        return CardFile(file=path, source=source, card=None, errors=tuple(report.errors))
    card = _Reader(path, source, front, report).card()
    return CardFile(file=path, source=source, card=card, errors=tuple(report.errors), warnings=tuple(report.warnings))


def name_of_file(path: Path) -> str:
    """A card's name when it gives none: the file's, without what hosts put before `.md`."""
    stem = path.stem.encode("utf-8", "replace").decode()
    return next((stem.removesuffix(end) for end in _SUFFIXES if stem.endswith(end) and stem != end), stem)


def _plain(key: str) -> str:
    return key.lower().replace("-", "").replace("_", "")


def _near(key: str) -> str | None:
    return misspelt(key.lower().replace("_", "-"), KEYS)


class _Reader:
    def __init__(self, path: Path, source: Source, front: FrontMatter, report: Report) -> None:
        self.path = path
        self.source: Source = source
        self.front = front
        self.report = report
        self.values: dict[str, Value] = {}
        self.places: dict[str, Place] = {}
        self.misspelt: set[str] = set()

    def card(self) -> AgentCard:
        self.keys()
        name = self.name()
        fields: dict[str, Any] = {
            "description": self.get("description", values.prose) or "",
            "role": self.get("role", values.text) or None,
            "plan": self.get("plan", lambda value: values.choice(value, ("auto", "always", "never"))) or "auto",
            "temperature": self.get("temperature", _temperature),
            "input": self.get("input", values.schema),
            "output": self.get("output", values.schema),
            "limits": self.limits(),
            "tools": self.tools("tools"),
            "without": self.tools("without") or (),
        }
        for key in ("model", "agents", "approve"):
            fields[key] = self.names(key)
        fields["mcp_servers"] = self.servers()
        if not fields["description"] and "description" not in self.misspelt:
            self.report.warn("`description` is missing: others cannot know when to call this agent.", line=1)
        if not self.front.body:
            self.report.warn("there are no instructions below the front matter.", line=1)
        return AgentCard(
            name=name,
            tool_name=tool_name(name),
            title=name,
            instructions=self.front.body,
            file=self.path,
            source=self.source,
            places=self.places,
            **fields,
        )

    def keys(self) -> None:
        """Sorts the keys under ours; reports misspelt and repeated ones, and names another host's in one line."""
        ignored: dict[str, int] = {}
        for key, value in self.front.values.items():
            ours = _PLAIN.get(_plain(key))
            if ours in self.values:
                self.report.error(f"`{key}` says the same as another key above; leave one.", line=value.line)
            elif ours is not None:
                self.values[ours] = value
                self.places[ours] = Place(line=value.line, text=key, foreign=key not in KEYS)
            elif _plain(key) not in hosts.OTHER_KEYS and (near := _near(key)):
                self.report.error(f"unknown key `{key}`. Did you mean `{near}`?", line=value.line)
                self.misspelt.add(near)
            else:
                ignored[key] = value.line
        for key, line in self.front.repeated:
            self.report.error(f"`{key}` is there twice; leave one.", line=line)
        if ignored:
            self.report.warn(f"keys of other hosts are ignored: {listed(ignored)}.", line=min(ignored.values()))

    def get(self, key: str, read: Callable[[Value], Any]) -> Any:
        """The value of a key as `read` makes it; None when it is not there, or wrong, which is reported."""
        value = self.values.get(key)
        if value is None or value.data is None:
            return None
        try:
            return read(value)
        except ExceptionGroup as group:
            for wrong in group.exceptions:
                self.wrong(key, value, wrong)
        except Wrong as wrong:
            self.wrong(key, value, wrong)
        return None

    def wrong(self, key: str, value: Value, wrong: Exception) -> None:
        line = wrong.line if isinstance(wrong, Wrong) else None
        self.report.error(
            f"{self.places[key].text}: {str(wrong).rstrip('.?')}{_end(str(wrong))}", line=line or value.line
        )

    def name(self) -> str:
        name = self.get("name", values.text) or name_of_file(self.path)
        if not name.isprintable() or len(name) > 100:
            self.report.error("name: at most 100 printable characters are expected.", line=self.places["name"].line)
            name = name_of_file(self.path)
        return name

    def limits(self) -> Limits:
        found: dict[str, Any] = self.get("limits", values.limits) or {}
        if "steps" in self.values and "steps" not in found:
            steps = self.get("steps", lambda value: values.limit("steps", value.data, value.line))
            found = found | ({"steps": steps} if steps else {})
        return Limits(**found)

    def names(self, key: str) -> tuple[str, ...]:
        found: list[tuple[str, int]] = self.get(key, values.names) or []
        for name, line in found:
            self.places.setdefault(f"{key}:{name}", Place(line=line, text=name))
        return tuple(dict.fromkeys(name for name, _ in found))

    def servers(self) -> tuple[str, ...]:
        """Names of servers; a definition inside a card only counts as its name."""
        key = "mcp-servers"
        value = self.values.get(key)
        if value is None or value.data is None:
            return ()
        found: list[str] = []
        inline: list[str] = []
        for part in sequence(value.data) or [value.data]:
            if (table := mapping(part)) is not None:
                inline += table
            else:
                found += hosts.split_list(str(part))
        if inline:
            message = f"servers defined in a card are not started: put {listed(inline)} into .mcp.json."
            self.report.warn(message, line=value.line)
        for name in (*found, *inline):
            foreign = self.places[key].foreign or name in inline
            self.places[f"{key}:{name}"] = Place(line=value.line, text=name, foreign=foreign)
        return tuple(dict.fromkeys((*found, *inline)))

    def tools(self, key: str) -> tuple[str, ...] | None:
        """The globs of `tools`, in our spelling; None when it is left out."""
        value = self.values.get(key)
        if value is not None and value.data is None and key == "tools":
            self.report.warn(
                "tools: nothing stands here, so it counts as left out; write [] for none.", line=value.line
            )
        written: list[tuple[str, int]] | None = self.get(key, values.names)
        if written is None:
            return None
        globs: list[str] = []
        missing: list[str] = []
        for text, line in written:
            ours, foreign, warning = hosts.translate(text)
            globs += ours
            if not ours:
                missing.append(text)
            if warning:
                self.report.warn(f"{key}: {warning}", line=line)
            for glob in ours:
                self.places.setdefault(f"{key}:{glob}", Place(line=line, text=text, foreign=foreign))
        if missing and key == "tools":
            self.report.warn(f"tools: {hosts.left_out(missing)}", line=value.line if value else None)
            if not globs:
                self.report.warn(
                    "tools: nothing is left, so this agent has no tools.", line=value.line if value else None
                )
        return tuple(dict.fromkeys(globs))


def _temperature(value: Value) -> float:
    found = values.number(value, "0.2")
    if found > 2:
        raise Wrong("a number from 0 to 2 is expected", value.line)
    return found


def _end(message: str) -> str:
    return "?" if message.endswith("?") else "."

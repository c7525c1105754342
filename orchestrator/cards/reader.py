"""Reads one card file. Goes on after each problem, so that everything wrong in a card is said at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.cards import frontmatter
from orchestrator.cards.card import AgentCard, CardLimits, Place, Source, tool_name
from orchestrator.cards.words import KEYS, misspelt_key, our_key, translate
from orchestrator.config.names import listed
from orchestrator.config.report import Report, Where, mapping, read_document, sequence
from orchestrator.errors import ConfigurationError, Problem
from orchestrator.events import Limits

_SUFFIXES = (".agent", ".chatmode")
_KNOWN = {"": tuple(CardLimits.model_fields)}
_Model = TypeVar("_Model", bound=BaseModel)


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
    value, report = read_document(path, "agent card", frontmatter.parse)
    card = _Reader(report, *value).card(path, source) if value is not None else None
    report.errors.sort(key=lambda problem: problem.line or 0)
    return CardFile(file=path, source=source, card=card, errors=tuple(report.errors), warnings=tuple(report.warnings))


def name_of_file(path: Path) -> str:
    """A card's name when it gives none: the file's, without what hosts put before `.md`."""
    stem = path.stem.encode("utf-8", "replace").decode()
    return next((stem.removesuffix(end) for end in _SUFFIXES if stem.endswith(end) and stem != end), stem)


class _Reader:
    def __init__(self, report: Report, front: dict[str, Any], body: str) -> None:
        self.report = report
        self.front = front
        self.body = body
        self.data: dict[str, Any] = {}  # what is written, by our keys
        self.wheres: dict[str, Where] = {}
        self.places: dict[str, Place] = {}

    def card(self, path: Path, source: Source) -> AgentCard:
        self.keys()
        limits = self.limits()
        data = {key.replace("-", "_"): self.data[key] for key in self.data if self.written(key)}
        wheres = {key.replace("-", "_"): where for key, where in self.wheres.items()}
        fixed: dict[str, Any] = {"name": "", "tool_name": "-", "title": "", "limits": limits}
        card = self.valid(AgentCard, fixed, data, wheres)
        for key, names in (("model", card.model), ("agents", card.agents), ("approve", card.approve)):
            self.place(key, names)
        self.place("mcp-servers", card.mcp_servers, foreign=self.places.get("mcp-servers", Place()).foreign)
        if not card.description:
            self.report.warn("`description` is missing: others cannot know when to call this agent.", line=1)
        if not self.body:
            self.report.warn("there are no instructions below the front matter.", line=1)
        name = card.name or name_of_file(path)
        made = {"name": name, "title": name, "tool_name": tool_name(name), "instructions": self.body, "file": path}
        made |= {"tools": self.tools("tools", card.tools), "without": self.tools("without", card.without)}
        return card.model_copy(update={**made, "source": source, "places": self.places})

    def keys(self) -> None:
        """Sorts the keys under ours, reports those that are misspelt, and names another host's in one line."""
        ignored: list[str] = []
        for key, value in self.front.items():
            ours = our_key(key)
            if ours in self.data:
                self.report.error(f"`{key}` says the same as another key above; leave one.", (key,))
            elif ours is not None:
                self.data[ours] = value
                self.wheres[ours] = (key,)
                self.places[ours] = Place(line=self.report.line((key,)), text=key, foreign=key not in KEYS)
            elif near := misspelt_key(key):
                self.report.error(f"unknown key `{key}`. Did you mean `{near}`?", (key,))
            else:
                ignored.append(key)
        if ignored:
            self.report.warn(f"keys of other hosts are ignored: {listed(ignored)}.", (ignored[0],))

    def written(self, key: str) -> bool:
        """Whether a value stands under a key; an empty list of tools is one."""
        value = self.data[key]
        if key == "tools" and value is None:
            message = "tools: nothing stands here, so it counts as left out; write [] for none."
            self.report.warn(message, self.wheres[key])
        return value is not None and (value != "" or key == "tools")

    def limits(self) -> Limits:
        """Limits, of which `steps` may be another host's key."""
        written = self.data.pop("limits", None)
        table = mapping({} if written is None else written)
        if table is None:
            self.report.error("`limits` are written like {steps: 12, cost: 0.50, seconds: 120}.", self.wheres["limits"])
        data = dict(table or {})
        wheres: dict[str, Where] = {key: (*self.wheres["limits"], key) for key in data}
        if (steps := self.data.pop("steps", None)) is not None:
            data.setdefault("steps", steps)
            wheres.setdefault("steps", self.wheres["steps"])
        return Limits(**self.valid(CardLimits, {}, data, wheres).model_dump())

    def valid(
        self, model: type[_Model], fixed: dict[str, Any], data: dict[str, Any], wheres: dict[str, Where]
    ) -> _Model:
        """`model` made of what is right in `data`, and of `fixed`; reports what is wrong."""
        try:
            return model.model_validate(fixed | data)
        except ValidationError as error:
            self.report.explain(error, _KNOWN, wheres)
            wrong = {each["loc"][0] for each in error.errors(include_url=False, include_input=False)}
            return model.model_validate(fixed | {key: data[key] for key in data if key not in wrong})

    def tools(self, key: str, written: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Globs in our spelling; None when they are left out."""
        globs: list[str] = []
        missing: list[str] = []
        for text in written or ():
            ours, foreign = translate(text)
            if ours and text.endswith(")"):
                self.report.warn(f"{key}: `{text}`: the part in brackets has no meaning here.", self.where(key, text))
            if not ours:
                missing.append(text)
            for glob in ours:
                self.place(key, [glob], text=text, foreign=foreign)
            globs += ours
        if missing and key == "tools":
            names = ", ".join(f"`{name}`" for name in missing)
            message = f"tools: left out, as there is no equivalent of another host's tool here: {names}."
            self.report.warn(message if globs else f"{message} So this agent has no tools.", self.wheres[key])
        return None if written is None else tuple(dict.fromkeys(globs))

    def where(self, key: str, name: str) -> Where:
        """Where a name stands in the list under a key."""
        items = sequence(self.data[key]) or []
        return (*self.wheres[key], *([items.index(name)] if name in items else []))

    def place(self, key: str, names: Sequence[str], *, text: str = "", foreign: bool = False) -> None:
        for name in names:
            line = self.report.line(self.where(key, text or name))
            self.places.setdefault(f"{key}:{name}", Place(line=line, text=text or name, foreign=foreign))

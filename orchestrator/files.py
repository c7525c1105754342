"""The files that an orchestrator is made from, looked at again while it is open.

To look costs a few calls of `stat` where nothing was touched. A card that is wrong now is as it was when it was right
last, and so is the whole configuration; what is wrong is told of once.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from orchestrator.errors import ConfigurationError
from orchestrator.options import Options

Made = TypeVar("Made")
Stamp = tuple[str, int, int, int]
"""A file as the file system tells of it: path, inode, size and time of its last change."""


class Files:
    """`settings` and `cards` are what the files said when they were right last. `tell` is given what is wrong now."""

    def __init__(self, options: Options, tell: Callable[[ConfigurationError], None]) -> None:
        """Raises `ConfigurationError` with everything that is wrong in the settings."""
        self._options = options
        self._tell = tell
        self._single = [*map(str, options.setting_files())]
        self._folders = [*map(str, options.card_folders())]
        self._seen = self._stamps()
        self.settings = options.load_settings()
        self.cards = options.load_cards()
        self._told = {str(error) for error in self.cards.errors.values()}

    @property
    def options(self) -> Options:
        """What they say, for an orchestrator that is to be made."""
        return replace(self._options, settings=self.settings, cards=self.cards)

    @property
    def touched(self) -> bool:
        """Whether any was written, added or removed since the last look."""
        return self._stamps() != self._seen

    def look(self, make: Callable[[Options], Made]) -> Made | None:
        """What `make` makes of the files where they say something new. What it cannot use is told of, too."""
        self._seen = self._stamps()
        try:
            settings, cards = self._options.load_settings(), self._options.load_cards()
            wrong = [*cards.errors.values()]
            cards = cards.or_as_in(self.cards)
            made = None
            if (settings, cards.cards) != (self.settings, self.cards.cards):
                made = make(replace(self._options, settings=settings, cards=cards))
                self.settings, self.cards = settings, cards
        except ConfigurationError as error:
            wrong, made = [error], None
        for error in wrong:
            if str(error) not in self._told:
                self._tell(error)
        self._told = {*map(str, wrong)}
        return made

    def _stamps(self) -> set[Stamp]:
        return {stamp for path in self._paths() if (stamp := _stamp(path)) is not None}

    def _paths(self) -> Iterator[str]:
        yield from self._single
        for folder in self._folders:
            with suppress(OSError), os.scandir(folder) as found:
                yield from (each.path for each in found if each.name.endswith(".md"))


def _stamp(path: str) -> Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None  # not there, or not readable: another state than any in which it is
    return path, found.st_ino, found.st_size, found.st_mtime_ns

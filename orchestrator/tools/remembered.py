"""What was seen of a server the last time, on disk: a second start needs no connection to offer its tools.

One file for each configuration of a server, under the folder of all state; only its owner may read it. Its name holds a
digest of the configuration as written, before any variable is filled in. A file that is broken, or that another version
wrote, counts as none. Reading needs no MCP package: whether a server must be started at all is asked before that is
imported.
"""

import hashlib
import json
import logging
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from orchestrator.config import ServerSettings
from orchestrator.config.folders import write_private
from orchestrator.config.names import sanitise
from orchestrator.models.repair import is_list, is_object

logger = logging.getLogger(__name__)

FOLDER = "servers"
VERSION = 1

_IDENTITY = {"name", "transport", "command", "args", "env", "env_file", "cwd", "url", "headers"}

Definition = dict[str, Any]
"""A tool as the protocol writes it."""


@dataclass(slots=True, kw_only=True)
class Record:
    """What is remembered of a server.

    `listed` are the tools of its last list, in its order; None: it was never seen. `known` holds the definitions that
    are taken as the tools', also of some that it does not list at the moment; `changed` what it says instead by now.
    `era` is the protocol version that was agreed upon with the server that calls itself `server`, `discover` what it
    said of itself, from 2026-07-28 on, and `about` its words for people. `agents`: it is an orchestrator, too.
    """

    listed: list[str] | None = None
    known: dict[str, Definition] = field(default_factory=dict[str, Definition])
    changed: dict[str, Definition] = field(default_factory=dict[str, Definition])
    era: str = ""
    server: dict[str, Any] | None = None
    about: str = ""
    agents: bool = False
    discover: dict[str, Any] | None = None


class Memory:
    """The file of one server."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record = Record()
        with suppress(FileNotFoundError):
            try:
                self.record = _read(path.read_bytes())
            except (OSError, ValueError, RecursionError) as error:
                logger.debug("%s is not used, and will be written anew: %s", path, error)
        self._saved = _text(self.record)

    def save(self) -> None:
        """Writes the file if anything changed: whole or not at all. Where that fails, nothing is remembered."""
        if (text := _text(self.record)) == self._saved:
            return
        try:
            write_private(self.path, text)
            self._saved = text
        except OSError as error:
            logger.debug("%s cannot be written: %s", self.path, error)


def memory_of(store: Path, server: ServerSettings, workspace: Path) -> Memory:
    """What is remembered of a configured server; `store` is the folder of all state."""
    written = json.dumps([server.model_dump(mode="json", include=_IDENTITY), str(workspace)], sort_keys=True)
    digest = hashlib.sha256(written.encode()).hexdigest()[:16]
    return Memory(store / FOLDER / f"{sanitise(server.name)[:64]}-{digest}.json")


def _text(record: Record) -> str:
    return json.dumps({"v": VERSION, **asdict(record)}, ensure_ascii=True)


def _read(data: bytes) -> Record:
    """Raises ValueError unless every value has the form that we write."""
    found: Any = json.loads(data)
    if not is_object(found):
        raise ValueError("it holds no object")
    values = dict(found)
    if values.pop("v", None) != VERSION or values.keys() != {each.name for each in fields(Record)}:
        raise ValueError("another version wrote it")
    names, known, changed = values["listed"], values["known"], values["changed"]
    sound = (
        isinstance(values["era"], str)
        and isinstance(values["about"], str)
        and isinstance(values["agents"], bool)
        and _is_table(known)
        and _is_table(changed)
    )
    if not (sound and (names is None or (is_list(names) and all(name in known for name in names)))):
        raise ValueError("it has another form than we write")
    return Record(**values)


def _is_table(value: Any) -> bool:
    return is_object(value) and all(is_object(each) for each in value.values())

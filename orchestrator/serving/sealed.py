"""What a caller carries for us while a run waits: encrypted, so that nothing but what we wrote comes back.

The key lies in a private file of `ORCHESTRATOR_HOME`, so an answer may come after a restart.
"""

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState

from orchestrator.config.folders import make_private
from orchestrator.errors import OrchestratorError

KEY_FILE = "serving.key"
KEY_BYTES = 32


class Unsealable(Exception):
    """What came back is not what was sent out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Which run waits, for whom, and for what: the digest of each call that was asked about, by its path."""

    run: str
    by: str
    asked: Mapping[str, str]


class Seals:
    """Seals what leaves, and opens what comes back."""

    def __init__(self, store: Path) -> None:
        self._codec = AESGCMRequestStateCodec([_key(store / KEY_FILE)])

    def seal(self, waiting: Waiting) -> str:
        facts = {"run": waiting.run, "by": waiting.by, "asked": dict(waiting.asked)}
        return self._codec.seal(json.dumps(facts).encode())

    def open(self, token: str) -> Waiting:
        """Raises `Unsealable` for anything that `seal` did not make with this key."""
        try:
            return Waiting(**json.loads(self._codec.unseal(token)))
        except InvalidRequestState as error:
            raise Unsealable(str(error)) from error


def _key(path: Path) -> bytes:
    """The key of this store, made when it is first needed. Several processes may do so at once: the first one stays."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    if not path.exists():
        make_private(path.parent)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(secrets.token_bytes(KEY_BYTES))
            stream.flush()
            os.fsync(stream.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise OrchestratorError(f"{path} is damaged; delete it, and what waits is asked anew when it is called again")
    return key

"""Where things lie: state, bundled cards and servers, and the files that are found without being named."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from typing import Literal

from orchestrator.config.servers import ServerSettings

MCP_FILES = (".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", "mcp.json")
"""The files of MCP servers that are found in a workspace; the first that is there counts."""
SETTINGS_FILE = "orchestrator.toml"

_PACKAGE = Path(__file__).resolve().parent.parent


def home(environ: Mapping[str, str]) -> Path:
    """The folder of all state: `ORCHESTRATOR_HOME`, else the platform's folder for a user's data. It may not exist."""
    if chosen := environ.get("ORCHESTRATOR_HOME"):
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_data_path  # noqa: PLC0415 - most starts name their own home or need none

    return user_data_path("orchestrator", appauthor=False)


def make_private(folder: Path) -> None:
    """Makes a folder that only its owner may enter, and likewise those above it that are missing.

    Raises:
        OSError: it cannot be made.
    """
    if not folder.is_dir():
        make_private(folder.parent)  # `mkdir(parents=True)` gives its mode to the last folder alone
        folder.mkdir(mode=0o700, exist_ok=True)


def write_private(file: Path, text: str) -> None:
    """Replaces a file at once, whole or not at all; nobody but its owner may read it at any time.

    Raises:
        OSError: it cannot be written.
    """
    make_private(file.parent)
    draft = file.with_name(f"{file.name}.{token_hex(4)}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            stream.write(text)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def bundled_folder(kind: Literal["agents", "mcp_servers"]) -> Path:
    """The folder of bundled cards or servers: inside an installed package, or beside it in a checkout."""
    installed = _PACKAGE / "_bundled" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def bundled_servers(folder: Path | None = None) -> dict[str, ServerSettings]:
    """The bundled MCP servers by name: one self-contained Python file each, which reports progress in long work."""
    folder = folder or bundled_folder("mcp_servers")
    return {
        path.stem: ServerSettings(
            name=path.stem,
            command=sys.executable,
            args=("-P", str(path)),
            long_running=("*",),
            bundled=True,
            file=path,
        )
        for path in sorted(folder.glob("*.py"))
        if not path.name.startswith("_")
    }

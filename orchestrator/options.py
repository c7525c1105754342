"""What an orchestrator is made with."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.cards import Cards, load_cards
from orchestrator.config import Ask, Settings, bundled_folder, hide_secrets, home, load_settings
from orchestrator.config.folders import MCP_FILES, SETTINGS_FILE
from orchestrator.models.base import Model

if TYPE_CHECKING:
    from orchestrator.runtime.journal import Journal
    from orchestrator.tracing.port import Tracer

AGENTS_FOLDER = "agents"
"""The user's own cards, in the workspace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an orchestrator works with; what is left out is found as on the command line.

    `model` is a spec, or a model object. `settings` and `cards` take the place of the files; `servers` are MCP server
    objects of this process, by name. `journal` and `tracer` take the place of the SQLite file and of OpenTelemetry.
    `ask` asks a person for a value that a server needs (VS Code's `inputs`); without it, that is an error.
    """

    workspace: Path | None = None
    config: Path | None = None
    mcp_configs: Sequence[Path] = ()
    agents: Path | None = None
    model: str | Model | None = None
    home: Path | None = None
    settings: Settings | None = None
    cards: Cards | None = None
    servers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    journal: "Journal | None" = None
    tracer: "Tracer | None" = None
    ask: Ask | None = None

    @property
    def folder(self) -> Path:
        return (self.workspace or Path.cwd()).absolute()

    def load_settings(self) -> Settings:
        """The settings, whose secrets are masked in this process from now on.

        Raises:
            ConfigurationError: with everything that is wrong in the files.
        """
        settings = self.settings
        if settings is None:
            settings = load_settings(self.config, self.mcp_configs, self.folder, os.environ)
        hide_secrets(settings, os.environ)
        return settings

    def load_cards(self) -> Cards:
        if self.cards is not None:
            return self.cards
        named, bundled = self.card_folders()
        optional = self.agents is None  # a workspace need not have any, and may be a checkout of ours
        if optional and (named == bundled or not named.is_dir()):
            return load_cards([(bundled, "bundled")])
        return load_cards([(named, "user"), (bundled, "bundled")])

    def card_folders(self) -> tuple[Path, Path]:
        """Where cards are looked for: the user's, and those that come with the package."""
        return self.agents or self.folder / AGENTS_FOLDER, bundled_folder("agents")

    def setting_files(self) -> Sequence[Path]:
        """Where settings are looked for; not all of these files need be there."""
        found = self.mcp_configs or [self.folder / name for name in MCP_FILES]
        return [self.config or self.folder / SETTINGS_FILE, *found]

    def project(self, settings: Settings) -> str | None:
        """Whose notes are seen, by the folder that runs work in; None is all folders."""
        return None if settings.memory.notes == "user" else str(self.folder.resolve())

    def store(self) -> Path:
        """Where state lies."""
        return self.home or home(os.environ)

    def record(self) -> bytes:
        """What a resume from another folder needs; never a secret."""
        paths = {
            "workspace": self.folder,
            "config": self.config,
            "agents": self.agents,
            "home": self.home,
        }
        facts: dict[str, Any] = {key: str(path.absolute()) for key, path in paths.items() if path is not None}
        facts["mcp_configs"] = [str(path.absolute()) for path in self.mcp_configs]
        if isinstance(self.model, str):
            form, _, file = self.model.partition(":")
            facts["model"] = f"scripted:{Path(file).absolute()}" if form == "scripted" else self.model
        return json.dumps(facts, ensure_ascii=False, sort_keys=True).encode()

    @classmethod
    def recorded(cls, body: bytes) -> "Options":
        """The options that a run was started with."""
        facts = json.loads(body)

        def path(key: str) -> Path | None:
            return Path(facts[key]) if key in facts else None

        return cls(
            workspace=path("workspace"),
            config=path("config"),
            agents=path("agents"),
            home=path("home"),
            mcp_configs=[Path(each) for each in facts["mcp_configs"]],
            model=facts.get("model"),
        )

"""Configuration: `orchestrator.toml`, the files of MCP servers of several hosts, the environment, and where things lie.

Nothing here starts or connects anything. Knows of no layer above; `orchestrator.cards` stands on it.
"""

from orchestrator.config.entries import ServerFile, read_mcp_config
from orchestrator.config.expand import Ask, Input
from orchestrator.config.folders import bundled_folder, bundled_servers, home
from orchestrator.config.guests import IssuerSettings, TokenSettings, TrafficSettings
from orchestrator.config.models import ModelPrices, ModelSettings
from orchestrator.config.servers import ServerSettings, secrets_of
from orchestrator.config.settings import (
    PolicySettings,
    RoleSettings,
    ServeSettings,
    Settings,
    TelemetrySettings,
    ToolSettings,
    hide_secrets,
    load_settings,
)

__all__ = [
    "Ask",
    "Input",
    "IssuerSettings",
    "ModelPrices",
    "ModelSettings",
    "PolicySettings",
    "RoleSettings",
    "ServeSettings",
    "ServerFile",
    "ServerSettings",
    "Settings",
    "TelemetrySettings",
    "TokenSettings",
    "ToolSettings",
    "TrafficSettings",
    "bundled_folder",
    "bundled_servers",
    "hide_secrets",
    "home",
    "load_settings",
    "read_mcp_config",
    "secrets_of",
]

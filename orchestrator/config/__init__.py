"""Configuration: `orchestrator.toml`, the files of MCP servers of several hosts, the environment, and where things lie.

Nothing here starts or connects anything. Knows of no layer above; `orchestrator.cards` stands on it.
"""

from orchestrator.config.expand import Ask, Input
from orchestrator.config.folders import bundled_folder, bundled_servers, find_mcp_config, home
from orchestrator.config.mcp_json import ServerFile, read_mcp_config
from orchestrator.config.servers import ServerSettings, Transport
from orchestrator.config.settings import (
    LimitSettings,
    PolicySettings,
    RoleSettings,
    Settings,
    TelemetrySettings,
    ToolSettings,
    load_settings,
)

__all__ = [
    "Ask",
    "Input",
    "LimitSettings",
    "PolicySettings",
    "RoleSettings",
    "ServerFile",
    "ServerSettings",
    "Settings",
    "TelemetrySettings",
    "ToolSettings",
    "Transport",
    "bundled_folder",
    "bundled_servers",
    "find_mcp_config",
    "home",
    "load_settings",
    "read_mcp_config",
]

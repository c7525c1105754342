"""Agents offered to others: MCP over stdio and HTTP. Stands on `Orchestrator`; nothing below knows of it."""

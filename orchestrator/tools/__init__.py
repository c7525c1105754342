"""MCP servers as one toolset: lifetimes, names, schemas, arguments, policy, results."""

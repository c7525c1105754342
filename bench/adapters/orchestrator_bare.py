"""orchestrator-mcp with its journal in memory and without spans: what the loop itself costs."""

import orchestrator_peer

orchestrator_peer.BARE = True
agent, team = orchestrator_peer.agent, orchestrator_peer.team

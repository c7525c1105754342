"""An MCP-native multi-agent orchestrator: firm limits, durable runs, one trace.

async with Orchestrator(Options(model="openai:NAME")) as orchestrator:
    print((await orchestrator.run("Total each month's sales in sales.csv")).answer)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.errors import ConfigurationError, ModelError, OrchestratorError
    from orchestrator.events import Limits
    from orchestrator.options import Options
    from orchestrator.orchestrator import Orchestrator
    from orchestrator.runtime.result import RunResult
    from orchestrator.runtime.sittings import RunOptions

__version__ = "0.1.0"

# Names are imported when they are first used, so that `import orchestrator` costs nothing.
_HOMES = {
    "ConfigurationError": "orchestrator.errors",
    "Limits": "orchestrator.events",
    "ModelError": "orchestrator.errors",
    "Options": "orchestrator.options",
    "Orchestrator": "orchestrator.orchestrator",
    "OrchestratorError": "orchestrator.errors",
    "RunOptions": "orchestrator.runtime.sittings",
    "RunResult": "orchestrator.runtime.result",
}

__all__ = [
    "ConfigurationError",
    "Limits",
    "ModelError",
    "Options",
    "Orchestrator",
    "OrchestratorError",
    "RunOptions",
    "RunResult",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'orchestrator' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

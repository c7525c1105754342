"""What must not be seen, hidden: one function for spans, logs, audit and what commands show.

What is hidden is the same in the whole process, as are its logs and its standard error: to hide too much for a second
orchestrator does no harm, and to hide too little does.
"""

from orchestrator.masking.masks import SECRET, SHORTEST_SECRET, Mask
from orchestrator.masking.names import ends_with, may_name_secret, names_secret

mask = Mask()
"""The mask of this process. Settings extend it when they are loaded, and servers and models with their secrets."""

__all__ = ["SECRET", "SHORTEST_SECRET", "Mask", "ends_with", "mask", "may_name_secret", "names_secret"]

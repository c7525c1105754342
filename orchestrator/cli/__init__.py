"""The command `orchestrator`. This module is on the start path of everything, so it imports nothing heavy."""

import sys
from collections.abc import Sequence

from orchestrator import __version__
from orchestrator.cli.parser import parse

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: see `orchestrator --help`."""
    arguments = parse(sys.argv[1:] if argv is None else argv)
    if arguments.version:
        print(f"orchestrator {__version__}")
        return 0
    try:
        # Only the command that was asked for is imported: `--help` needs none of them.
        from orchestrator.cli.commands import perform  # noqa: PLC0415

        return perform(arguments)
    except KeyboardInterrupt:  # before the command had its own way to deal with it
        return INTERRUPTED

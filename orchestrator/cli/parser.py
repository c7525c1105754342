"""The command line: flags and their meaning. Others script against it, so it only grows."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

DESCRIPTION = "Agents over the MCP servers you have: firm limits, durable runs, one trace."
EPILOG = """exit codes:
  0 answered   1 failed   2 wrong usage or configuration   3 stopped by a limit, partial result printed
  4 parked, waiting for approval   130 interrupted

model specs: openai:NAME, anthropic:NAME, ollama:NAME, scripted:FILE, or a [models.X] name of orchestrator.toml
"""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parses a command line; on wrong usage prints to stderr and exits with 2."""
    parser = argparse.ArgumentParser(
        prog="orchestrator",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    common = _common()
    for name, words, build in COMMANDS:
        build(commands.add_parser(name, help=words, description=words, parents=[common]))
    arguments = parser.parse_args(argv)
    if arguments.command is None and not arguments.version:
        parser.print_help()
        parser.exit(2)
    return arguments


def _common() -> argparse.ArgumentParser:
    """The flags that mean the same everywhere."""
    common = argparse.ArgumentParser(add_help=False)
    group = common.add_argument_group("where things are")
    group.add_argument("--workspace", type=Path, metavar="DIR", help="the folder to work in (default: this one)")
    group.add_argument("--config", type=Path, metavar="FILE", help="settings (default: orchestrator.toml there)")
    group.add_argument(
        "--mcp-config",
        type=Path,
        metavar="FILE",
        action="append",
        default=[],
        help="MCP servers (default: .mcp.json there); repeats",
    )
    group.add_argument("--agents", type=Path, metavar="DIR", help="agent cards (default: agents/ there)")
    group.add_argument("--model", metavar="SPEC", help="the model of all agents (default: ORCHESTRATOR_MODEL)")
    group.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else there")
    return common


def _approving(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--approve",
        choices=["ask", "all", "none"],
        default="ask",
        help="calls that write: ask a person (parks where nobody is there), approve all, or deny at once",
    )


def _watching(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--events", metavar="FILE", help="write one JSON object a line for each event; - is stdout")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def _run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", help="what to do, in plain words")
    parser.add_argument("--agent", metavar="NAME", default="supervisor", help="who does it (default: supervisor)")
    parser.add_argument("--role", metavar="NAME", help="a [roles.NAME] of orchestrator.toml that limits the tools")
    _approving(parser)
    limits = parser.add_argument_group("limits")
    limits.add_argument("--max-steps", type=_positive(int), metavar="N", help="model turns of the agent (12)")
    limits.add_argument("--max-tokens", type=_positive(int), metavar="N", help="tokens of the whole tree (1000000)")
    limits.add_argument("--max-cost", type=_positive(float), metavar="USD", help="cost of the whole tree (none)")
    limits.add_argument("--timeout", type=_positive(float), metavar="SECONDS", help="time of the whole tree (1800)")
    _watching(parser)


def _chat(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent", metavar="NAME", default="supervisor", help="who answers (default: supervisor)")
    parser.add_argument("--role", metavar="NAME", help="a [roles.NAME] of orchestrator.toml that limits the tools")
    _approving(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    parser.set_defaults(events=None)


def _tools(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command="tools")


def _agents(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command="agents")


def _doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--offline", action="store_true", help="read and check configuration and cards; start and ask nothing"
    )
    parser.add_argument("--probe", metavar="MODEL", help="try the ways of acting on a model; this spends its tokens")


def _init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="write without asking")


def _eval(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the tasks, as TOML")
    parser.add_argument("-n", dest="runs", type=_positive(int), default=20, metavar="N", help="runs of each task (20)")
    parser.add_argument("--baseline", action="store_true", help="compare later results with these")
    parser.add_argument("--history", action="store_true", help="run nothing; show the results that are kept")
    parser.add_argument("--max-cost", type=_positive(float), metavar="USD", help="cost of all runs together (none)")
    parser.add_argument("--approve", choices=["all", "none"], default="none", help="calls that write (none)")
    parser.add_argument("--quiet", action="store_true", help="no line on stderr for each run")


def _runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=["show", "audit"],
        help="show one run, or audit what all did; without it, list the newest",
    )
    parser.add_argument("run_id", nargs="?", metavar="ID", help="show: a run's id, or `last`")
    parser.add_argument("--run", metavar="ID", help="audit: only this run and those below it")
    parser.add_argument("--tool", metavar="GLOB", help="audit: only calls of these tools, and approvals of them")
    parser.add_argument("--since", metavar="WHEN", help="audit: only from then on, like 2026-11-30, 2h or 3d")


def _notes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=["forget"], help="delete some; without it, list them, newest first"
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="forget: ids as they are listed, like n3")


def _replay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_id", metavar="ID", help="a run's id, or `last`")
    parser.add_argument(
        "--journal", type=Path, metavar="FILE", help="read a journal from elsewhere, and leave it as is"
    )
    parser.add_argument("--prompts", action="store_true", help="with the whole request of each thought")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--step", action="store_true", help="stop after each thought and answer, at a terminal")
    way.add_argument("--svg", type=Path, metavar="FILE", help="draw a picture of the run")
    way.add_argument(
        "--otlp",
        nargs="?",
        const="",
        metavar="ENDPOINT",
        help="send its spans from the local files to a collector (default: OTEL_EXPORTER_OTLP_ENDPOINT)",
    )
    way.add_argument(
        "--from",
        dest="start",
        type=_positive(int),
        metavar="STEP",
        help="a new run that thinks this step anew, with --model if another; what came before is kept",
    )
    _approving(parser)
    _watching(parser)


def _resume(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_id", metavar="ID", help="a run's id, or `last`")
    _approving(parser)
    _watching(parser)


def _approve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_id", metavar="RUN_ID", help="a run's id, or `last`")
    parser.add_argument("call", nargs="?", metavar="CALL", help="which call, if more than one waits: t1.1/t2.1")
    parser.add_argument("--all", action="store_true", help="every call that waits")
    parser.add_argument("--deny", action="store_true", help="say no")
    parser.add_argument("--note", default="", metavar="TEXT", help="a word to the model")
    parser.add_argument(
        "--arguments",
        metavar="JSON|@FILE",
        help="send these in place of the asked arguments, or as what a server asks for",
    )


def _login(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("server", metavar="SERVER", help="its name in the configuration")
    parser.add_argument("--forget", action="store_true", help="forget the sign-in that is kept")


def _serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--new-token", metavar="NAME", help="make a token for NAME, say how it is configured, and end")
    parser.add_argument("--stdio", action="store_true", help="speak MCP on stdin and stdout, for a host that starts it")
    parser.add_argument("--host", metavar="HOST", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, metavar="PORT", help="the port to listen on (default: 8765)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="AGENT", help="serve this agent (default: all); repeats"
    )


COMMANDS: Sequence[tuple[str, str, Callable[[argparse.ArgumentParser], None]]] = (
    ("run", "Run a task.", _run),
    ("chat", "Talk with an agent; each turn is a run that knows what was said before.", _chat),
    ("tools", "List the tools of all servers under the names that models see.", _tools),
    ("login", "Sign in to a server at a URL, with a browser; later runs use that.", _login),
    ("agents", "List the agents and what each may call.", _agents),
    ("doctor", "Check servers, agents, models and state; say what is wrong and what to do.", _doctor),
    ("init", "Write a starting set of files from the MCP servers that other hosts on this machine have.", _init),
    ("eval", "Run the tasks of a file many times; check, measure and compare them.", _eval),
    ("runs", "List runs, or show what one did.", _runs),
    ("notes", "List the notes that agents keep for later runs, or forget some.", _notes),
    ("replay", "Show a run again from its journal, or run on from one of its steps.", _replay),
    ("serve", "Offer agents as MCP tools to other programs, over HTTP or stdio.", _serve),
    ("resume", "Go on with a run that is parked or whose process ended.", _resume),
    ("approve", "Say yes or no to a call that waits; then resume the run.", _approve),
)


def _positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    def convert(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = -1
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
        return value

    return convert

"""An MCP stdio server in plain Python with the bad manners of real ones, each switched on by a flag.

`--banner`: noise on standard output before and between messages. `--deaf`: ignores the end of its input and SIGTERM.
`--mute`: never answers. `--fall`: says why on standard error and ends at once. `--child`: starts a process that
outlives it, as `npx` does. `--scream`: fills standard error. `--pid FILE`: writes its process id there when it is up.
`--starts FILE`: adds a line there at each start. `--when PIPE`: serves once somebody opens that pipe. `--greeting
TEXT`: instructions for whoever connects. `--title TEXT`: what it calls itself. `--tools FILE`: offers these
tools and no others, read at each listing; each answers with its own name, and one called announce first tells that the
list changed.

A tool can also misbehave: echo, big (a line of `bytes`), die (ends without an answer), once (the same, but only if
`file` is not there yet), hang_once (never answers the first time, which it remembers in `file`; `tell` is a pipe to say
so in), flood (a line of `bytes` that does not end), picture, broken (an error with a structured body).
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time

OBJECT = {"type": "object"}
READ = {"readOnlyHint": True}
NAMES = ("echo", "big", "die", "hang_once", "flood", "once", "picture", "broken")
TOOLS = [{"name": name, "description": f"Tool {name}.", "inputSchema": OBJECT, "annotations": READ} for name in NAMES]


def note(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def result(name: str, arguments: dict) -> dict | None:
    if name == "die":
        os._exit(7)
    if name == "once" and not os.path.exists(arguments["file"]):
        note(arguments["file"], "tried")
        os._exit(8)
    if name == "flood":
        sys.stdout.write("x" * arguments["bytes"])
        sys.stdout.flush()
        return None
    if name == "announce":
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}), flush=True)
    if name == "hang_once" and not os.path.exists(arguments["file"]):
        open(arguments["file"], "x").close()
        if "tell" in arguments:
            note(arguments["tell"], "called")
        return None
    if name == "picture":
        picture = {"type": "image", "data": "QUJD" * 1000, "mimeType": "image/png"}
        return {"content": [{"type": "text", "text": "a picture"}, picture]}
    if name == "broken":
        text = {"type": "text", "text": "the order was refused"}
        return {"content": [text], "structuredContent": {"field": "amount", "code": 17}, "isError": True}
    text = "x" * arguments["bytes"] if name == "big" else arguments.get("text", name)
    return {"content": [{"type": "text", "text": text}]}


def answer(message: dict, tools: str | None, greeting: str, title: str) -> dict | None:
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        info = {"name": "awkward", "version": "1", "title": title}
        offers = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}}}
        return {"result": {**offers, "instructions": greeting, "serverInfo": info}}
    if method == "tools/list":
        return {"result": {"tools": listed(tools)}}
    if method == "tools/call":
        found = result(params["name"], params.get("arguments") or {})
        return None if found is None else {"result": found}
    return {"error": {"code": -32601, "message": f"no method {method}"}}


def listed(tools: str | None) -> list:
    if tools is None:
        return TOOLS
    with open(tools) as file:
        return json.load(file)


def serve(tools: str | None, greeting: str, title: str, *, banner: bool, mute: bool) -> None:
    for number, line in enumerate(sys.stdin):
        message = json.loads(line)
        if banner:
            print(f"[info] line {number}", flush=True)
        if mute or "id" not in message:
            continue
        if (reply := answer(message, tools, greeting, title)) is not None:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    for flag in ("--banner", "--deaf", "--mute", "--fall", "--child", "--scream"):
        parser.add_argument(flag, action="store_true")
    for option in ("--pid", "--tools", "--starts", "--when", "--greeting", "--title"):
        parser.add_argument(option, default="")
    flags = parser.parse_args()
    if flags.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if flags.child:
        subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL)
    if flags.starts:
        with open(flags.starts, "a") as file:
            file.write("started\n")
    if flags.when:
        open(flags.when).close()
    if flags.scream:
        sys.stderr.write("".join(f"line {number} {'x' * 90}\n" for number in range(20_000)))
    if flags.pid:
        note(flags.pid, str(os.getpid()))
    if flags.fall:
        print("starting up\nfatal: no database at db.example", file=sys.stderr, flush=True)
        os.close(1)  # a process's pipes close before its exit code is known: here it takes long
        time.sleep(0.1)
        os._exit(3)
    if flags.banner:
        print("*** Awkward server 1.0 ***\n\nready", flush=True)
    serve(flags.tools or None, flags.greeting, flags.title, banner=flags.banner, mute=flags.mute)
    if flags.deaf:
        threading.Event().wait()


if __name__ == "__main__":
    main()

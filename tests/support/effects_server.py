"""An MCP stdio server in plain Python that writes each effect into a ledger file, one fsynced line a call.

Tools: look (read-only), put (idempotent), pay (no annotation, so it writes), draw (writes, but destroys nothing), fail
(always an error), wait (read-only, answers after `ms` and notes how many of them are `inside`), slow (as wait, but
reports progress on its way), hang (read-only, never answers; says so in the ledger, and again when it is cancelled;
does answer once there is a file `<ledger>.free`). A hanging call also writes a line into the named pipe
`<ledger>.bell`, where there is one, so that a test need not look for it again and again. Where there is a named pipe
`<ledger>.gate`, it answers when somebody writes into that.
"""

import json
import os
import sys
import threading
import time

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NUMBER = {"type": "object", "properties": {"ms": {"type": "integer"}}, "required": ["ms"]}
TOOLS = [
    {"name": "look", "description": "Reads.", "inputSchema": TEXT, "annotations": {"readOnlyHint": True}},
    {"name": "put", "description": "Sets.", "inputSchema": TEXT, "annotations": {"idempotentHint": True}},
    {"name": "pay", "description": "Pays.", "inputSchema": TEXT},
    {"name": "draw", "description": "Draws.", "inputSchema": TEXT, "annotations": {"destructiveHint": False}},
    {"name": "fail", "description": "Fails.", "inputSchema": TEXT, "annotations": {"readOnlyHint": True}},
    {"name": "wait", "description": "Waits.", "inputSchema": NUMBER, "annotations": {"readOnlyHint": True}},
    {"name": "slow", "description": "Takes long.", "inputSchema": NUMBER, "annotations": {"readOnlyHint": True}},
    {"name": "hang", "description": "Hangs.", "inputSchema": TEXT, "annotations": {"readOnlyHint": True}},
]


class EffectsServer:
    def __init__(self, ledger: str) -> None:
        self.ledger, self.lock = ledger, threading.Lock()
        self.inside = 0

    def note(self, **facts: object) -> None:
        line = json.dumps(facts).encode() + b"\n"
        handle = os.open(self.ledger, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        try:
            os.write(handle, line)
            os.fsync(handle)
        finally:
            os.close(handle)

    def send(self, request: object, **outcome: object) -> None:
        self.tell(id=request, **outcome)

    def tell(self, **message: object) -> None:
        with self.lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def call(self, request: object, params: dict) -> None:
        name, arguments = params["name"], params.get("arguments") or {}
        key = (params.get("_meta") or {}).get("orchestrator/key")
        self.inside += 1
        if name == "slow":
            self.work(arguments["ms"], (params.get("_meta") or {}).get("progressToken"))
        elif name == "wait":
            time.sleep(arguments["ms"] / 1000)  # the tool's own work, not a test's waiting
        self.note(tool=name, key=key, text=arguments.get("text"), inside=self.inside)
        self.inside -= 1
        if name == "hang" and not os.path.exists(self.ledger + ".free"):
            self.ring()
            if not os.path.exists(self.ledger + ".gate"):
                return
            with open(self.ledger + ".gate") as gate:
                gate.read()
        text = f"{name} {arguments.get('text', '')} done"
        self.send(request, result={"content": [{"type": "text", "text": text}], "isError": name == "fail"})

    def work(self, ms: int, token: object) -> None:
        for part in range(6):
            time.sleep(ms / 6000)
            if token is not None:
                params = {"progressToken": token, "progress": part, "message": "working"}
                self.tell(method="notifications/progress", params=params)

    def ring(self) -> None:
        if os.path.exists(self.ledger + ".bell"):
            with open(self.ledger + ".bell", "w") as bell:
                bell.write("hanging\n")

    def handle(self, message: dict) -> None:
        method, request, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method == "notifications/cancelled":
            self.note(cancelled=True)
        elif request is None:
            return
        elif method == "initialize":
            version = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
            self.send(request, result={**version, "serverInfo": {"name": "effects", "version": "1"}})
        elif method == "tools/list":
            self.send(request, result={"tools": TOOLS})
        elif method == "tools/call":
            threading.Thread(target=self.call, args=(request, params), daemon=True).start()
        else:
            self.send(request, error={"code": -32601, "message": f"no method {method}"})

    def serve(self) -> None:
        for line in sys.stdin:
            if line.strip():
                self.handle(json.loads(line))


if __name__ == "__main__":
    EffectsServer(sys.argv[1]).serve()

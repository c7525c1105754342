"""An MCP stdio server in plain Python that writes each effect into a ledger file, one fsynced line a call.

Tools: look (read-only), put (idempotent), pay (no annotation, so it writes), fail (always an error), wait (read-only,
answers after `ms`), hang (read-only, never answers; says so in the ledger, and again when it is cancelled).
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
    {"name": "fail", "description": "Fails.", "inputSchema": TEXT, "annotations": {"readOnlyHint": True}},
    {"name": "wait", "description": "Waits.", "inputSchema": NUMBER, "annotations": {"readOnlyHint": True}},
    {"name": "hang", "description": "Hangs.", "inputSchema": TEXT, "annotations": {"readOnlyHint": True}},
]


class EffectsServer:
    def __init__(self, ledger: str) -> None:
        self.ledger, self.lock = ledger, threading.Lock()
        self.hanging: set[object] = set()

    def note(self, **facts: object) -> None:
        line = json.dumps(facts).encode() + b"\n"
        handle = os.open(self.ledger, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        try:
            os.write(handle, line)
            os.fsync(handle)
        finally:
            os.close(handle)

    def send(self, request: object, **outcome: object) -> None:
        with self.lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request, **outcome}) + "\n")
            sys.stdout.flush()

    def call(self, request: object, params: dict) -> None:
        name, arguments = params["name"], params.get("arguments") or {}
        key = (params.get("_meta") or {}).get("orchestrator/key")
        if name == "wait":
            time.sleep(arguments["ms"] / 1000)  # the tool's own work, not a test's waiting
        self.note(tool=name, key=key, text=arguments.get("text"))
        if name == "hang":
            self.hanging.add(request)
            return
        text = f"{name} {arguments.get('text', '')} done"
        self.send(request, result={"content": [{"type": "text", "text": text}], "isError": name == "fail"})

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

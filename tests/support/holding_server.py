"""An MCP stdio server of protocol 2025-11-25, in plain Python, whose tools ask a person while the call runs.

Tools: book (no annotation: it notes that it began, asks for seats, and notes what it booked), peek (the same, but
read-only), pair (the same, but the first two calls ask together), page (sends to a URL), first (refuses with error
-32042 until a page was visited), odd (asks by a schema that is none), task (can only be called as a task), maybe (as
one or plainly). The first argument is the ledger, one line each time something happened.
"""

import itertools
import json
import sys
import threading

SCHEMA = {
    "type": "object",
    "properties": {"seats": {"type": "integer", "minimum": 1, "maximum": 9}, "window": {"type": "boolean"}},
    "required": ["seats"],
}
PLACE = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
EMPTY = {"type": "object", "properties": {}}
TOOLS = [
    {"name": "book", "description": "Books.", "inputSchema": PLACE},
    {"name": "peek", "description": "Looks.", "inputSchema": PLACE, "annotations": {"readOnlyHint": True}},
    {"name": "pair", "description": "Books.", "inputSchema": PLACE},
    {"name": "page", "description": "Needs a page.", "inputSchema": EMPTY},
    {"name": "first", "description": "Needs a page first.", "inputSchema": EMPTY},
    {"name": "odd", "description": "Asks oddly.", "inputSchema": EMPTY},
    {"name": "task", "description": "A task.", "inputSchema": EMPTY, "execution": {"taskSupport": "required"}},
    {"name": "maybe", "description": "Perhaps one.", "inputSchema": EMPTY, "execution": {"taskSupport": "optional"}},
]


class HoldingServer:
    def __init__(self, ledger: str) -> None:
        self.ledger, self.lock = ledger, threading.Lock()
        self.answers: dict[str, dict] = {}
        self.answered = threading.Condition()
        self.pairs, self.together = itertools.count(), threading.Barrier(2)
        self.refused = False

    def note(self, **facts: object) -> None:
        with self.lock, open(self.ledger, "a") as ledger:
            ledger.write(json.dumps(facts) + "\n")

    def send(self, **message: object) -> None:
        with self.lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def text(self, request: object, text: str) -> None:
        self.send(id=request, result={"content": [{"type": "text", "text": text}]})

    def ask(self, request: object, **params: object) -> dict:
        """Asks the person behind the client; what came back, an error as its message."""
        name = f"ask-{request}"
        self.send(id=name, method="elicitation/create", params=params)
        with self.answered:
            self.answered.wait_for(lambda: name in self.answers)
            return self.answers.pop(name)

    def call(self, request: object, name: str, arguments: dict) -> None:
        if name in ("book", "peek", "pair"):
            self.note(began=arguments["city"])
            if name == "pair" and next(self.pairs) < 2:
                self.together.wait()
            answer = self.ask(request, mode="form", message=f"Seats to {arguments['city']}?", requestedSchema=SCHEMA)
            self.note(**{name: arguments["city"]}, answer=answer)
            self.text(request, f"{name} {arguments['city']}: {json.dumps(answer, sort_keys=True)}")
        elif name == "page":
            answer = self.ask(
                request, mode="url", message="Visit\x1b[2J this.", url="https://pay.example/x", elicitationId="1"
            )
            self.text(request, f"page: {answer['action']}")
        elif name == "first":
            if self.refused:
                self.text(request, "now it works")
                return
            self.refused = True
            page = {"mode": "url", "message": "Log in.", "url": "https://login.example/", "elicitationId": "2"}
            self.send(id=request, error={"code": -32042, "message": "log in", "data": {"elicitations": [page]}})
        elif name == "odd":
            answer = self.ask(
                request,
                mode="form",
                message="?",
                requestedSchema={"type": "object", "properties": {"a": {"type": "strin"}}},
            )
            self.text(request, json.dumps(answer))
        else:
            self.text(request, name)

    def handle(self, message: dict) -> None:
        method, request, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method is None:
            with self.answered:
                self.answers[str(request)] = message.get("result") or {"error": message["error"]["message"]}
                self.answered.notify_all()
        elif method == "notifications/cancelled":
            self.note(cancelled=True)
        elif request is None:
            return
        elif method == "initialize":
            self.note(elicitation=sorted(params["capabilities"].get("elicitation", {})))
            version = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
            self.send(id=request, result={**version, "serverInfo": {"name": "holding", "version": "1"}})
        elif method == "tools/list":
            self.send(id=request, result={"tools": TOOLS})
        elif method == "tools/call":
            work = (request, params["name"], params.get("arguments") or {})
            threading.Thread(target=self.call, args=work, daemon=True).start()
        else:
            self.send(id=request, error={"code": -32601, "message": f"no method {method}"})

    def serve(self) -> None:
        for line in sys.stdin:
            if line.strip():
                self.handle(json.loads(line))


if __name__ == "__main__":
    HoldingServer(sys.argv[1]).serve()

"""Between two orchestrators over HTTP: a gateway that may lose a reply, or know the older protocol alone."""

import contextlib
import http.client
import json
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOP = ("connection", "transfer-encoding", "content-length", "keep-alive")


@dataclass
class Relay:
    """`calls` are the parameters of all `tools/call` that came. `lose` says of each whether its reply is lost."""

    port: int
    older: bool
    lose: Callable[[Mapping[str, Any]], bool]
    calls: list[Any] = field(default_factory=list[Any])
    lost: int = 0


@contextlib.contextmanager
def relay(
    to: int, *, older: bool = False, lose: Callable[[Mapping[str, Any]], bool] = lambda _: False
) -> Generator[Relay]:
    """A gateway before the server at a port of this machine. `older`: it knows no `server/discover`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):  # of a caller that was killed
                super().handle()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            message = json.loads(body or b"{}")
            if gate.older and message.get("method") == "server/discover":
                error = {"code": -32601, "message": "Method not found"}
                self.say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode())
                return
            losing = False
            if message.get("method") == "tools/call":
                gate.calls.append(message["params"])
                losing = gate.lose(message["params"])
            self.forward(body, losing)

        def do_GET(self) -> None:
            self.forward(b"", False)

        do_DELETE = do_GET

        def forward(self, body: bytes, losing: bool) -> None:
            above = http.client.HTTPConnection("127.0.0.1", to)
            with contextlib.closing(above):
                headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
                above.request(self.command, self.path, body, headers)
                answer = above.getresponse()
                if losing:
                    answer.read()
                    gate.lost += 1
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in HOP:
                        self.send_header(name, value)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                with contextlib.suppress(OSError):  # who asked is gone, and so is what is above then
                    while part := answer.read1():
                        self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                    self.wfile.write(b"0\r\n\r\n")

        def say(self, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    gate = Relay(server.server_address[1], older, lose)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield gate
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

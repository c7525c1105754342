"""Collectors on loopback that decode what really arrives, over HTTP and gRPC."""

import contextlib
import gzip
import http.server
import threading
from collections.abc import Iterable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status, TracesData


@dataclass(frozen=True, kw_only=True)
class Received:
    service: str
    resource: dict[str, Any]
    scope: str
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    status: str
    message: str


@dataclass
class Receiver:
    endpoint: str
    spans: list[Received] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def take(self, request: ExportTraceServiceRequest | TracesData) -> None:
        for group in request.resource_spans:
            resource = _values(group.resource.attributes)
            for scoped in group.scope_spans:
                self.spans.extend(_received(span, resource, scoped.scope.name) for span in scoped.spans)

    def named(self, name: str) -> Received:
        [span] = [span for span in self.spans if span.name == name]
        return span

    def tree(self) -> Any:
        """Nested lists `[service, name, *children]`, children in the order of their names."""
        return tree(self.spans)


def tree(spans: list[Received]) -> Any:
    ids = {span.span_id for span in spans}

    def below(parent: str) -> list[Any]:
        children = sorted((s for s in spans if s.parent_id == parent), key=lambda s: s.name)
        return [[span.service, span.name, *below(span.span_id)] for span in children]

    roots = sorted({span.parent_id for span in spans} - ids)
    return [child for root in roots for child in below(root)]


@contextlib.contextmanager
def http_receiver() -> Iterator[Receiver]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces", self.path
            receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
            receiver.take(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def grpc_receiver() -> Iterator[Receiver]:
    class Service(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:
            receiver.headers.append(dict(context.invocation_metadata()))
            receiver.take(request)
            return ExportTraceServiceResponse()

    with futures.ThreadPoolExecutor(max_workers=2) as pool:
        server = grpc.server(pool)
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), server)
        receiver = Receiver(f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        server.start()
        try:
            yield receiver
        finally:
            server.stop(grace=None).wait()


def _received(span: Span, resource: dict[str, Any], scope: str) -> Received:
    return Received(
        service=resource["service.name"],
        resource=resource,
        scope=scope,
        name=span.name,
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        attributes=_values(span.attributes),
        events=[(event.name, _values(event.attributes)) for event in span.events],
        status=Status.StatusCode.Name(span.status.code).removeprefix("STATUS_CODE_"),
        message=span.status.message,
    )


def _values(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return [_value(part) for part in value.array_value.values] if kind == "array_value" else getattr(value, str(kind))

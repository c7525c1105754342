"""The GenAI conventions' histograms: tokens and durations, recorded from the spans as they end.

Only for those who ask: a meter provider that the user has set, OTEL_METRICS_EXPORTER=otlp, or a collector's endpoint
for metrics. Names are those of v1.41, which dashboards know; Jaeger keeps no metrics.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from orchestrator.tracing.attributes import Attributes
from orchestrator.tracing.environment import Environment

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

_SHORT = [0.01 * 2**n for n in range(14)]
_LONG = [0.1 * 2**n for n in range(13)]
_WORKFLOW = [1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0]
_TOKENS = [float(4**n) for n in range(14)]
"""Bucket borders as the conventions give them: seconds, seconds, seconds, tokens."""

_KEPT = (
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "gen_ai.agent.name",
    "gen_ai.tool.name",
    "error.type",
)
"""Attributes of low cardinality; others of a span would make a series of every run."""


class Metrics:
    """`end` sends what is left; None where that is the user's affair."""

    def __init__(self, meter: "Meter", end: Callable[[], object] | None = None) -> None:
        def seconds(name: str, borders: Sequence[float]):
            return meter.create_histogram(name, "s", explicit_bucket_boundaries_advisory=borders)

        self._end = end
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", explicit_bucket_boundaries_advisory=_TOKENS
        )
        self._durations = {
            "chat": seconds("gen_ai.client.operation.duration", _SHORT),
            "execute_tool": seconds("gen_ai.execute_tool.duration", _SHORT),
            "invoke_agent": seconds("gen_ai.invoke_agent.duration", _LONG),
            "invoke_workflow": seconds("gen_ai.invoke_workflow.duration", _WORKFLOW),
        }

    def record(self, attributes: Attributes, seconds: float) -> None:
        """One span that has ended."""
        kept = {name: attributes[name] for name in _KEPT if name in attributes}
        if (duration := self._durations.get(str(attributes["gen_ai.operation.name"]))) is not None:
            duration.record(seconds, kept)  # the conventions have none for `plan`
        for kind in ("input", "output"):
            tokens = attributes.get(f"gen_ai.usage.{kind}_tokens")
            if isinstance(tokens, int):
                self._tokens.record(tokens, {**kept, "gen_ai.token.type": kind})

    def closing(self) -> threading.Thread | None:
        """A thread that sends what is left, started; a collector that does not answer must not hold up the end."""
        if self._end is None:
            return None
        thread = threading.Thread(target=self._end, name="orchestrator-metrics", daemon=True)
        thread.start()
        return thread


def make_metrics(environment: Environment) -> Metrics | None:
    """None unless somebody asks for metrics: recording them costs the imports and some microseconds a span."""
    if environment.wants_metrics:
        return _to_collector(environment)
    if "opentelemetry.sdk.metrics" not in sys.modules:  # so nobody can have set a provider
        return None
    from opentelemetry.metrics import get_meter  # noqa: PLC0415 - loaded already

    return Metrics(get_meter("orchestrator-mcp"))


def _to_collector(environment: Environment) -> Metrics:
    # The SDK: only for those who send metrics.
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    if environment.grpc:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
    else:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    resource = Resource({**environment.resource, "service.name": environment.service})
    provider = MeterProvider([reader], resource, shutdown_on_exit=False)
    return Metrics(provider.get_meter("orchestrator-mcp"), provider.shutdown)

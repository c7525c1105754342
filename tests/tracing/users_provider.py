"""A program that has set its own providers, as a script: prints the spans and the metrics that it got."""

import json
import sys
from pathlib import Path

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from orchestrator.testing import call
from tests.behaviour.stage import Stage
from tests.support.runs import card


def main(folder: Path) -> None:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([reader]))
    script = {
        ("boss", 1): call("agents__helper", {"task": "look"}),
        ("boss", 2): "done",
        ("helper", 1): call("fx__look", {"text": "a"}),
        ("helper", 2): "seen",
    }
    team = card("boss", agents=("helper",)), card("helper", tools=("fx__*",))
    Stage(folder, script, *team, traced=True).run()
    spans = exporter.get_finished_spans()
    names = {span.context.span_id: span.name for span in spans}
    data = reader.get_metrics_data()
    found = [metric for one in data.resource_metrics for scope in one.scope_metrics for metric in scope.metrics]
    print(
        json.dumps(
            {
                "spans": [(span.name, names[span.parent.span_id] if span.parent else None) for span in spans],
                "metrics": {m.name: sum(point.count for point in m.data.data_points) for m in found},
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))

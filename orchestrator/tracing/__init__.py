"""Spans, money and the file they lie in when nobody collects them. OpenTelemetry is imported by `otel` alone."""

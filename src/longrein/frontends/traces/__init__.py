"""OpenTelemetry traces and metrics of a session, drawn from its events. Off unless the user
names an endpoint.
"""

from collections.abc import Mapping

from longrein.settings_schema import TraceOptions

SIGNALS = ("TRACES", "METRICS")


def wanted_signals(environ: Mapping[str, str], options: TraceOptions) -> tuple[str, ...]:
    """Return which of `SIGNALS` the user wants to be sent; () for none."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return ()
    return tuple(signal for signal in SIGNALS if _is_wanted(signal, environ, options))


def _is_wanted(signal: str, environ: Mapping[str, str], options: TraceOptions) -> bool:
    named = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or environ.get(
        f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"
    )
    exporter = environ.get(f"OTEL_{signal}_EXPORTER", "otlp")
    return bool(named or options.endpoint) and "otlp" in exporter.split(",")

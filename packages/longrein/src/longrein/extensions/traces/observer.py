"""Start to send traces of a session that has opened, if the user has named an endpoint."""

from collections.abc import Mapping

from longrein.app.app_session import Finish, ObservedSession
from longrein.extensions.traces.settings import TraceOptions

SIGNALS = ("TRACES", "METRICS")


def observe(observed: ObservedSession) -> Finish | None:
    """Send traces and metrics of the session; return what sends the rest at the end."""
    options = observed.settings.of(TraceOptions)
    signals = wanted_signals(observed.environ, options)
    if not signals:
        return None
    from longrein.extensions.traces.exporter import start_traces

    traces = start_traces(
        observed.session, observed.notice, observed.environ, options, signals, observed.wall_us
    )
    return traces.finish if traces is not None else None


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

"""Send spans and metrics to the collector that the user names, beside the session and never in its
way.

The packages are imported in a thread, after the session is open. Batches are sent by threads of the
OpenTelemetry SDK. What cannot be sent is lost, and the user is told once.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from longrein.agent import OpenSession, SessionUpdate
from longrein.extensions.traces.settings import TraceOptions
from longrein.extensions.traces.spans import Tracer
from longrein.store.daemon_threads import run_in_thread
from longrein_context.events import PrefixSet

LOAD_S = 5.0
"""Longest wait at the end of the session for the import of the packages."""
FLUSH_S = 1.0
"""Longest wait at the end of the session for the last batch."""
TRUE = frozenset({"1", "true", "yes", "span_only", "span_and_event"})
_REASON = re.compile(
    r"Connection refused|timed out|Name or service not known|certificate verify failed|Unauthorized"
)
MISSING = "traces.endpoint is set, but the packages are missing: install longrein[otel]"
ONLY_HTTP = (
    "traces: the protocol of OTEL_EXPORTER_OTLP_PROTOCOL is not supported; set it to http/protobuf"
)


class SessionTraces:
    """The subscriber that draws spans and metrics from a session. Made by `start_traces`."""

    def __init__(
        self,
        session: OpenSession,
        notice: Callable[[str], None],
        environ: Mapping[str, str],
        wall_us: Callable[[], int],
    ) -> None:
        self._session = session
        self._notice = notice
        self._environ = environ
        self._wall_us = wall_us
        self._loop = asyncio.get_running_loop()
        self._heard: deque[tuple[SessionUpdate, int]] = deque()
        """Updates that wait for the packages, with the times at which they came."""
        self._pipeline: Any = None
        self._failed = asyncio.Event()
        self._loading: asyncio.Future[Any] | None = None
        self._reading: asyncio.Task[None] | None = None

    def start(self, signals: tuple[str, ...], options: TraceOptions) -> None:
        """Begin to read the session's events, and to import the packages."""
        self._reading = asyncio.create_task(self._read(self._session.state.seq))
        content = options.content or _is_true(
            self._environ, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
        )
        session, prefix = self._session.id, self._session.state.prefix
        work: Future[Any] = run_in_thread(
            lambda: Pipeline(
                signals, options.endpoint, self._fail_from_thread, session, prefix, content=content
            ),
            "traces",
        )
        self._loading = asyncio.wrap_future(work)
        self._loading.add_done_callback(self._loaded)

    def _loaded(self, loading: "asyncio.Future[Any]") -> None:
        if loading.cancelled():
            return
        if error := loading.exception():
            self._heard.clear()
            self._fail(MISSING if isinstance(error, ImportError) else f"traces are off: {error}")
            return
        self._pipeline = loading.result()
        self._drain()

    async def _read(self, seq: int) -> None:
        async for update in self._session.follow(seq):
            if not self._failed.is_set() or self._pipeline is not None:
                self._heard.append((update, self._wall_us() * 1000))
                self._drain()
        await self._send_rest()

    def _drain(self) -> None:
        while self._pipeline is not None and self._heard:
            self._pipeline.hear(*self._heard.popleft())

    def _fail_from_thread(self, line: str) -> None:
        """Tell the user once that nothing can be sent. For threads of the SDK."""
        try:
            self._loop.call_soon_threadsafe(self._fail, line)
        except RuntimeError:  # the loop has ended
            return

    def _fail(self, line: str) -> None:
        if not self._failed.is_set():
            self._failed.set()
            self._notice(line)

    async def _send_rest(self) -> None:
        """End the open spans and send what is left, when the session has closed."""
        if self._loading is not None and not self._loading.done():
            await asyncio.wait([self._loading], timeout=LOAD_S)
            await asyncio.sleep(0)  # `_loaded` runs
        if self._pipeline is None:
            return
        self._drain()
        self._pipeline.end(self._wall_us() * 1000)
        flushing = asyncio.wrap_future(run_in_thread(self._pipeline.flush, "traces"))
        failing = asyncio.ensure_future(self._failed.wait())
        await asyncio.wait(
            [flushing, failing], timeout=FLUSH_S, return_when=asyncio.FIRST_COMPLETED
        )
        failing.cancel()

    async def finish(self) -> None:
        """Wait until everything is sent, for `FLUSH_S` at most; the session must be closed."""
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=LOAD_S + FLUSH_S)


class WarningHandler(logging.Handler):
    """Passes warnings of the SDK on to the user."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._failed = failed

    def emit(self, record: logging.LogRecord) -> None:
        why = " ".join(record.getMessage().split())
        reason = _REASON.search(why)
        self._failed(
            f"traces cannot be sent ({reason[0] if reason else why[:200]}); the session goes on "
            "without them"
        )


class Pipeline:
    """Providers and exporters of the OpenTelemetry SDK. The constructor imports them; made in a
    thread.
    """

    def __init__(
        self,
        signals: tuple[str, ...],
        endpoint: str,
        failed: Callable[[str], None],
        session: str,
        prefix: PrefixSet | None,
        *,
        content: bool,
    ) -> None:

        from importlib.metadata import version

        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        log = logging.getLogger("opentelemetry")  # else its warnings would go to the terminal
        log.handlers, log.propagate = [WarningHandler(failed)], False
        resource = Resource.create(
            {"service.name": "longrein", "service.version": version("longrein")}
        )
        base = endpoint.rstrip("/")
        self.traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        if "TRACES" in signals:
            spans = OTLPSpanExporter(endpoint=f"{base}/v1/traces" if base else None)
            self.traces.add_span_processor(BatchSpanProcessor(spans))
        readers = []
        if "METRICS" in signals:
            metrics = OTLPMetricExporter(endpoint=f"{base}/v1/metrics" if base else None)
            readers.append(PeriodicExportingMetricReader(metrics))
        self.metrics = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        tracer, meter = self.traces.get_tracer("longrein"), self.metrics.get_meter("longrein")
        self._tracer = Tracer(tracer, meter, session, prefix, content=content)

    def hear(self, update: SessionUpdate, now_ns: int) -> None:
        self._tracer.hear(update, now_ns)

    def end(self, at_ns: int) -> None:
        self._tracer.end(at_ns)

    def flush(self) -> None:
        """Send everything that waits. Blocks."""
        limit_ms = round(FLUSH_S * 1000)
        self.traces.force_flush(limit_ms)
        self.metrics.force_flush(limit_ms)


def _is_true(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").lower() in TRUE


def start_traces(
    session: OpenSession,
    notice: Callable[[str], None],
    environ: Mapping[str, str],
    options: TraceOptions,
    signals: tuple[str, ...],
    wall_us: Callable[[], int],
) -> SessionTraces | None:
    """Start to send `signals` of an open session; None where that is not possible. Needs a
    running loop.
    """
    if environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf") != "http/protobuf":
        notice(ONLY_HTTP)
        return None
    traces = SessionTraces(session, notice, environ, wall_us)
    traces.start(signals, options)
    return traces

"""A14, A18.17: traces and metrics arrive at a collector of OTLP over HTTP, and never hold a
session up.
"""

import gzip
import importlib.util
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from longrein.testing.loopback import Call, Turn

from .harness import BYPASS, CliHarness, bash, calls, says
from .test_children import serve

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("opentelemetry") is None
    or importlib.util.find_spec("opentelemetry.sdk") is None,
    reason="the extra otel is not installed",
)


class Collector:
    """An OTLP collector on loopback; keeps what it was sent, decoded by the protocol's own
    classes.
    """

    def __init__(self) -> None:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
            ExportMetricsServiceRequest,
        )
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        kinds = {
            "/v1/traces": ExportTraceServiceRequest,
            "/v1/metrics": ExportMetricsServiceRequest,
        }
        received: list[tuple[str, bytes, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                body = (
                    gzip.decompress(body)
                    if self.headers.get("content-encoding") == "gzip"
                    else body
                )
                received.append((self.path, body, kinds[self.path].FromString(body)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                return

        self.received = received
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def bytes(self) -> bytes:
        return b"".join(body for _, body, _ in self.received)

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for path, _, request in self.received
            if path == "/v1/traces"
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def metrics(self) -> dict[str, Any]:
        return {
            metric.name: metric
            for path, _, request in self.received
            if path == "/v1/metrics"
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def collector() -> Iterator[Collector]:
    one = Collector()
    yield one
    one.close()


def values(attributes: Any) -> dict[str, Any]:
    """Attributes as Python values."""

    def plain(value: Any) -> Any:
        kind = value.WhichOneof("value")
        return (
            [plain(one) for one in value.array_value.values]
            if kind == "array_value"
            else getattr(value, kind)
        )

    return {one.key: plain(one.value) for one in attributes}


def tree(spans: list[Any]) -> dict[str, list[str]]:
    """Name of each span -> names of its children, sorted."""
    by_id = {span.span_id: span for span in spans}
    found: dict[str, list[str]] = {}
    for span in spans:
        above = by_id[span.parent_span_id].name if span.parent_span_id else "(root)"
        found.setdefault(above, []).append(span.name)
    return {name: sorted(names) for name, names in found.items()}


def known_names() -> set[str]:
    """Attributes that the conventions know, from the package of their authors."""
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
    from opentelemetry.semconv.attributes import error_attributes

    modules = (gen_ai_attributes, error_attributes)
    return {
        value
        for one in modules
        for name, value in vars(one).items()
        if name.isupper() and isinstance(value, str)
    }


def run(cli: CliHarness, collector: Collector, **more: str) -> None:
    cli.without_sandbox()
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address, **more}
    done = cli.run("-p", "the secret prompt", BYPASS, env=env)
    assert (done.code, done.text) == (0, "the secret answer\n"), done.err


def test_a14_one_agent_span_with_requests_and_calls_and_no_text(
    cli: CliHarness, collector: Collector
) -> None:
    cli.plays(calls(bash("echo secret-output"), bash("exit 3")), says("the secret answer"))
    run(cli, collector)
    assert tree(collector.spans) == {
        "(root)": ["invoke_agent longrein"],
        "invoke_agent longrein": ["chat one", "chat one", "execute_tool Bash", "execute_tool Bash"],
    }
    names = {span.name: span for span in collector.spans}
    kinds = {name: span.SpanKind.Name(span.kind) for name, span in names.items()}
    assert kinds == {
        "invoke_agent longrein": "SPAN_KIND_INTERNAL",
        "chat one": "SPAN_KIND_CLIENT",
        "execute_tool Bash": "SPAN_KIND_INTERNAL",
    }
    chat = values(names["chat one"].attributes)
    assert chat["gen_ai.operation.name"] == "chat"
    assert chat["gen_ai.provider.name"] == chat["gen_ai.system"] == "play"
    assert chat["gen_ai.request.model"] == "one"
    assert chat["gen_ai.conversation.id"] == cli.session
    assert chat["gen_ai.usage.input_tokens"] > 0
    assert {
        tuple(values(s.attributes)["gen_ai.response.finish_reasons"])
        for s in collector.spans
        if "chat" in s.name
    }
    failed = [
        values(span.attributes).get("error.type")
        for span in collector.spans
        if span.name == "execute_tool Bash"
    ]
    assert sorted(filter(None, failed)) == ["failed"]
    assert all(
        span.end_time_unix_nano >= span.start_time_unix_nano > 1_700_000_000 * 10**9
        for span in collector.spans
    )
    keys = {
        key
        for span in collector.spans
        for key in values(span.attributes)
        if not key.startswith("longrein.")
    }
    assert keys <= known_names(), keys - known_names()
    assert b"secret" not in collector.bytes
    resources = [
        values(r.resource.attributes)
        for p, _, q in collector.received
        if "traces" in p
        for r in q.resource_spans
    ]
    assert {one["service.name"] for one in resources} == {"longrein"}


def test_a14_the_metrics_have_the_names_units_and_buckets_of_the_conventions(
    cli: CliHarness, collector: Collector
) -> None:
    with serve(
        cli, Turn(calls=(Call("Bash", {"command": "true"}),)), Turn(text="the secret answer")
    ):
        run(cli, collector)
    from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

    seconds = tuple(0.01 * 2**n for n in range(14))
    wanted = {
        gen_ai_metrics.GEN_AI_CLIENT_TOKEN_USAGE: ("{token}", tuple(4**n for n in range(14)), 4),
        gen_ai_metrics.GEN_AI_CLIENT_OPERATION_DURATION: ("s", seconds, 2),
        gen_ai_metrics.GEN_AI_CLIENT_OPERATION_TIME_TO_FIRST_CHUNK: ("s", None, 2),
        "gen_ai.invoke_agent.duration": ("s", seconds, 1),
        "gen_ai.execute_tool.duration": ("s", seconds, 1),
    }
    found = collector.metrics
    assert set(wanted) <= set(found)
    assert set(found) <= {*wanted, gen_ai_metrics.GEN_AI_CLIENT_OPERATION_TIME_PER_OUTPUT_CHUNK}
    for name, (unit, buckets, count) in wanted.items():
        points = found[name].histogram.data_points
        assert found[name].unit == unit
        assert sum(point.count for point in points) == count, name
        assert buckets is None or all(
            tuple(point.explicit_bounds) == pytest.approx(buckets) for point in points
        )
    kinds = {
        values(p.attributes)["gen_ai.token.type"]
        for p in found["gen_ai.client.token.usage"].histogram.data_points
    }
    assert kinds == {"input", "output"}


def test_a14_a_subagent_is_an_agent_span_below_its_call(
    cli: CliHarness, collector: Collector
) -> None:
    look = Call(
        "Agent",
        {"description": "look", "prompt": "Task APPLE: run it.", "subagent_type": "explore"},
    )
    glob = Turn(when="Task APPLE", calls=(Call("Glob", {"pattern": "*"}),))
    told = Turn(when="Task APPLE", text="found")
    with serve(cli, Turn(calls=(look,)), glob, told, Turn(text="the secret answer")):
        run(cli, collector)
    assert tree(collector.spans) == {
        "(root)": ["invoke_agent longrein"],
        "invoke_agent longrein": ["chat small", "chat small", "execute_tool Agent"],
        "execute_tool Agent": ["invoke_agent explore"],
        "invoke_agent explore": ["chat small", "chat small", "execute_tool Glob"],
    }


def test_a14_content_is_sent_only_when_the_user_asks(cli: CliHarness, collector: Collector) -> None:
    cli.plays(calls(bash("echo hi")), says("the secret answer"))
    run(cli, collector, OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="true")
    told = {
        key: value for span in collector.spans for key, value in values(span.attributes).items()
    }
    assert "the secret prompt" in told["gen_ai.input.messages"]
    assert told["gen_ai.tool.call.arguments"] == '{"command":"echo hi"}'
    assert "hi" in told["gen_ai.tool.call.result"]
    assert told["gen_ai.system_instructions"].startswith('[{"type":"text"')
    assert b"the secret answer" in collector.bytes


def test_a14_a_failed_request_has_its_error(cli: CliHarness, collector: Collector) -> None:
    cli.plays(
        {
            "text": "the secret answer",
            "fault": {"status": 529, "message": "x", "times": 1, "retry_after_s": 0},
        }
    )
    run(cli, collector)
    errors = [
        values(span.attributes).get("error.type")
        for span in collector.spans
        if span.name == "chat one"
    ]
    assert sorted(map(str, errors)) == ["529", "None"]


def test_a14_the_setting_names_the_collector_and_variables_switch_it_off(
    cli: CliHarness, collector: Collector
) -> None:
    cli.plays(*[says("the secret answer")] * 3)
    cli.settings(f'[traces]\nendpoint = "{collector.address}"')
    for env in (
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"},
    ):
        assert cli.run("-p", "x", env=env).code == 0
    assert collector.received == []
    assert cli.run("-p", "x", env={"OTEL_METRICS_EXPORTER": "none"}).code == 0
    assert {path for path, _, _ in collector.received} == {"/v1/traces"}


def test_a18_17_a_collector_that_refuses_or_is_silent_costs_one_line(cli: CliHarness) -> None:
    with socket.socket() as refusing, socket.socket() as silent:
        refusing.bind(("127.0.0.1", 0))  # not listening
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for one, lines in ((refusing, 1), (silent, 0)):
            cli.plays(says("fine"), says("fine"))
            address = f"http://127.0.0.1:{one.getsockname()[1]}"
            done = cli.run("-p", "x", env={"OTEL_EXPORTER_OTLP_ENDPOINT": address})
            assert (done.code, done.text) == (0, "fine\n")
            told = [line for line in done.err.splitlines() if "traces" in line]
            assert len(told) <= 1
            assert len(told) == lines or not lines
            assert "Traceback" not in done.err


def test_a14_without_an_endpoint_nothing_is_imported(cli: CliHarness) -> None:
    cli.plays(says("fine"))
    done = cli.run("-p", "x", env={"PYTHONPROFILEIMPORTTIME": "1", "OTEL_SERVICE_NAME": "x"})
    assert done.code == 0
    assert "opentelemetry" not in done.err
    assert "traces.exporter" not in done.err

"""Table `traces` of the settings."""

from typing import Annotated

import msgspec

from longrein.settings_schema import Setting


class TraceOptions(msgspec.Struct, frozen=True):
    """Table `traces`: OpenTelemetry. The standard `OTEL_*` variables do the same."""

    endpoint: Annotated[
        str,
        Setting(
            "where traces and metrics are sent by OTLP over HTTP, such as "
            "`http://localhost:4318`; needs the extra "
            "`otel`. Without it and without `OTEL_EXPORTER_OTLP_ENDPOINT` nothing is sent",
            "nothing",
        ),
    ] = ""
    content: Annotated[
        bool, Setting("whether messages, arguments and results are sent too", "nothing")
    ] = False

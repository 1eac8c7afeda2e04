"""The provider as a process of its own: `python -m longrein.testing.loopback --script FILE --port
0`.

Prints one JSON line with its port and url, then serves until it is interrupted, terminated or, with
`--until-eof`, its input ends. Then it prints its report as a second JSON line; exit 1 when
`--check` is given and a rule was broken or a turn was left over.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec

from longrein.testing.loopback.loopback_provider import LoopbackProvider
from longrein.testing.loopback.script import Play, read_play


def main(argv: list[str] | None = None) -> int:
    """Run until interrupted, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m longrein.testing.loopback", description=__doc__
    )
    parser.add_argument(
        "--script", type=Path, required=True, help="JSON file; see longrein.testing.loopback.script"
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port on 127.0.0.1; 0 takes any (default)"
    )
    parser.add_argument("--lenient", action="store_true", help="judge nothing: for benches")
    parser.add_argument(
        "--keep", type=int, default=1, help="request bodies kept in memory (default 1)"
    )
    parser.add_argument("--folder", type=Path, help="keep a copy of each request here")
    parser.add_argument("--until-eof", action="store_true", help="end when stdin ends")
    parser.add_argument(
        "--check", action="store_true", help="exit 1 if a rule was broken or a turn was left over"
    )
    given = parser.parse_args(argv)
    try:
        play = read_play(given.script.read_bytes())
    except (OSError, ValueError) as error:
        print(f"{given.script}: {error}", file=sys.stderr)
        return 2
    return asyncio.run(_run(play, given))


async def _run(play: Play, given: argparse.Namespace) -> int:
    rules = msgspec.structs.replace(play.rules, lenient=given.lenient or play.rules.lenient)
    if given.folder is not None:
        given.folder.mkdir(parents=True, exist_ok=True)
    server = LoopbackProvider(play, rules=rules, keep=given.keep, folder=given.folder)
    await server.start(given.port)
    _say({"port": server.port, "url": server.url})
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    if given.until_eof:
        loop.add_reader(0, lambda: None if os.read(0, 4096) else over.set())
    await over.wait()
    report = server.report()
    await server.stop()
    _say(report)
    return 1 if given.check and (report["unused"] or report["refused"]) else 0


def _say(line: dict[str, object]) -> None:
    try:
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
        sys.stdout.flush()
    except (
        BrokenPipeError
    ):  # the reader is gone; avoid a second error when the interpreter flushes stdout at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())

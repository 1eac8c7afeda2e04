"""Plant secrets where a session meets them and search every surface for any form of them.

    python -m lab.campaigns.canaries

A provider's key, a value that `redact.env` names and tokens of vendors stand in the prompt, in
files, in the output of commands and background tasks (also in base64, hexadecimal, URL escapes,
split by line breaks and colours), in what the model says, in its calls and in an error of the
provider. The run is killed with SIGKILL while a task prints, and goes on. Searched are all files of
the state folder (log, blobs, spool, inbox, snapshots, temporary files of the crash),
the export, stream-json, stderr, the screen of a terminal and the bodies of requests.
"""

import os
import pty
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from longrein.testing.loopback import Call, Received
from longrein.testing.loopback import Turn as Loopback
from longrein_context.events.redact import secret_forms, squeezed
from tests.e2e.harness import BYPASS, CliHarness, Provider
from tests.timeouts import wait_until

PROVIDER_KEY = "zebra-42/quartz+lamp=violet"
"""Not of any vendor's form, and written differently by each encoding."""
NAMED = "Korrekt-Pferd_Batterie-77"
TOKENS = (
    "ghp_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA2bC4",
    "sk-ant-api03-" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7x",
    "AKIAZ7QX4MPL2WJTN5VR",
    "glpat-" + "aB3dE6gH9jK2mN5pQ8",
    "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",
)
KNOWN = (PROVIDER_KEY, NAMED)
URL_PASSWORD = "h0rse-Battery-9"
EVERY = (*KNOWN, *TOKENS, URL_PASSWORD)


def script_of(secret: str) -> str:
    """A shell script that prints `secret` in every form."""
    half = len(secret) // 2
    word = secret.replace("%", "%%")
    lines = [
        f"printf '%s\\n' '{form}'"
        for form in (secret, *(secret_forms(secret) if secret in KNOWN else ()))
    ]
    if secret in KNOWN:
        lines += [
            f"printf '{word[:half]}\\033[31m{word[half:]}\\033[0m\\n'",
            f"printf '{word[:half]}\\n  {word[half:]}\\n'",
        ]
        lines += [f"printf 'user%s:{word}' {'x' * n} | base64" for n in range(3)]
    lines += [f"printf '{word[:half]}'; sleep 0.05; printf '{word[half:]}\\n'"]
    return "\n".join(lines) + "\n"


def turns() -> tuple[Loopback, ...]:
    """What the model does: it reads, prints, writes and says every secret."""
    said = " and ".join((*KNOWN, *TOKENS, f"postgres://app:{URL_PASSWORD}@db/x"))
    printing = {"command": "sh print.sh; seq 1 40000; sh print.sh", "description": said}
    todos = [{"content": said, "status": "pending", "activeForm": said}]
    task = {"command": "while :; do sh print.sh; sleep 0.2; done", "run_in_background": True}
    look = (Call("Read", {"file_path": ".env"}), Call("Bash", {"command": "sh print.sh"}))
    return (
        Loopback(calls=look),
        Loopback(calls=(Call("Bash", printing),)),
        Loopback(
            thinking=f"I have seen {said}",
            text=f"The keys: {said}.",
            calls=(
                Call("Write", {"file_path": "copy.env", "content": f"A={said}\n"}),
                Call("Grep", {"pattern": "K", "path": ".env", "output_mode": "content"}),
                Call("TodoWrite", {"todos": todos}),
                Call("Bash", task),
            ),
        ),
        Loopback(calls=(Call("Bash", {"command": "touch ready; sleep 30"}),)),
        Loopback(text=f"It went on: {said}."),
        Loopback(text=f"Once more: {said}."),
    )


def found_in(data: bytes) -> list[str]:
    """Return the secrets that stand in `data` in a form that is known."""
    tight = squeezed(data)
    forms = [(secret, form) for secret in KNOWN for form in secret_forms(secret)]
    forms += [(secret, secret) for secret in (*TOKENS, URL_PASSWORD)]
    return sorted(
        {s for s, form in forms if form.encode() in data or squeezed(form.encode()) in tight}
    )


def modes_of(state: Path) -> list[str]:
    """Return files, folders and sockets that others may open."""
    wrong = []
    for path in [state, *state.rglob("*")]:
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue
        if (
            "sandbox" in path.parts
        ):  # its private /tmp is open to all users of the namespace, below a closed folder
            continue
        wanted = (0o700,) if stat.S_ISDIR(mode) else (0o600, 0o400)  # git's objects are read-only
        if not stat.S_ISLNK(mode) and stat.S_IMODE(mode) not in wanted:
            wrong.append(f"{path.name}: {stat.S_IMODE(mode):o} instead of {wanted[0]:o}")
    return wrong


class Campaign:
    """One session that meets every secret."""

    def __init__(self, folder: Path, wire: str) -> None:
        self.cli, self.wire = CliHarness(folder), wire
        self.surfaces: dict[str, bytes] = {}
        self.faults: list[str] = []
        self.env = {"SERVED_KEY": PROVIDER_KEY, "BATTERY": NAMED}
        (self.cli.project / "print.sh").write_text("".join(map(script_of, (*KNOWN, *TOKENS))))
        lines = [f"K{n}={secret}" for n, secret in enumerate((*KNOWN, *TOKENS))]
        (self.cli.project / ".env").write_text(
            "\n".join([*lines, f"KU=postgres://app:{URL_PASSWORD}@db/x", ""])
        )

    def run(self) -> None:
        """Play the session, kill it, go on, and collect the surfaces."""
        with Provider(*turns()) as provider:
            settings = (
                provider.settings(self.wire, '\n[redact]\nenv = ["BATTERY"]\n')
                + 'api_key_env = "SERVED_KEY"\n'
            )
            self.cli.settings(settings, "served/large")
            self._killed()
            url = f"postgres://app:{URL_PASSWORD}@db/x"
            prompt = f"compare {' '.join((*KNOWN, *TOKENS))} and {url}"
            partial = ("--output-format", "stream-json", "--include-partial-messages", "--verbose")
            ran = self.cli.run("-p", prompt, "-c", *partial, BYPASS, env=self.env)
            self.surfaces |= {"stream-json, resumed": ran.out, "stderr": ran.raw_err}
            self.surfaces["terminal"] = self._terminal("-p", "once more", "-c", BYPASS)
            bodies = [request.body for request in provider.requests]
            self.surfaces["export"] = self.cli.run("export", self.cli.session).out
            self.surfaces["sessions"] = self.cli.run("sessions", "--json").out
            self.surfaces["search"] = self.cli.run("search", "K").out
            self._check_requests(provider.requests, bodies)
        self._stop_tasks()
        for path in self.cli.state.rglob("*"):
            if path.is_file():
                self.surfaces[f"state: {path.relative_to(self.cli.state)}"] = path.read_bytes()
        for name, data in self.surfaces.items():
            self.faults += [f"{self.wire}: {secret!r} in {name}" for secret in found_in(data)]

    def _killed(self) -> None:
        """Run until a task prints and a command runs, with umask 0, and kill longrein."""
        partial = ("--output-format", "stream-json", "--include-partial-messages")
        out = open(self.cli.folder / "killed.jsonl", "wb")  # noqa: SIM115 - closed with its process
        going = self.cli.start(
            "-p",
            "go",
            *partial,
            BYPASS,
            env=self.env,
            stdout=out,
            preexec_fn=lambda: os.umask(0) and None,
        )
        wait_until((self.cli.project / "ready").exists)
        self.faults += [f"{self.wire}: {wrong}" for wrong in modes_of(self.cli.state)]
        for path in self.cli.state.rglob("*"):
            if path.is_file():
                self.surfaces[f"while it runs: {path.name}"] = path.read_bytes()
        going.send(signal.SIGKILL)
        going.process.wait()
        out.close()
        self.surfaces["stream-json, killed"] = (self.cli.folder / "killed.jsonl").read_bytes()

    def _terminal(self, *words: str) -> bytes:
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [*self.cli.command, *words],
            cwd=self.cli.project,
            env={**self.cli.env, **self.env},
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        pieces: list[bytes] = []

        def read() -> None:
            try:
                while piece := os.read(master, 1 << 16):
                    pieces.append(piece)
            except OSError:
                return

        reading = threading.Thread(target=read)
        reading.start()
        process.wait(60)
        reading.join(60)
        os.close(master)
        return b"".join(pieces)

    def _check_requests(self, requests: list[Received], bodies: list[bytes]) -> None:
        if not any("secret: " in body.decode("utf-8", "replace") for body in bodies):
            self.faults.append(f"{self.wire}: no request holds a marker, so nothing was met")
        for number, request in enumerate(requests, 1):
            self.surfaces[f"body of request {number}"] = request.body
            self.surfaces[f"path of request {number}"] = request.path.encode()

    def _stop_tasks(self) -> None:
        self.cli.clean_up()


def run_wire(wire: str) -> tuple[int, list[str]]:
    """Run the campaign on one wire; return (surfaces searched, faults)."""
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(Path(folder), wire)
        try:
            campaign.run()
        finally:
            campaign.cli.clean_up()
        return len(campaign.surfaces), campaign.faults


def main() -> int:
    """Print one line; return 1 when a secret was found."""
    ran = [run_wire(wire) for wire in ("anthropic", "openai-chat", "openai-responses", "gemini")]
    faults = [fault for _, found in ran for fault in found]
    for fault in faults[:20]:
        print(fault)
    print(
        f"canaries: {len(EVERY)} secrets, {sum(count for count, _ in ran)} surfaces searched, "
        f"{len(faults)} found (0)"
    )
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())

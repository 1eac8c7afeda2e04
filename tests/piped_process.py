"""A started process whose pipes are streams of the event loop."""

import asyncio
import subprocess


class PipedProcess:
    """Used like a process of asyncio, which cannot wait for a fork of `lab.support.forked`."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self.pid = process.pid
        self.stdout = asyncio.StreamReader(limit=1 << 27)
        self.stderr = asyncio.StreamReader(limit=1 << 27)
        self.stdin: asyncio.StreamWriter
        self.out_pipe: asyncio.ReadTransport
        """Our end of its stdout."""

    async def connect(self) -> None:
        """Connect the streams."""
        loop = asyncio.get_running_loop()
        out, err = (asyncio.StreamReaderProtocol(one) for one in (self.stdout, self.stderr))
        self.out_pipe, _ = await loop.connect_read_pipe(lambda: out, self._process.stdout)
        await loop.connect_read_pipe(lambda: err, self._process.stderr)
        flow = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        in_pipe, _ = await loop.connect_write_pipe(lambda: flow, self._process.stdin)
        self.stdin = asyncio.StreamWriter(in_pipe, flow, None, loop)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    async def wait(self) -> int:
        """Return its exit code, negative for a signal."""
        return await asyncio.to_thread(self._process.wait)

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()


async def piped(process: "subprocess.Popen[bytes]") -> PipedProcess:
    """Connect the pipes of a process with the running loop."""
    made = PipedProcess(process)
    await made.connect()
    return made

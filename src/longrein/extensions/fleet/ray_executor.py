"""Attempts as tasks of Ray: on the nodes of a cluster, or below a Ray of this machine.

Ray chooses the node and runs the task of a node that died on another one, where the attempt goes on
in its session. The folder of the state is on a file system that all nodes share.
"""

import asyncio
import logging
import os
import signal
import threading
from typing import Any

import msgspec

from longrein.app.run_context import RunContext
from longrein.events import LongreinError, UsageError
from longrein.extensions.fleet.executor import Attempt, TaskExecutor
from longrein.extensions.fleet.fleet_state import Engine, TaskEnded
from longrein.extensions.fleet.local_executor import STORE
from longrein.extensions.fleet.ray_worker import Work, run_work
from longrein.store.session_folder import passwords_in

NODE_DEATHS_MAX = 10
"""Deaths of nodes after which an attempt counts as cut; it then goes on later."""
CANCEL_S = 30.0
"""Longest wait for the processes of attempts that are cancelled."""
LOOPBACK = "127.0.0.1"
WORKER_ENVIRONMENT = {"RAY_kill_child_processes_on_worker_exit": "false"}
"""A worker that dies may not kill the supervisor, which is to end the processes of the attempt."""


class RayExecutor(TaskExecutor):
    """An `Executor` of Ray tasks. See `open_ray`."""

    def __init__(self, place: RunContext, folder: str, ray: Any, cpus: int) -> None:
        """`folder`: that of the fleet. `ray`: the module, connected. `cpus`: of an attempt."""
        super().__init__()
        self._place, self._folder, self._ray = place, folder, ray
        self._work = ray.remote(
            num_cpus=cpus, max_retries=NODE_DEATHS_MAX, scheduling_strategy="SPREAD"
        )(run_work)
        self._refs = dict[str, Any]()
        self._store = place.environ.get(STORE, "")

    async def run_attempt(self, attempt: Attempt) -> TaskEnded:
        """See `TaskExecutor.run_attempt`."""
        work = Work(attempt, self._place.state_dir, self._folder, self._store)
        ref = self._work.remote(msgspec.json.encode(work))
        self._refs[attempt.task.id] = ref
        try:
            return msgspec.json.decode(await ref, type=TaskEnded)
        except asyncio.CancelledError:
            self._ray.cancel(ref)
            raise
        except self._ray.exceptions.RayTaskError as error:
            problem = f"a fault of longrein: {str(error).strip().rpartition(chr(10))[2]}"
            return TaskEnded(attempt.task.id, "setup failed", problem, attempt.session)
        except self._ray.exceptions.RayError as error:
            problem = str(error).strip().partition("\n")[0]
            return TaskEnded(attempt.task.id, "node", problem, attempt.session)

    async def close(self) -> None:
        """See `Executor.close`."""
        await super().close()
        if self._refs:
            refs = list(self._refs.values())
            self._ray.wait(refs, num_returns=len(refs), timeout=CANCEL_S)
        self._ray.shutdown()


async def open_ray(place: RunContext, folder: str, engine: Engine, concurrency: int) -> RayExecutor:
    """Connect to the Ray at the engine's address, or start one on this machine, which gets CPUs for
    as many attempts as may run at once.

    Raises `UsageError` without the package or for a password that Ray would keep, `LongreinError`
    where Ray cannot be reached.
    """
    if passwords_in(place.environ.get(STORE, "")):
        raise UsageError(
            "Ray would keep the password in the address of the store: leave it out, and put it "
            "into ~/.pgpass on each node"
        )
    # Ray reads its options there
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if engine.address.startswith(LOOPBACK):
        # else Ray takes it for this machine's address in the network
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        import ray
    except ImportError:
        raise UsageError(
            "--engine ray needs the package ray: pip install 'longrein[fleet]'"
        ) from None
    own = {
        "_node_ip_address": LOOPBACK,
        "include_dashboard": False,
        "num_cpus": concurrency * engine.cpus,
    }
    where = {"address": engine.address} if engine.address else {"address": "local", **own}
    is_main = threading.current_thread() is threading.main_thread()
    ending = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            **where,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"env_vars": WORKER_ENVIRONMENT},
        )
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        problem = str(error).strip().partition("\n")[0]
        raise LongreinError(
            f"Ray at {engine.address or 'this machine'} cannot be used: {problem}; everything is "
            "kept, `longrein fleet resume` goes on"
        ) from None
    if is_main:  # Ray has put its own handlers before that of the fleet
        signal.signal(signal.SIGTERM, ending)
    return RayExecutor(place, folder, ray, engine.cpus)

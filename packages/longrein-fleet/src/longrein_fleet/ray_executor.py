"""Attempts as tasks of Ray: on the nodes of a cluster, or below a Ray of this machine.

Ray chooses the node and runs the task of a node that died on another one, where the attempt goes on
in its session. The folder of the state is on a file system that all nodes share, unless the
sessions are in a shared store: then Ray brings the sources to the nodes, and what the fleet keeps
of an attempt comes back with its end.
"""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from longrein.agent.session import retrieve_error
from longrein.agent.shared_rate_limit import shared_rates
from longrein.app.execution import sandbox_in
from longrein.app.run_context import RunContext
from longrein.atomic_file import replace_file
from longrein.folder_trees import remove_tree
from longrein.store.session_store import passwords_in, store_of
from longrein_context.events import LongreinError, SessionError, UsageError
from longrein_fleet.attempt_folder import SOURCES, AttemptFolder
from longrein_fleet.executor import Attempt, Executor
from longrein_fleet.fleet_state import AttemptEnded, Engine
from longrein_fleet.fleet_tasks import Task
from longrein_fleet.local_executor import RATES, STORE, make_spawner
from longrein_fleet.ray_worker import Done, Work, run_work

SOURCES_FOLDER, SOURCES_MAX = "sources", 16
"""Folder in which sources are packed, and how many stay packed for further tasks."""
NODE_DEATHS_MAX = 10
"""Deaths of nodes after which an attempt counts as cut; it then goes on later."""
CANCEL_S = 30.0
"""Longest wait for the processes of attempts that are cancelled."""
LOOPBACK = "127.0.0.1"
WORKER_ENVIRONMENT = {"RAY_kill_child_processes_on_worker_exit": "false"}
"""A worker that dies may not kill the supervisor, which is to end the processes of the attempt."""


class RayExecutor(Executor):
    """An `Executor` of Ray tasks. See `open_ray`."""

    def __init__(
        self,
        run_context: RunContext,
        folder: str,
        ray: Any,
        engine: Engine,
        rates: str,
        *,
        inherits_rates: bool = False,
    ) -> None:
        """`folder`: that of the fleet. `ray`: the module, connected.
        `rates`: name of its rates in the store, if there is one, and they are removed at the end;
        with `inherits_rates` those of another one, as for `LocalExecutor`.
        """
        super().__init__()
        self._place, self._folder, self._ray = run_context, folder, ray
        self._work = ray.remote(
            num_cpus=engine.cpus,
            num_gpus=engine.gpus,
            label_selector=engine.labels or None,
            max_retries=NODE_DEATHS_MAX,
            scheduling_strategy="SPREAD",
        )(run_work)
        self._refs = dict[str, Any]()
        self._sources = dict[tuple[str, str, str], Any]()
        """Folder, revision and tests of tasks -> Ray's reference to them."""
        self._packing = asyncio.Lock()
        self._spawner = make_spawner(run_context, os.path.join(folder, "supervisor"))
        self._store = run_context.environ.get(STORE, "")
        self._rates = rates if self._store or inherits_rates else ""
        self._owns_rates = bool(self._rates) and not inherits_rates
        if self._owns_rates:
            with open(os.path.join(folder, RATES), "rb") as file:
                limits = file.read()
            shared_rates(run_context.state_dir, rates)(lambda _: limits)

    async def run_attempt(self, attempt: Attempt) -> AttemptEnded:
        """See `Executor.run_attempt`."""
        state_dir = "" if self._store else self._place.state_dir
        work = Work(
            attempt,
            state_dir,
            os.path.basename(self._folder),
            self._store,
            self._rates,
            self._ray.get_runtime_context().gcs_address,
        )
        sources: Any = b""
        if self._store:
            async with self._packing:
                sources, problem = await self._pack(attempt.task)
            if problem:
                return AttemptEnded(attempt.task.id, "setup failed", problem, attempt.session)
        ref = self._work.remote(msgspec.json.encode(work), sources)
        self._refs[attempt.task.id] = ref
        try:
            done = msgspec.json.decode(await ref, type=Done)
            self._keep(os.path.join(self._folder, attempt.path), done.files)
            return done.end
        except asyncio.CancelledError:
            self._ray.cancel(ref)
            gone = asyncio.wrap_future(ref.future())
            await asyncio.wait((gone,), timeout=CANCEL_S)  # until then its session grows
            gone.add_done_callback(retrieve_error)
            raise
        except self._ray.exceptions.RayTaskError as error:
            problem = f"a fault of longrein: {str(error).strip().rpartition(chr(10))[2]}"
            return AttemptEnded(attempt.task.id, "setup failed", problem, attempt.session)
        except self._ray.exceptions.RayError as error:
            problem = str(error).strip().partition("\n")[0]
            return AttemptEnded(attempt.task.id, "node", problem, attempt.session)

    async def _pack(self, task: Task) -> tuple[Any, str]:
        """Return Ray's reference to the sources of a task, and the problem."""
        named = (task.folder, task.base, task.tests)
        if named not in self._sources:
            path = os.path.join(self._folder, SOURCES_FOLDER)
            sandbox = sandbox_in(self._place, path, [path])
            folder = AttemptFolder(path, self._spawner, self._place.environ, sandbox)
            if problem := await folder.pack(*named):
                return None, problem
            while len(self._sources) >= SOURCES_MAX:
                del self._sources[next(iter(self._sources))]  # Ray keeps what a task needs
            with open(os.path.join(path, SOURCES), "rb") as file:
                self._sources[named] = self._ray.put(file.read())
            remove_tree(path, ignore_errors=True)
        return self._sources[named], ""

    @staticmethod
    def _keep(folder: str, files: Mapping[str, bytes]) -> None:
        if files:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        for name, data in files.items():
            replace_file(os.path.join(folder, os.path.basename(name)), [data], durable=False)

    async def close(self) -> None:
        """See `Executor.close`."""
        await super().close()
        await self._spawner.drain()
        if self._refs:
            refs = list(self._refs.values())
            self._ray.wait(refs, num_returns=len(refs), timeout=CANCEL_S)
        self._ray.shutdown()
        store = store_of(self._place.state_dir)
        if self._owns_rates and store is not None:
            with suppress(SessionError):
                store.remove_shared(self._rates)


async def open_ray(
    run_context: RunContext,
    folder: str,
    engine: Engine,
    rates: str,
    *,
    concurrency: int = 1,
    inherits_rates: bool = False,
) -> RayExecutor:
    """Connect to the Ray at the engine's address, or start one on this machine, which gets CPUs for
    as many attempts as may run at once: `concurrency`. For the others see `RayExecutor`.

    Raises `UsageError` without the package or for a password that Ray would keep, `LongreinError`
    where Ray cannot be reached.
    """
    if passwords_in(run_context.environ.get(STORE, "")):
        raise UsageError(
            "Ray would keep the password in the address of the store: leave it out, and put it "
            "into ~/.pgpass on each node"
        )
    ray = _import_ray(engine.address)
    own = {
        "_node_ip_address": LOOPBACK,
        "include_dashboard": False,
        "num_cpus": concurrency * engine.cpus,
        "labels": engine.labels or None,
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
    gpus = ray.cluster_resources().get("GPU", 0)
    if not engine.address and gpus < engine.gpus:
        ray.shutdown()
        raise LongreinError(
            f"this machine has {gpus:g} GPUs, and a task needs {engine.gpus}: give a cluster with "
            "--address; everything is kept, `longrein fleet resume` goes on"
        )
    if is_main:  # Ray has put its own handlers before that of the fleet
        signal.signal(signal.SIGTERM, ending)
    return RayExecutor(run_context, folder, ray, engine, rates, inherits_rates=inherits_rates)


def _import_ray(address: str) -> Any:
    """Return the module ray, set up for a cluster at `address`. Raises `UsageError` without it."""
    # Ray reads its options there
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address.startswith(LOOPBACK):
        # else Ray takes it for this machine's address in the network
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        import ray
    except ImportError:
        raise UsageError(
            "--engine ray needs the package ray: pip install 'longrein[fleet]'"
        ) from None
    return ray

"""A Ray cluster on this machine: a head without CPUs, and nodes that can be killed.

As a program it prints its address and obeys lines of stdin: `kill` kills a node and adds another
one, the end of the input ends the cluster. It has a process of its own because the nodes have its
environment.
"""

import importlib.util
import itertools
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psutil
import pytest

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed: `make library`"
)
LOOPBACK = "127.0.0.1"
NODE_STATES, STATE = "TEST_NODE_STATES", "LONGREIN_STATE_DIR"
"""Variable of the program with a folder in which each node has a state folder of its own, and that
of a node.
"""


class RayCluster:
    """The program, started with an environment."""

    def __init__(self, environ: Mapping[str, str], nodes: int, cpus: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fleet.ray_cluster", str(nodes), str(cpus)],
            env={**environ, "PYTHONPATH": os.getcwd()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self._read("address")

    def _read(self, word: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            name, _, value = line.strip().partition(" ")
            if name == word:
                return value
        raise AssertionError(f"the Ray cluster has ended and said no {word!r}")

    def kill_node(self) -> None:
        """Kill the oldest node with all that runs on it, and add another one."""
        assert self._process.stdin is not None
        self._process.stdin.write("kill\n")
        self._process.stdin.flush()
        self._read("killed")

    def close(self) -> None:
        """End the cluster."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def kill_tree(node: Any) -> None:
    """Kill the processes of a node as the end of its machine would."""
    raylet = node.all_processes["raylet"][0].process
    victims = [psutil.Process(raylet.pid)]
    victims += victims[0].children(recursive=True)
    for act in (psutil.Process.suspend, psutil.Process.kill):
        for one in victims:  # suspended first, so that none notices the end of another one
            with suppress(psutil.NoSuchProcess):
                act(one)


def main(count: int, cpus: int) -> None:
    """Serve a cluster until stdin ends."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.ERROR)
    usual = {"node_ip_address": LOOPBACK, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **usual})
    numbers = itertools.count()

    def add_node() -> Any:
        states = os.environ.get(NODE_STATES)
        number = str(next(numbers))
        state = f"{states}/{number}" if states else os.environ.get(STATE, "")
        more = {"env_vars": {STATE: state}, "labels": {"number": number}}
        return cluster.add_node(num_cpus=cpus, **more, **usual)

    nodes = [add_node() for _ in range(count)]
    print("address", cluster.address, flush=True)
    for _ in sys.stdin:
        node = nodes.pop(0)
        kill_tree(node)
        cluster.remove_node(node, allow_graceful=False)
        print("killed", flush=True)
        nodes.append(add_node())
    cluster.shutdown()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

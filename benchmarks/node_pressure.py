"""Reads 5,000 nodes over TLS and plans for them every 10 seconds: ``python benchmarks/node_pressure.py``.

The kubelets are another process (:mod:`benchmarks.kubelets`), whose CPU time is not counted. Each has a summary of
54 KB with 30 pods. One in a hundred nodes is under pressure. Options make some kubelets hang. The first interval
connects to all kubelets.

This process has no informers. In an operator they need about 150 MB for 150,000 pods (``benchmarks/wire.py``), which
all controllers share. Like the operator, this process returns free memory to the kernel every 30 seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

if __name__ == "__main__":
    ROOT = Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(ROOT / "operator"), str(ROOT)]

import uvloop
from msgspec import Struct

from benchmarks import kubelets
from benchmarks.processes import cpu_seconds, memory_mb
from trimtab.api.node_pressure_policy import ACT, NodePressurePolicySpec
from trimtab.kube.api import Api
from trimtab.kube.connection.config import ServerConfig
from trimtab.kube.objects.node import Node
from trimtab.pressure.kubelet_client import DirectKubelets, KubeletClientSettings, StatsToken
from trimtab.pressure.measurement import NodeMeasurement, ReadFailure
from trimtab.pressure.planner import NodePlanner, NodeView
from trimtab.pressure.readings import Readings
from trimtab.pressure.state import NodeState
from trimtab.runtime.memory import RECLAIM_PERIOD, trim, tune_allocator

INTERVAL: Final = 10.0
SPEC: Final = NodePressurePolicySpec(
    mode=ACT,
    eviction_soft={"memory.available": "15%", "nodefs.available": "20%"},
    eviction_soft_grace_period={"memory.available": "1m30s", "nodefs.available": "2m"},
    eviction_hard={"memory.available": "512Mi", "nodefs.available": "15%", "pid.available": "10%"},
)


class Interval(Struct, frozen=True):
    """What one interval took.

    Attributes:
        cpu: CPU seconds of this process.
        kubelets_cpu: CPU seconds of the kubelets.
        wall: seconds until all nodes were read and planned.
        planning: the part of it for plans, in seconds.
        oldest: seconds since the oldest current reading was taken, when all nodes were planned.
        read: nodes with a current reading.
        unread: nodes without.
        met: nodes that meet a threshold.
        rss_mb: resident memory at the end.
    """

    cpu: float
    kubelets_cpu: float
    wall: float
    planning: float
    oldest: float
    read: int
    unread: int
    met: int
    rss_mb: int


class _Tokens:
    async def request(self, _method: str, _path: str, **_options: Any) -> Any:
        return {"spec": {"expirationSeconds": 600}, "status": {"token": kubelets.TOKEN}}

    def stream(self, path: str, **_options: Any) -> Any:
        raise NotImplementedError(path)


@contextmanager
def serving(number: int, hanging: int) -> Iterator[tuple[int, int, Path]]:
    """Run the kubelets; yield their process id, their first port and the CA file."""
    first_port = kubelets.free_ports(number)
    with tempfile.TemporaryDirectory() as directory:
        ca, certificate = kubelets.write_certificates(Path(directory))
        arguments = [str(number), str(first_port), str(certificate), str(hanging)]
        process = subprocess.Popen([sys.executable, kubelets.__file__, *arguments], stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process.pid, first_port, ca
        finally:
            process.kill()
            process.communicate()


async def run(number: int, intervals: int, pid: int, first_port: int, ca: Path) -> list[Interval]:
    """Read and plan all nodes once per interval, for a number of intervals."""
    nodes = [_node(each, first_port) for each in range(number)]
    config = ServerConfig(server="https://127.0.0.1:6443")
    token = StatsToken(cast("Api", _Tokens()), namespace="trimtab", service_account="trimtab-kubelet-stats")
    client = DirectKubelets(KubeletClientSettings(ca_file=str(ca)), config, token)
    readings = Readings(client)
    planner = NodePlanner(SPEC)
    states: dict[str, NodeState] = {}

    found: list[Interval] = []
    for count in range(1, intervals + 1):
        begin, cpu, their_cpu = time.monotonic(), time.process_time(), cpu_seconds(pid)
        await readings.refresh(
            nodes, only_memory=planner.only_memory, interval=INTERVAL, pods_needed=planner.pods_needed
        )
        planning = time.monotonic()
        met = read = 0
        oldest = now = time.time()
        for node in nodes:
            reading = readings.latest(node.name)
            view = NodeView(node, (), reading, readings.history(node.name), states.get(node.name, NodeState()))
            plan = planner.plan(view, now=now)
            states[node.name] = plan.state
            met += bool(plan.met)
            if isinstance(reading, NodeMeasurement):
                read += 1
                oldest = min(oldest, reading.read_at)
        done = time.monotonic()
        unread = sum(isinstance(readings.latest(node.name), ReadFailure | None) for node in nodes)
        if count * INTERVAL % RECLAIM_PERIOD == 0:
            await asyncio.to_thread(trim)
        await asyncio.sleep(max(0.0, begin + INTERVAL - time.monotonic()))
        found.append(
            Interval(
                cpu=round(time.process_time() - cpu, 2),
                kubelets_cpu=round(cpu_seconds(pid) - their_cpu, 2),
                wall=round(done - begin, 2),
                planning=round(done - planning, 2),
                oldest=round(now - oldest, 2),
                read=read,
                unread=unread,
                met=met,
                rss_mb=memory_mb(os.getpid(), "VmRSS"),
            )
        )
    await readings.close()
    await client.close()
    return found


def _node(number: int, first_port: int) -> Node:
    host, port = kubelets.address_of(number, first_port)
    return Node(name=kubelets.name_of(number), addresses=(host,), kubelet_port=port)


def measure(number: int = 5000, intervals: int = 6, hanging: int = 0) -> list[Interval]:
    """Run the benchmark and return each interval."""
    with serving(number, hanging) as (pid, first_port, ca):
        tune_allocator()
        gc.freeze()
        return uvloop.run(run(number, intervals, pid, first_port, ca))


def main() -> None:
    """Print each interval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--intervals", type=int, default=6)
    parser.add_argument("--hanging", type=int, default=0, metavar="N", help="number of kubelets that never respond")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    for each in measure(options.nodes, options.intervals, options.hanging):
        fields = {name: getattr(each, name) for name in each.__struct_fields__}
        print(json.dumps(fields) if options.json else "  ".join(f"{name} {value}" for name, value in fields.items()))
    print(f"peak {memory_mb(os.getpid(), 'VmHWM')} MB")


if __name__ == "__main__":
    main()

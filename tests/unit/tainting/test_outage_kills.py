"""A zone dies while the process that sees to it is killed again and again: nothing is lost, and nothing is early."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime

import pytest

from tests.builders import lease, node
from tests.fakes.clock import START
from tests.unit.tainting.running_taint_manager import NODES, Cell, Process, a_pod
from trimtab.api.plan import rfc3339
from trimtab.kube.clock import micro_time

pytestmark = pytest.mark.looptime(start=0)
UNREACHABLE = "node.kubernetes.io/unreachable"
ZONES = {"a": ("a1", "a2", "a3"), "b": ("b1", "b2", "b3", "b4")}
DIES, GRACE, RATE, BEARS = 20.0, 50.0, 0.1, 30
TAINT_AND_EVICT = {"mode": "TaintAndEvict", "nodeLifecycle": {"nodeMonitorPeriod": "1s", "nodeEvictionRate": RATE}}


class Outage:
    """Kubelets that renew every ten seconds, each at its own moment, until those of zone b die."""

    def __init__(self) -> None:
        self.cell = Cell()
        for zone, names in ZONES.items():
            for name in names:
                since = rfc3339(START - 3600)
                self.cell.add(node(name).uid(f"uid-{name}").zone(zone).condition("Ready", "True", since=since))
                self.cell.add(a_pod(f"pod-{name}", name, key=UNREACHABLE, seconds=BEARS))
        self.renewed: dict[str, float] = {}

    def renew(self, name: str) -> None:
        now = self.cell.clock.now()
        self.renewed[name] = now - START
        self.cell.add(lease(name).uid(f"lease-{name}").renewed(micro_time(now)))

    async def kubelets(self) -> None:
        names = [name for zone in ZONES.values() for name in zone]
        for name in names:
            self.renew(name)
        for second in range(10**6):
            await asyncio.sleep(1)
            for place, name in enumerate(names):
                if (second + place) % 10 == 0 and (second < DIES or name.startswith("a")):
                    self.renew(name)

    def failed(self, name: str) -> str:
        """Since when it counts as failed, to the second."""
        conditions = self.cell.objects[f"{NODES}/{name}"]["status"]["conditions"]
        [ready] = [each for each in conditions if each["type"] == "Ready"]
        assert ready["status"] == "Unknown"
        since: str = ready["lastTransitionTime"]
        return since

    def tainted_at(self, name: str) -> float:
        """What the node's NoExecute taint says of its time, in seconds since the start."""
        taints = self.cell.objects[f"{NODES}/{name}"]["spec"].get("taints", ())
        [added] = [each["timeAdded"] for each in taints if each["effect"] == "NoExecute"]
        return datetime.strptime(added, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp() - START


async def play(outage: Outage, kills: list[float]) -> None:
    """Let the outage take its course, with a kill at each of these moments and another process soon after."""
    living = asyncio.create_task(outage.kubelets())
    process = Process(outage.cell)
    await process.start(**TAINT_AND_EVICT)
    for kill in kills:
        await asyncio.sleep(max(0.0, kill - outage.cell.clock.monotonic()))
        await process.kill()
        await asyncio.sleep(0.7)
        process = Process(outage.cell)
        await process.start(**TAINT_AND_EVICT)
    await asyncio.sleep(200 - outage.cell.clock.monotonic())
    await process.kill()
    living.cancel()
    await asyncio.wait({living})


@pytest.mark.parametrize("seed", range(10))
async def test_kills_during_outage_keep_pod_deadlines(seed: int) -> None:
    outage, chance = Outage(), random.Random(seed)
    kills = sorted(chance.uniform(40, 150) for _ in range(seed))
    await play(outage, kills)

    stopped = sorted(ZONES["b"], key=outage.tainted_at)
    times = [outage.tainted_at(name) for name in stopped]
    failed = [outage.failed(name) for name in stopped]
    assert failed == sorted(failed), "who has failed first is tainted first"
    promised = min(outage.renewed[name] for name in stopped) + GRACE
    for time in times:
        assert promised - 1 <= time <= promised + 3 + 2 * len(kills), "taints have whole seconds"
        promised = time + 1 / RATE
    deleted = dict(outage.cell.gone)
    assert sorted(deleted) == sorted(f"uid-pod-{name}" for name in stopped)
    assert len(outage.cell.gone) == len(stopped)
    for name, time in zip(stopped, times, strict=True):
        assert time + BEARS <= deleted[f"uid-pod-{name}"] <= time + BEARS + 2.5
    for name in ZONES["a"]:
        assert not outage.cell.objects[f"{NODES}/{name}"]["spec"].get("taints")

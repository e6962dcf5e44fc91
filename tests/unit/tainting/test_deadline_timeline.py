"""Book and timers together, in virtual time: pods go when they were promised to, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import itemgetter

import pytest

from tests.fakes.caches import Caches
from tests.fakes.clock import START, LoopClock
from tests.unit.tainting.deadlines import ALL, bears, node, observed, pod, taint
from trimtab.api.scalars import to_time
from trimtab.controller.timers import Timers
from trimtab.kube.objects import Node, Pod
from trimtab.tainting.deadlines import Deadline, DeadlineChange, TaintDeadlineTracker, deadlines, since_annotation
from trimtab.tainting.report.status import next_deadlines, overdue

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


class Process:
    """What a process keeps of deadlines: killed, all of it is gone but what stands in the cluster."""

    def __init__(self, end: Callable[[Deadline, float], None]) -> None:
        self.clock = LoopClock()
        self.caches = Caches()
        self.book = TaintDeadlineTracker(self.caches.lister.items_on, ALL)
        self.timers: Timers[Deadline] = Timers(self._end, self.clock)
        self.task = asyncio.create_task(self.timers.run())
        self._delete = end

    def _end(self, deadline: Deadline) -> None:
        self._delete(deadline, self.clock.now())

    def recorded(self, old: Node | Pod | None, new: Node | Pod | None) -> None:
        now = self.clock.now()
        if isinstance(new or old, Node):
            self._follow(self.book.node_changed(old, new, now=now))  # type: ignore[arg-type]
        else:
            self.caches.apply(old, new)
            self._follow(self.book.pod_changed(old, new, now=now))  # type: ignore[arg-type]

    def _follow(self, changes: list[DeadlineChange]) -> None:
        for change in changes:
            if change.after is None:
                self.timers.cancel(change.key)
            else:
                self.timers.set(change.key, change.after.due, change.after)

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


class Cluster:
    """What stands in the API server, and the process that is told of it."""

    def __init__(self) -> None:
        self.objects: dict[str, Node | Pod] = {}
        self.gone: list[tuple[str, float]] = []
        self.process = Process(self._delete)

    def _delete(self, deadline: Deadline, now: float) -> None:
        """As the API server does: with the UID as precondition."""
        there = self.objects[deadline.key]
        assert there.uid == deadline.uid
        self.gone.append((deadline.uid, round(now - START, 3)))
        del self.objects[deadline.key]
        self.process.recorded(there, None)

    def put(self, new: Node | Pod) -> None:
        old = self.objects.get(new.key)
        self.objects[new.key] = new
        self.process.recorded(old, new)

    async def restart(self, *, after: float = 0) -> None:
        """Kill the process in the middle of what it does; another one comes, after a while."""
        for name, known in self.process.book.taints.items():
            there = self.objects[name]
            assert isinstance(there, Node)
            self.objects[name] = node(*there.taints, name=name, uid=there.uid, since=since_annotation(known) or "")
        await self.process.kill()
        await asyncio.sleep(after)
        self.process = Process(self._delete)
        for each in self.objects.values():
            self.process.recorded(None, each)


pytestmark = pytest.mark.looptime(start=0)


@pytest.mark.parametrize("added", [0, None], ids=["a taint with a time", "a taint as kubectl puts it on"])
async def test_a_restart_in_the_middle_of_a_toleration_changes_nothing(added: float | None) -> None:
    cluster = Cluster()
    cluster.put(pod(bears("a", 60)))
    cluster.put(node(taint(added=added)))
    await asyncio.sleep(30)
    await cluster.restart(after=10)
    await asyncio.sleep(100)

    assert cluster.gone == [("uid-web", 60)]


async def test_pods_due_during_downtime_are_deleted_at_start() -> None:
    cluster = Cluster()
    cluster.put(pod(bears("a", 60)))
    cluster.put(node(taint()))
    await asyncio.sleep(50)
    await cluster.restart(after=20)
    await asyncio.sleep(1)

    assert cluster.gone == [("uid-web", 70)]


@pytest.mark.parametrize("kill", range(0, 300, 30))
async def test_kills_during_outage_keep_deadlines(kill: int) -> None:
    """Not-ready at 0, unreachable in its place at 50 and back at 120; one pod comes late."""
    cluster = Cluster()
    carried = (bears(NOT_READY, 200), bears(UNREACHABLE, 200))
    steps: list[tuple[float, Node | Pod]] = [
        (0, pod(*carried, name="web")),
        (0, node(taint(NOT_READY, added=0))),
        (50, node(taint(UNREACHABLE, added=50))),
        (100, pod(*carried, name="late", started=100)),
        (120, node(taint(NOT_READY, added=120))),
    ]
    recorded = [(at, lambda new=new: cluster.put(new)) for at, new in steps]
    for at, do in sorted([*recorded, (kill + 0.5, None)], key=itemgetter(0)):
        await asyncio.sleep(at - cluster.process.clock.monotonic())
        if do is None:
            await cluster.restart()
        else:
            do()
    await asyncio.sleep(600)

    assert cluster.gone == [("uid-web", 200), ("uid-late", 300)]


@pytest.mark.parametrize(("seconds", "expected"), [(600, 600), (None, None), (10, 59)], ids=["longer", "ever", "less"])
async def test_toleration_changed_before_deadline_counts(seconds: int | None, expected: float | None) -> None:
    cluster = Cluster()
    cluster.put(node(taint()))
    cluster.put(pod(bears("a", 60)))
    await asyncio.sleep(59)
    cluster.put(pod(bears("a", seconds)))
    await asyncio.sleep(2000)

    assert cluster.gone == ([] if expected is None else [("uid-web", expected)])


async def test_new_pod_on_retainted_node_has_its_own_deadline() -> None:
    cluster = Cluster()
    cluster.put(node(taint()))
    cluster.put(pod(bears("a", 60), uid="first"))
    await asyncio.sleep(30)
    cluster.put(node())
    cluster.put(pod(bears("a", 60), uid="second", started=40))
    await asyncio.sleep(20)
    cluster.put(node(taint(added=50)))
    await asyncio.sleep(200)

    assert cluster.gone == [("second", 110)]


async def test_node_recovery_cancels_all_its_deadlines() -> None:
    cluster = Cluster()
    for number in range(30):
        cluster.put(pod(bears(NOT_READY, 300), name=f"p{number}"))
    cluster.put(node(taint(NOT_READY)))
    assert len(cluster.process.timers) == 30
    await asyncio.sleep(299)
    cluster.put(node())
    await asyncio.sleep(600)

    assert not cluster.gone
    assert len(cluster.process.timers) == 0


def test_status_lists_earliest_deadlines_and_counts_the_rest() -> None:
    many = [pod(bears("a", 100 + number % 7), name=f"p{number}") for number in range(20)]
    items = [(each.key, each) for each in many]
    found = list(deadlines(items, {"n1": observed(taint("a", "v", added=0.5), seen=1)}, ALL, now=START + 1).values())
    recorded, omitted = next_deadlines(found, limit=4)

    assert [each.pod for each in recorded] == ["p0", "p14", "p7", "p1"]
    assert omitted == 16
    assert recorded[0].due == to_time(START + 101)
    assert (recorded[0].namespace, recorded[0].node) == ("shop", "n1")
    assert (recorded[0].taint, recorded[0].toleration) == ("a=v:NoExecute", "a:NoExecute for 100s")
    assert next_deadlines(list(reversed(found)), limit=4) == (recorded, omitted)
    assert (overdue(found, now=START + 100), overdue(found, now=START + 101)) == (0, 3)

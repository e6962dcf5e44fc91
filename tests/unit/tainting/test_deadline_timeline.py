"""Book and timers together, in virtual time: pods go when they were promised to, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fakes.clock import START, LoopClock
from tests.unit.tainting.deadlines import ALL, bears, node, pod, standing, taint
from trimtab.api.scalars import to_time
from trimtab.kube.objects import Node, Pod
from trimtab.tainting.deadlines import (
    Change,
    Deadline,
    DeadlineBook,
    PlacedPods,
    deadlines,
    next_deadlines,
    note,
    overdue,
)
from trimtab.tainting.timers import Timers

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


class Process:
    """What a process keeps of deadlines: killed, all of it is gone but what stands in the cluster."""

    def __init__(self, end: Callable[[Deadline, float], None]) -> None:
        self.clock = LoopClock()
        self.placed = PlacedPods()
        self.book = DeadlineBook(self.placed.on, ALL)
        self.timers: Timers[Deadline] = Timers(self._end, self.clock)
        self.task = asyncio.create_task(self.timers.run())
        self._delete = end

    def _end(self, deadline: Deadline) -> None:
        self._delete(deadline, self.clock.now())

    def told(self, old: Node | Pod | None, new: Node | Pod | None) -> None:
        now = self.clock.now()
        if isinstance(new or old, Node):
            self._follow(self.book.node_changed(old, new, now=now))  # type: ignore[arg-type]
        else:
            self.placed.pod_changed(old, new)  # type: ignore[arg-type]
            self._follow(self.book.pod_changed(old, new, now=now))  # type: ignore[arg-type]

    def _follow(self, changes: list[Change]) -> None:
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
        self.process.told(there, None)

    def put(self, new: Node | Pod) -> None:
        old = self.objects.get(new.key)
        self.objects[new.key] = new
        self.process.told(old, new)

    async def restart(self, *, after: float = 0) -> None:
        """Kill the process in the middle of what it does; another one comes, after a while."""
        for name, known in self.process.book.taints.items():
            there = self.objects[name]
            assert isinstance(there, Node)
            self.objects[name] = node(*there.taints, name=name, uid=there.uid, since=note(known) or "")
        await self.process.kill()
        await asyncio.sleep(after)
        self.process = Process(self._delete)
        for each in self.objects.values():
            self.process.told(None, each)


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


async def test_what_fell_due_while_nobody_ran_goes_at_once() -> None:
    cluster = Cluster()
    cluster.put(pod(bears("a", 60)))
    cluster.put(node(taint()))
    await asyncio.sleep(50)
    await cluster.restart(after=20)
    await asyncio.sleep(1)

    assert cluster.gone == [("uid-web", 70)]


@pytest.mark.parametrize("kill", range(0, 300, 30))
async def test_whenever_it_is_killed_in_an_outage_nothing_is_lost_and_nothing_is_early(kill: int) -> None:
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
    told = [(at, lambda new=new: cluster.put(new)) for at, new in steps]
    for at, do in sorted([*told, (kill + 0.5, None)], key=itemgetter(0)):
        await asyncio.sleep(at - cluster.process.clock.monotonic())
        if do is None:
            await cluster.restart()
        else:
            do()
    await asyncio.sleep(600)

    assert cluster.gone == [("uid-web", 200), ("uid-late", 300)]


@pytest.mark.parametrize(("seconds", "expected"), [(600, 600), (None, None), (10, 59)], ids=["longer", "ever", "less"])
async def test_a_toleration_changed_a_second_before_the_end_counts(seconds: int | None, expected: float | None) -> None:
    cluster = Cluster()
    cluster.put(node(taint()))
    cluster.put(pod(bears("a", 60)))
    await asyncio.sleep(59)
    cluster.put(pod(bears("a", seconds)))
    await asyncio.sleep(2000)

    assert cluster.gone == ([] if expected is None else [("uid-web", expected)])


async def test_a_pod_made_anew_under_its_name_on_a_node_tainted_again_goes_at_its_own_time() -> None:
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


async def test_recovery_cancels_all_of_a_node() -> None:
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


pods = st.builds(
    lambda number, on: replace(pod(name=f"p{number}"), node=on),
    number=st.integers(0, 5),
    on=st.sampled_from(["", "n1", "n2"]),
)


@given(told=st.lists(st.tuples(pods, st.booleans()), max_size=30))
def test_placed_pods_are_where_the_watches_last_told(told: list[tuple[Pod, bool]]) -> None:
    placed, there = PlacedPods(), dict[str, Pod]()
    for each, goes in told:
        old = there.pop(each.key, None)
        if not goes:
            there[each.key] = each
        placed.pod_changed(old or each, None if goes else each)

    assert {name: dict(placed.on(name)) for name in ("n1", "n2")} == {
        name: {key: each for key, each in there.items() if each.node == name} for name in ("n1", "n2")
    }
    assert dict(placed.every()) == {key: each for key, each in there.items() if each.node}
    assert len(placed) == len(dict(placed.every()))
    assert not placed._on.keys() - {each.node for each in there.values()}


def test_the_status_has_the_soonest_and_counts_the_rest() -> None:
    many = [pod(bears("a", 100 + number % 7), name=f"p{number}") for number in range(20)]
    items = [(each.key, each) for each in many]
    found = list(deadlines(items, {"n1": standing(taint("a", "v", added=0.5), seen=1)}, ALL, now=START + 1).values())
    told, omitted = next_deadlines(found, limit=4)

    assert [each.pod for each in told] == ["p0", "p14", "p7", "p1"]
    assert omitted == 16
    assert told[0].due == to_time(START + 101)
    assert (told[0].namespace, told[0].node) == ("shop", "n1")
    assert (told[0].taint, told[0].toleration) == ("a=v:NoExecute", "a:NoExecute for 100s")
    assert next_deadlines(list(reversed(found)), limit=4) == (told, omitted)
    assert (overdue(found, now=START + 100), overdue(found, now=START + 101)) == (0, 3)

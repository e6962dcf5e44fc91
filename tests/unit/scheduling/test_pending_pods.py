"""The pending pods that the scheduler follows: nominations by node, and counts by state."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.scheduler import SCHEDULER, SchedulerWorld
from trimtab.api.scheduler_policy import QueueCounts
from trimtab.kube.objects import Pod, PodSpec
from trimtab.scheduling.pending_pods import PendingPods
from trimtab.scheduling.queue import SchedulingQueue


class NodeName(str):
    """The name of a node that counts its comparisons with other names."""

    __slots__ = ()
    comparisons: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        NodeName.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def pod(number: int, priority: int = 0, *, gated: bool = False, node: str = "") -> Pod:
    spec = PodSpec(priority=priority, scheduler_name=SCHEDULER, scheduling_gates=("quota",) if gated else ())
    return Pod("shop", f"p{number}", f"uid-{number}", spec=spec, nominated_node=node)


def followed() -> tuple[SchedulingQueue, PendingPods]:
    queue, world = SchedulingQueue(), SchedulerWorld()
    pods = PendingPods(queue, world.dependencies(world), wake=lambda: None, left=lambda _: None)
    pods.serve(SCHEDULER)
    return queue, pods


@pytest.mark.looptime
async def test_nomination_compares_only_pods_of_the_same_node() -> None:
    _, pods = followed()
    for number in range(300):
        pods._pod_changed(None, pod(number, node=NodeName(f"n{number}")))
    NodeName.comparisons = 0
    for number in range(300, 400):
        pods._pod_changed(None, pod(number, 9))
        [displaced] = pods.nominate(pod(number, 9), NodeName(f"n{number - 300}"))
        assert displaced.uid == f"uid-{number - 300}"
    assert len(pods.nominated()) == 300
    assert NodeName.comparisons < 2_000, "a comparison with every nominated pod takes 30,000"


@pytest.mark.looptime
async def test_counts_do_not_read_the_queued_pods() -> None:
    queue, pods = followed()
    for number in range(5):
        pods._pod_changed(None, pod(number, gated=number == 4))
    queue.pop(1, 0.0)
    queue._pods.clear()
    assert pods.counts() == {SCHEDULER: QueueCounts(active=4, gated=1)}


operations = st.lists(
    st.tuples(
        st.sampled_from(["add", "gate", "pop", "reject", "retry", "nominate", "withdraw", "nominated", "delete"]),
        st.integers(0, 6),
        st.integers(0, 2),
    ),
    max_size=50,
)


@given(operations)
def test_nominations_and_counts_equal_a_scan_of_all_pods(steps: list[tuple[str, int, int]]) -> None:
    asyncio.run(play(steps))


async def play(steps: list[tuple[str, int, int]]) -> None:
    queue, pods = followed()
    latest: dict[str, Pod] = {}
    for time, (operation, number, other) in enumerate(steps):
        uid = f"uid-{number}"
        known, queued = latest.get(uid), queue.get(uid)
        if operation in ("add", "gate", "nominated") and (operation != "gate" or known is None):
            latest[uid] = pod(
                number, number % 3, gated=operation == "gate", node=f"n{other}" if operation == "nominated" else ""
            )
            pods._pod_changed(known, latest[uid])
        elif operation == "pop":
            list(queue.evaluate(float(time)))
            queue.pop(other, float(time))
        elif operation == "reject" and queued is not None and queued.place == "in flight":
            queue.reject(queued, ("NodeResourcesFit",), float(time))
        elif operation == "retry" and queued is not None and queued.place == "in flight":
            queue.retry(queued, float(time))
        elif operation == "nominate" and queued is not None:
            lower = {
                each.uid
                for each in pods.nominated()
                if each.nominated_node == f"n{other}" and each.priority < number % 3 and each.uid != uid
            }
            assert {each.uid for each in pods.nominate(pod(number, number % 3), f"n{other}")} == lower
            assert not lower & {each.uid for each in pods.nominated()}
        elif operation == "withdraw":
            pods.withdraw_nomination(uid)
        elif operation == "delete" and known is not None:
            del latest[uid]
            pods._pod_changed(known, None)
        assert pods.counts() == {SCHEDULER: counted(queue, latest)}


def counted(queue: SchedulingQueue, latest: dict[str, Pod]) -> QueueCounts:
    places: Counter[Any] = Counter()
    for uid, each in latest.items():
        queued = queue.get(uid)
        places["gated" if each.spec.scheduling_gates else queued and queued.place] += 1
    return QueueCounts(
        active=places["active"] + places["in flight"],
        backoff=places["backoff"],
        unschedulable=places["unschedulable"],
        gated=places["gated"],
    )

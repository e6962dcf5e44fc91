"""The scheduling queue: order, back-off, hints, and pods in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects import (
    Affinity,
    HostPort,
    Node,
    NodeCondition,
    Pod,
    PodAffinityTerm,
    PodSpec,
    Taint,
    Toleration,
    TopologySpread,
)
from trimtab.kube.rules.taints import UNSCHEDULABLE
from trimtab.scheduling import queue as module
from trimtab.scheduling.queue import FLUSH_PERIOD, MAX_LOG, SchedulingQueue
from trimtab.scheduling.queueing_hints import (
    ALLOCATABLE,
    CONDITIONS,
    HINTS,
    LABELS,
    REQUESTS,
    ClusterEvent,
    helps,
    node_changes,
    pod_changes,
)

SPEC = PodSpec(requests=FrozenMap(cpu=1000), scheduler_name="trimtab")
FIT = frozenset(("NodeResourcesFit",))


def pod(name: str, *, spec: PodSpec = SPEC, **fields: Any) -> Pod:
    return Pod(name=name, namespace="shop", uid=f"uid-{name}", spec=spec, **fields)


def with_priority(name: str, priority: int) -> Pod:
    return pod(name, spec=PodSpec(priority=priority))


def node(name: str, cpu: int = 4000, **fields: Any) -> Node:
    return Node(name=name, uid=name, allocatable=FrozenMap(cpu=cpu, pods=110), **fields)


def names(queued: list[module.QueuedPod]) -> list[str]:
    return [each.pod.name for each in queued]


def pop(queue: SchedulingQueue, limit: int, now: float) -> list[module.QueuedPod]:
    """Evaluate the events, and pop pods."""
    for _ in queue.evaluate(now):
        pass
    return queue.pop(limit, now)


def rejected(queue: SchedulingQueue, now: float, by: frozenset[str] = FIT) -> list[str]:
    """Pop and reject everything."""
    popped = pop(queue, 1000, now)
    for each in popped:
        queue.reject(each, by, now)
    return names(popped)


def test_pods_are_popped_by_priority_then_by_time() -> None:
    queue = SchedulingQueue()
    for number, priority in enumerate([0, 5, 0, 9, 5]):
        queue.add(with_priority(f"p{number}", priority), now=float(number))
    assert names(pop(queue, 3, 10.0)) == ["p3", "p1", "p4"]
    assert names(pop(queue, 3, 10.0)) == ["p0", "p2"]
    assert queue.count("") == {"active": 0, "backoff": 0, "unschedulable": 0, "in flight": 5}


def test_backoff_doubles_from_one_to_ten_seconds() -> None:
    queue = SchedulingQueue()
    queue.add(pod("a"), 0.0)
    now, waits = 0.0, []
    for _ in range(6):
        [popped] = pop(queue, 1, now)
        queue.retry(popped, now)
        assert pop(queue, 1, now) == []
        until = queue.next_time(now)
        assert until is not None
        waits.append(until - now)
        now = until
    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_unschedulable_pod_waits_for_an_event_that_can_help() -> None:
    queue = SchedulingQueue()
    queue.add(pod("a"), 0.0)
    assert rejected(queue, 0.0) == ["a"]
    queue.observe(ClusterEvent("Node", "Update", frozenset((LABELS,)), node("n"), node("n")))
    queue.observe(ClusterEvent("Node", "Add", new=node("small", cpu=500)))
    assert pop(queue, 1, 20.0) == []
    queue.observe(ClusterEvent("Node", "Add", new=node("large")))
    assert names(pop(queue, 1, 20.0)) == ["a"]


def test_event_within_the_backoff_waits_for_its_end_unless_the_scheduler_is_idle() -> None:
    queue = SchedulingQueue()
    queue.add(with_priority("high", 9), 0.0)
    assert rejected(queue, 0.0) == ["high"]
    queue.add(pod("low"), 0.1)
    queue.observe(ClusterEvent("AssignedPod", "Delete", old=pod("gone", node="n")))
    assert names(pop(queue, 5, 0.2)) == ["low"]
    assert names(pop(queue, 5, 0.3)) == ["high"], "nothing else is active"


def test_pod_that_failed_with_an_error_is_never_popped_early() -> None:
    queue = SchedulingQueue()
    queue.add(pod("a"), 0.0)
    [popped] = pop(queue, 1, 0.0)
    queue.retry(popped, 0.0)
    assert pop(queue, 1, 0.5) == []
    assert names(pop(queue, 1, 1.0)) == ["a"]


def test_event_while_the_pod_is_in_flight_is_not_lost() -> None:
    queue = SchedulingQueue()
    queue.add(pod("a"), 0.0)
    [popped] = pop(queue, 1, 0.0)
    queue.observe(ClusterEvent("Node", "Add", new=node("n")))
    pop(queue, 1, 0.1)
    queue.reject(popped, FIT, 0.2)
    assert popped.place == "backoff"
    assert names(pop(queue, 1, 1.2)) == ["a"]


def test_event_of_another_kind_while_the_pod_is_in_flight_does_not_requeue_it() -> None:
    queue = SchedulingQueue()
    queue.add(pod("a"), 0.0)
    [popped] = pop(queue, 1, 0.0)
    queue.observe(ClusterEvent("StorageClass", "Add"))
    queue.reject(popped, FIT, 0.2)
    assert popped.place == "unschedulable"


def test_pod_in_flight_is_requeued_when_the_log_of_events_is_too_short() -> None:
    queue = SchedulingQueue()
    queue.add(pod("a"), 0.0)
    [popped] = pop(queue, 1, 0.0)
    for _ in range(MAX_LOG + 1):
        queue.observe(ClusterEvent("StorageClass", "Add"))
    queue.reject(popped, FIT, 0.2)
    assert popped.place == "backoff"


def test_deleted_pod_is_neither_popped_nor_requeued() -> None:
    queue = SchedulingQueue()
    for name in "abc":
        queue.add(pod(name), 0.0)
    queue.remove("uid-a")
    [b, c] = pop(queue, 5, 0.0)
    queue.remove("uid-b")
    queue.reject(b, FIT, 0.0)
    queue.retry(b, 0.0)
    queue.reject(c, FIT, 0.0)
    queue.remove("uid-c")
    assert (len(queue), pop(queue, 5, 1000.0), queue.next_time(1000.0)) == (0, [], None)


def test_pod_recreated_with_its_name_is_another_pod() -> None:
    queue = SchedulingQueue()
    queue.add(pod("a"), 0.0)
    [old] = pop(queue, 1, 0.0)
    queue.remove("uid-a")
    queue.add(Pod(name="a", namespace="shop", uid="second", spec=SPEC), 1.0)
    queue.reject(old, FIT, 1.0)
    assert [each.pod.uid for each in pop(queue, 5, 1.0)] == ["second"]


def test_change_of_the_own_spec_makes_an_unschedulable_pod_active() -> None:
    queue = SchedulingQueue()
    gated = pod("a", spec=PodSpec(scheduling_gates=("wait",)))
    queue.add(gated, 0.0)
    assert rejected(queue, 0.0, frozenset(("SchedulingGates",))) == ["a"]
    queue.add(gated, 5.0)
    assert pop(queue, 1, 5.0) == []
    queue.add(pod("a"), 5.0)
    assert names(pop(queue, 1, 5.0)) == ["a"]


def test_pod_unschedulable_for_five_minutes_is_tried_without_an_event() -> None:
    queue = SchedulingQueue()
    queue.add(pod("a"), 0.0)
    assert rejected(queue, 0.0) == ["a"]
    assert queue.next_time(1.0) == 300.0
    assert pop(queue, 1, 299.0) == []
    assert names(pop(queue, 1, 300.0 + FLUSH_PERIOD)) == ["a"]


def test_activated_pod_is_tried_at_once() -> None:
    queue = SchedulingQueue()
    queue.add(pod("preemptor"), 0.0)
    assert rejected(queue, 0.0) == ["preemptor"]
    queue.activate("uid-preemptor", 0.1)
    assert names(pop(queue, 1, 0.1)) == ["preemptor"]


def test_storm_of_unschedulable_pods_does_not_starve_pods_of_their_priority() -> None:
    queue = SchedulingQueue()
    for number in range(5000):
        queue.add(pod(f"storm-{number}"), 0.0)
    order = 0
    for second in range(1, 30):
        for each in pop(queue, 500, float(second)):
            queue.reject(each, FIT, float(second))
        queue.observe(ClusterEvent("AssignedPod", "Delete", old=pod("gone", node="n")))
        if second == 3:
            queue.add(pod("late"), 3.0)
        if "uid-late" in queue and pop(queue, 0, second + 0.5) == []:
            late = queue.get("uid-late")
            assert late is not None
            order = late.attempts
    assert order >= 1


def test_thousand_deletions_evaluate_each_group_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = SchedulingQueue()
    for number in range(2000):
        queue.add(pod(f"p{number}"), 0.0)
    rejected(queue, 0.0)
    rejected(queue, 0.0)
    asked: list[ClusterEvent] = []

    def count(_pod: Pod, _by: frozenset[str], event: ClusterEvent) -> bool:
        asked.append(event)
        return False

    monkeypatch.setattr(module, "helps", count)
    for number in range(1000):
        queue.observe(ClusterEvent("AssignedPod", "Delete", old=pod(f"gone-{number}", node="n")))
    pop(queue, 1, 10.0)
    assert len(asked) == 1
    assert asked[0].old is None


def unschedulable_queue(number: int) -> SchedulingQueue:
    """A queue of unschedulable pods, each of which is a group of its own."""
    queue = SchedulingQueue()
    for index in range(number):
        queue.add(with_priority(f"p{index}", index), 0.0)
    rejected(queue, 0.0)
    return queue


def test_evaluation_is_divided_into_steps_of_one_group_or_one_requeued_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, hints = unschedulable_queue(300), list[str]()

    def help_half(pod: Pod, _by: frozenset[str], _event: ClusterEvent) -> bool:
        hints.append(pod.name)
        return pod.priority % 2 == 0

    monkeypatch.setattr(module, "helps", help_half)
    queue.observe(ClusterEvent("Node", "Add", new=node("n")))
    before, hints_per_step, requeued_per_step = 300, list[int](), list[int]()
    for _ in queue.evaluate(10.0):
        hints_per_step.append(len(hints) - sum(hints_per_step))
        left = queue.count("")["unschedulable"]
        requeued_per_step.append(before - left)
        before = left
    assert (max(hints_per_step), sum(hints_per_step)) == (1, 300)
    assert (max(requeued_per_step), sum(requeued_per_step)) == (1, 150)


def test_event_observed_during_an_evaluation_is_evaluated_by_the_next_one() -> None:
    queue = unschedulable_queue(3)
    queue.observe(ClusterEvent("AssignedPod", "Update", frozenset((LABELS,)), pod("x"), pod("x")))
    evaluation = queue.evaluate(10.0)
    next(evaluation)
    queue.observe(ClusterEvent("Node", "Add", new=node("n")))
    list(evaluation)
    assert queue.count("")["unschedulable"] == 3
    assert queue.next_time(10.0) == 10.0
    list(queue.evaluate(10.0))
    assert queue.count("")["active"] == 3


def test_interrupted_evaluation_is_repeated() -> None:
    queue = unschedulable_queue(3)
    queue.observe(ClusterEvent("Node", "Add", new=node("n")))
    next(queue.evaluate(10.0))
    assert queue.count("")["unschedulable"] == 2
    assert queue.next_time(10.0) == 10.0
    assert len(pop(queue, 10, 10.0)) == 3


def test_pod_deleted_during_an_evaluation_is_not_requeued() -> None:
    queue = unschedulable_queue(3)
    queue.observe(ClusterEvent("Node", "Add", new=node("n")))
    for _ in queue.evaluate(10.0):
        for index in range(3):
            queue.remove(f"uid-p{index}")
    assert (len(queue), pop(queue, 10, 10.0)) == (0, [])


@pytest.mark.parametrize(
    ("by", "event", "helped"),
    [
        (
            "NodeResourcesFit",
            ClusterEvent("Node", "Update", frozenset((ALLOCATABLE,)), node("n", 100), node("n")),
            True,
        ),
        (
            "NodeResourcesFit",
            ClusterEvent("Node", "Update", frozenset((ALLOCATABLE,)), node("n"), node("n", 3000)),
            False,
        ),
        ("NodeResourcesFit", ClusterEvent("AssignedPod", "Delete", old=pod("x")), True),
        ("NodeResourcesFit", ClusterEvent("AssignedPod", "Add", new=pod("x")), False),
        (
            "NodeResourcesFit",
            ClusterEvent("AssignedPod", "Update", frozenset((REQUESTS,)), pod("x"), pod("x", spec=PodSpec())),
            True,
        ),
        ("TaintToleration", ClusterEvent("Node", "Add", new=node("n")), True),
        ("TaintToleration", ClusterEvent("Node", "Add", new=node("n", taints=(Taint("a", "NoSchedule"),))), False),
        ("NodeUnschedulable", ClusterEvent("Node", "Add", new=node("n", unschedulable=True)), False),
        ("NodeAffinity", ClusterEvent("AssignedPod", "Delete", old=pod("x")), False),
        ("InterPodAffinity", ClusterEvent("AssignedPod", "Add", new=pod("x")), True),
        ("SchedulingGates", ClusterEvent("Node", "Add", new=node("n")), False),
        ("AnUnknownFilter", ClusterEvent("StorageClass", "Add"), True),
    ],
)
def test_hints(by: str, event: ClusterEvent, helped: bool) -> None:
    queue = SchedulingQueue()
    queue.add(pod("a"), 0.0)
    rejected(queue, 0.0, frozenset((by,)))
    queue.observe(event)
    assert bool(pop(queue, 1, 60.0)) is helped


def test_hint_of_taints_reads_the_tolerations() -> None:
    tolerating = PodSpec(tolerations=(Toleration(key="a", operator="Exists"),))
    queue = SchedulingQueue()
    queue.add(pod("a", spec=tolerating), 0.0)
    queue.add(pod("b"), 0.0)
    rejected(queue, 0.0, frozenset(("TaintToleration",)))
    queue.observe(ClusterEvent("Node", "Add", new=node("n", taints=(Taint("a", "NoSchedule"),))))
    assert names(pop(queue, 5, 60.0)) == ["a"]


def term(key: str) -> PodAffinityTerm:
    return PodAffinityTerm(topology_key=key)


FEATURE = PodSpec(required_features=("GuestSwap",))
PORT = PodSpec(host_ports=(HostPort(port=80),))
ON_SSD = PodSpec(node_selector=FrozenMap(disk="ssd"))
NEAR = PodSpec(affinity=Affinity(pod_required=(term("zone"),)))
APART = PodSpec(affinity=Affinity(anti_required=(term("zone"),)))
SPREAD = PodSpec(topology_spread=(TopologySpread(1, "zone", "DoNotSchedule"),))
CORDON = PodSpec(tolerations=(Toleration(key=UNSCHEDULABLE, operator="Exists"),))
SSD, HDD = node("n", labels=FrozenMap(disk="ssd")), node("n", labels=FrozenMap(disk="hdd"))
ZONED, UNZONED = node("n", labels=FrozenMap(zone="a")), node("n")
TAINTED = node("n", taints=(Taint("a", "NoSchedule"),))


def reporting(**statuses: str) -> Node:
    return node("n", conditions=tuple(NodeCondition(type_, status) for type_, status in statuses.items()))


def updated(old: Node, new: Node) -> ClusterEvent:
    return ClusterEvent("Node", "Update", node_changes(old, new), old, new)


def ported(*ports: HostPort) -> ClusterEvent:
    return ClusterEvent("AssignedPod", "Delete", old=pod("x", spec=PodSpec(host_ports=ports)))


@pytest.mark.parametrize(
    ("by", "spec", "event", "helped"),
    [
        ("NodeResourcesFit", SPEC, updated(node("n", 1000), node("n", 1000, unschedulable=True)), False),
        ("NodeResourcesFit", SPEC, updated(node("n", 0), node("n", 1000)), True),
        ("NodeResourcesFit", SPEC, updated(node("n", 0), node("n", 999)), False),
        (
            "NodeResourcesFit",
            SPEC,
            ClusterEvent(
                "AssignedPod",
                "Update",
                frozenset((REQUESTS,)),
                pod("x"),
                pod("x", spec=PodSpec(requests=FrozenMap(cpu=1001))),
            ),
            False,
        ),
        ("NodeAffinity", ON_SSD, ClusterEvent("Node", "Add", new=SSD), True),
        ("NodeAffinity", ON_SSD, ClusterEvent("Node", "Add", new=HDD), False),
        ("NodeAffinity", ON_SSD, updated(HDD, SSD), True),
        ("NodeAffinity", ON_SSD, updated(SSD, HDD), False),
        ("NodeAffinity", ON_SSD, updated(SSD, node("n", labels=FrozenMap(disk="ssd", zone="a"))), False),
        ("TaintToleration", SPEC, updated(TAINTED, UNZONED), True),
        ("TaintToleration", SPEC, updated(UNZONED, TAINTED), False),
        ("TaintToleration", SPEC, updated(node("n", taints=(Taint("a", "PreferNoSchedule"),)), UNZONED), False),
        ("NodeUnschedulable", SPEC, updated(node("n", unschedulable=True), UNZONED), True),
        ("NodeUnschedulable", CORDON, ClusterEvent("Node", "Add", new=node("n", unschedulable=True)), True),
        ("NodePorts", PORT, ported(HostPort(port=80)), True),
        ("NodePorts", PORT, ported(HostPort(port=81)), False),
        ("NodePorts", PORT, ported(HostPort(port=80, protocol="UDP")), False),
        ("NodePorts", PORT, ported(), False),
        ("NodePorts", PORT, ClusterEvent("Node", "Add", new=UNZONED), True),
        (
            "NodeDeclaredFeatures",
            FEATURE,
            ClusterEvent("Node", "Add", new=node("n", declared_features=("GuestSwap",))),
            True,
        ),
        ("NodeDeclaredFeatures", FEATURE, ClusterEvent("Node", "Add", new=UNZONED), False),
        ("NodeDeclaredFeatures", FEATURE, updated(UNZONED, node("n", declared_features=("GuestSwap", "X"))), True),
        ("InterPodAffinity", NEAR, ClusterEvent("Node", "Add", new=ZONED), True),
        ("InterPodAffinity", NEAR, ClusterEvent("Node", "Add", new=SSD), False),
        ("InterPodAffinity", APART, updated(ZONED, UNZONED), True),
        ("InterPodAffinity", APART, updated(HDD, SSD), False),
        ("InterPodAffinity", SPEC, updated(HDD, SSD), True),
        ("PodTopologySpread", SPREAD, ClusterEvent("Node", "Delete", old=ZONED), True),
        ("PodTopologySpread", SPREAD, ClusterEvent("Node", "Delete", old=SSD), False),
        ("CheckNodeCondition", SPEC, updated(reporting(Ready="False"), reporting(Ready="True")), True),
        ("CheckNodeCondition", SPEC, updated(reporting(Ready="True"), reporting(Ready="False")), False),
        ("CheckNodeCondition", SPEC, updated(node("n", unschedulable=True), reporting(Ready="True")), True),
        ("CheckNodeCondition", SPEC, ClusterEvent("Node", "Add", new=reporting(Ready="False")), False),
        ("CheckNodeCondition", SPEC, ClusterEvent("AssignedPod", "Delete", old=pod("x")), False),
        (
            "CheckNodeDiskPressure",
            SPEC,
            updated(reporting(DiskPressure="True"), reporting(DiskPressure="False")),
            True,
        ),
        ("CheckNodePIDPressure", SPEC, ClusterEvent("Node", "Add", new=reporting(PIDPressure="True")), False),
        (
            "CheckNodeMemoryPressure",
            PodSpec(),
            updated(reporting(MemoryPressure="True"), reporting(MemoryPressure="False")),
            True,
        ),
        ("NodeResourcesFit", SPEC, updated(reporting(Ready="False"), reporting(Ready="True")), False),
        ("VolumeBinding", SPEC, ClusterEvent("StorageClass", "Add"), True),
        ("VolumeBinding", SPEC, ClusterEvent("StorageClass", "Delete"), False),
    ],
)
def test_hint_reads_the_pod_and_the_changed_object(by: str, spec: PodSpec, event: ClusterEvent, helped: bool) -> None:
    queue = SchedulingQueue()
    queue.add(pod("a", spec=spec), 0.0)
    rejected(queue, 0.0, frozenset((by,)))
    queue.observe(event)
    assert bool(pop(queue, 1, 60.0)) is helped


def test_pod_that_names_its_node_waits_for_that_node() -> None:
    named = pod("a", node="n1")
    assert helps(named, frozenset(("NodeName",)), ClusterEvent("Node", "Add", new=node("n1")))
    assert not helps(named, frozenset(("NodeName",)), ClusterEvent("Node", "Add", new=node("n2")))


@pytest.mark.parametrize("by", ["NodeResourcesFit", "NodeUnschedulable", "NodePorts"])
def test_many_events_of_one_kind_whose_objects_are_unknown_may_help(by: str) -> None:
    [event, *_] = [
        ClusterEvent(rule.resource, min(rule.actions), rule.changes) for rule in HINTS[by] if rule.hint is not None
    ]
    assert helps(pod("a"), frozenset((by,)), event)


def test_changes_name_the_parts_that_filters_read() -> None:
    assert node_changes(node("n"), node("n", annotations=FrozenMap(a="b"))) == frozenset()
    assert node_changes(node("n"), node("n", cpu=1)) == {ALLOCATABLE}
    assert node_changes(reporting(Ready="False"), reporting(Ready="True")) == {CONDITIONS}
    same = node("n", conditions=(NodeCondition("Ready", "True", "KubeletReady", 1.0),))
    assert node_changes(reporting(Ready="True"), same) == frozenset()
    assert pod_changes(pod("a"), pod("a", ready=True)) == frozenset()
    assert pod_changes(pod("a"), pod("a", spec=PodSpec())) == {REQUESTS}


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "pop", "reject", "retry", "remove", "event", "activate", "evaluate"]),
        st.integers(0, 7),
    ),
    max_size=60,
)


@given(steps)
def test_every_pod_is_in_exactly_one_place_and_is_popped_in_the_end(  # noqa: C901 - one branch an operation
    operations: list[tuple[str, int]],
) -> None:
    queue = SchedulingQueue()
    flying: dict[str, module.QueuedPod] = {}
    known: set[str] = set()
    evaluation: Iterator[None] = iter(())
    now, last_event = 0.0, -1.0
    for operation, number in operations:
        now += 0.7
        uid = f"uid-p{number}"
        if operation == "add":
            queue.add(with_priority(f"p{number}", number % 3), now)
            known.add(uid)
        elif operation == "pop":
            for each in pop(queue, number, now):
                assert each.pod.uid not in flying
                flying[each.pod.uid] = each
        elif operation in ("reject", "retry") and uid in flying:
            each = flying.pop(uid)
            if operation == "reject":
                queue.reject(each, FIT, now)
            else:
                queue.retry(each, now)
        elif operation == "remove":
            queue.remove(uid)
            known.discard(uid)
            flying.pop(uid, None)
        elif operation == "event":
            queue.observe(ClusterEvent("Node", "Add", new=node("n")))
            last_event = now
        elif operation == "activate":
            queue.activate(uid, now)
        elif operation == "evaluate":
            if next(evaluation, ...) is ...:
                evaluation = queue.evaluate(now)
            list(islice(evaluation, number))
        assert len(queue) == len(known)
        assert queue.count("")["in flight"] == len(flying)
        queued = [each for uid in known if (each := queue.get(uid)) is not None]
        places = Counter(each.place for each in queued)
        assert queue.count("") == {place: places[place] for place in queue.count("")}
    list(evaluation)
    list(queue.evaluate(now))
    unschedulable = [each for uid in known if (each := queue.get(uid)) is not None and each.place == "unschedulable"]
    assert all(each.queued > last_event for each in unschedulable), "the event helps every pod"
    for each in flying.values():
        queue.retry(each, now)
    seen: set[str] = set()
    for _ in range(3):
        now += 400.0
        seen.update(each.pod.uid for each in pop(queue, 100, now))
    assert seen == known

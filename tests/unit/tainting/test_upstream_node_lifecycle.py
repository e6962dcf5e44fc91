"""The cases of nodelifecycle's own tests (v1.36.3: 17 functions), with the outcome that is promised here.

Each has its place below or in another file:

- TestMonitorNodeHealth: the zones, below.
- TestMonitorNodeHealthUpdateStatus, …UpdateNodeAndPodStatusWithLease, TestTryUpdateNodeHealth: below.
- TestMonitorNodeHealthMarkPodsNotReady, TestProcessPodMarkPodNotReady: below; …WithWorkerSize and …Retry:
  ``test_lifecycle_loop.py``. TestPodStatusChange writes reason NodeLost, which the controller itself does not any more.
- TestApplyNoExecuteTaints, …ToUnreachableNode, …ToNodesEnqueueTwice, TestSwapUnreachableNotReadyTaints: below.
- TestTaintsNodeByCondition: ``test_conditions.py``. Test_isNodeExcludedFromDisruptionChecks: ``test_zones.py``.
- TestNodeEventGeneration and TestReconcileNodeLabels: not ported, as
  ``docs/tasks/run-alongside-kube-controller-manager.md`` says.

Those of its queue (9 functions) are in ``test_zones.py`` (order, one place a node, a new node of the name), in
``test_lifecycle_timelines.py`` (who recovers while it waits) and in ``test_lifecycle_parts.py`` (a try that failed).
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.unit.tainting.nodes import DEFAULTS, START, a_node, a_pod, no_execute_of, watched, written
from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects import NODE_LEASES, Lease, Node, Pod
from trimtab.tainting.lifecycle.node_health import ProbeResult, stamp_of
from trimtab.tainting.lifecycle.planner import LifecyclePlan, plan_lifecycle, spend_token
from trimtab.tainting.lifecycle.pod_readiness import pods_not_ready
from trimtab.tainting.lifecycle.record import LifecycleState

HOUR = 3600.0
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


class Passes:
    """Passes over nodes as a test of upstream's writes them down, each with the memory of the one before."""

    def __init__(self) -> None:
        self.memory = LifecycleState()
        self.nodes: dict[str, Node] = {}

    def look(self, *nodes: Node, leases: dict[str, float] | None = None, at: float = 0.0) -> LifecyclePlan:
        """One pass; who is asked after is what the picture says, and what is marked Unknown is taken for written.

        Args:
            nodes: as they are now; whoever was there before and is not named is as it was.
            leases: by node, when it was renewed.
            at: seconds after the start.
        """
        self.nodes.update((node.name, node) for node in nodes)
        found = [Lease(NODE_LEASES, name, duration=40, renewed=START + time) for name, time in (leases or {}).items()]
        plan = self._pass(found, {}, at)
        if plan.probes:
            of = {lease.name: lease for lease in found}
            said = {
                name: ProbeResult(node.uid, stamp_of(node, of.get(name)), START + at)
                for name, node in self.nodes.items()
            }
            plan = self._pass(found, said, at)
        return plan

    def carry_out(self, plan: LifecyclePlan) -> None:
        """Write what a plan says of nodes."""
        for mark in plan.unknown:
            node = self.nodes[mark.node]
            conditions = (replace(each, status="Unknown", since=plan.now) for each in node.conditions)
            self.nodes[mark.node] = replace(node, conditions=tuple(conditions))
        for name in sorted({change.node for change in plan.taints}):
            changes = [change for change in plan.taints if change.node == name]
            self.nodes[name] = written(self.nodes[name], changes)

    def _pass(self, leases: list[Lease], answers: dict[str, ProbeResult], at: float) -> LifecyclePlan:
        sight = watched(*self.nodes.values(), *leases)
        plan = plan_lifecycle(*sight, DEFAULTS, now=START + at, memory=self.memory, probe_results=answers)
        self.memory = plan.memory
        for token in plan.taken.values():
            self.memory = spend_token(self.memory, token, in_flight=1, at=START + at)
        return plan


# ── zones ───────────────────────────────────────────────────────────────────────────────────────────────────────────

WELL, ILL, NOTHING = "True", "Unknown", None
ZONES = {
    "nodes without zone labels": ({"n0": WELL}, {"n0": WELL}, {"": "Normal"}, {"": "Normal"}),
    "both zones down, one comes back": (
        {"a0": ILL, "b0": ILL},
        {"a0": ILL, "b0": WELL},
        {"/a": "FullDisruption", "/b": "FullDisruption"},
        {"/a": "FullDisruption", "/b": "Normal"},
    ),
    "nodes that have said nothing yet": (
        {"a0": NOTHING, "a1": NOTHING, "a2": NOTHING, "a3": NOTHING},
        {"a0": ILL, "a1": ILL, "a2": ILL, "a3": WELL},
        {"/a": "FullDisruption"},
        {"/a": "PartialDisruption"},
    ),
    "one more fails, and that is too many": (
        {"a0": ILL, "a1": ILL, "a2": WELL, "a3": WELL, "a4": WELL},
        {"a0": ILL, "a1": ILL, "a2": ILL, "a3": WELL, "a4": WELL},
        {"/a": "Normal"},
        {"/a": "PartialDisruption"},
    ),
    "two nodes that are down make no disruption, until the last one fails": (
        {"a0": ILL, "a1": ILL, "a2": WELL},
        {"a0": ILL, "a1": ILL, "a2": ILL},
        {"/a": "Normal"},
        {"/a": "FullDisruption"},
    ),
    "all nodes of one zone are down": (
        {"a0": ILL, "b0": WELL},
        {"a0": ILL, "b0": WELL},
        {"/a": "FullDisruption", "/b": "Normal"},
        {"/a": "FullDisruption", "/b": "Normal"},
    ),
    "all nodes of both zones are down": (
        {"a0": ILL, "b0": ILL},
        {"a0": ILL, "b0": ILL},
        {"/a": "FullDisruption", "/b": "FullDisruption"},
        {"/a": "FullDisruption", "/b": "FullDisruption"},
    ),
    "the Ready condition is taken away": (
        {"a0": WELL},
        {"a0": NOTHING},
        {"/a": "Normal"},
        {"/a": "FullDisruption"},
    ),
    "the only node that is well is not counted": (
        {"a0": ILL, "ax": WELL},
        {"a0": ILL, "ax": WELL},
        {"/a": "FullDisruption"},
        {"/a": "FullDisruption"},
    ),
}


def in_zone(name: str, ready: str | None, at: float) -> Node:
    """``a0`` is in zone a, ``n0`` in none, ``ax`` is not counted; it posted its status just now."""
    zone = "" if name[0] == "n" else name[0]
    node = a_node(name, ready, zone=zone, heartbeat=START + at)
    if name[1] != "x":
        return node
    return replace(node, labels=FrozenMap({**node.labels, "node.kubernetes.io/exclude-disruption": ""}))


@pytest.mark.parametrize(("before", "after", "first", "then"), ZONES.values(), ids=ZONES)
def test_zones_equal_upstream(before, after, first, then):
    passes = Passes()
    for statuses, at, expected in ((before, 0.0, first), (after, HOUR, then)):
        plan = passes.look(*(in_zone(name, ready, at) for name, ready in statuses.items()), at=at)
        assert {name: zone.state for name, zone in plan.zones.items()} == expected


# ── who is Unknown ──────────────────────────────────────────────────────────────────────────────────────────────────

LONG_AGO, JUST_NOW = -10 * HOUR, 0.0
LEASES = {
    "young, no status, no Lease": (JUST_NOW, None, None, None, 0.0, None),
    "young, no status, Lease renewed": (JUST_NOW, None, None, 0.0, 0.0, None),
    "old, no status, no Lease": (LONG_AGO, None, None, None, 0.0, "NodeStatusNeverUpdated"),
    "old, no status, Lease renewed": (LONG_AGO, None, None, HOUR - 5, HOUR, None),
    "old, no status, Lease has run out": (LONG_AGO, None, None, -HOUR, HOUR, "NodeStatusNeverUpdated"),
    "old, status of long ago, Lease renewed": (LONG_AGO, "True", LONG_AGO, HOUR - 5, HOUR, None),
    "old, status posted, Lease has run out": (LONG_AGO, "True", HOUR - 5, -HOUR, HOUR, None),
    "old, status of long ago, Lease has run out": (LONG_AGO, "True", LONG_AGO, -HOUR, HOUR, "NodeStatusUnknown"),
    "old, status of long ago, no Lease": (LONG_AGO, "True", LONG_AGO, None, HOUR, "NodeStatusUnknown"),
}


@pytest.mark.parametrize(("created", "ready", "posted", "renewed", "at", "reason"), LEASES.values(), ids=LEASES)
def test_silent_node_becomes_unknown(created, ready, posted, renewed, at, reason):
    """What it says later than the first pass is seen to be new in the second."""
    passes = Passes()
    posted_at = None if posted is None else START + posted
    node = replace(a_node("n1", ready), created=START + created, heartbeat=posted_at)
    next_to = a_node("n2", heartbeat=START)
    if at:
        first = replace(node, heartbeat=None if posted is None else START + LONG_AGO)
        passes.look(first, next_to, leases={} if renewed is None else {"n1": min(renewed, -HOUR)})
    plan = passes.look(
        node, replace(next_to, heartbeat=START + at), leases={} if renewed is None else {"n1": renewed}, at=at
    )

    assert {mark.node: mark.reason for mark in plan.unknown} == ({} if reason is None else {"n1": reason})


GRACE = {
    f"{ready}, {'beyond' if late else 'within'} the grace period": (ready, late)
    for late in (False, True)
    for ready in ("True", "False", "Unknown", None)
}


@pytest.mark.parametrize(("ready", "late"), GRACE.values(), ids=GRACE)
def test_status_is_unknown_after_grace_period(ready, late):
    passes = Passes()
    grace = DEFAULTS.startup_grace_seconds if ready is None else DEFAULTS.monitor_grace_seconds
    node = replace(a_node("n1", ready), created=START, heartbeat=None if ready is None else START)
    leases = {} if ready is None else {"n1": 0.0}
    passes.look(node, a_node("n2", heartbeat=START), leases=leases)
    at = grace + late
    plan = passes.look(a_node("n2", heartbeat=START + at), leases=leases, at=at)

    assert [mark.node for mark in plan.unknown] == (["n1"] if late and ready != "Unknown" else [])
    assert (UNREACHABLE in {each.taint.key for each in plan.taints}) == (late or ready == "Unknown")


# ── pods of nodes that are not ready ────────────────────────────────────────────────────────────────────────────────

NOT_READY_PODS = {
    "a young node without status": (None, JUST_NOW, 0.0, False),
    "a node that has just posted that it is ready": ("True", LONG_AGO, 0.0, False),
    "a node that has been silent for an hour": ("True", LONG_AGO, HOUR, True),
    "a node that says that it is not ready": ("False", LONG_AGO, 0.0, True),
}


def marked(plan: LifecyclePlan, *pods: Pod) -> list[str]:
    """The pods that are marked by a plan."""
    return [
        each.name
        for node, since in plan.failed.items()
        for each in pods_not_ready((pod for pod in pods if pod.node == node), since=since)
    ]


@pytest.mark.parametrize(("ready", "created", "at", "expected"), NOT_READY_PODS.values(), ids=NOT_READY_PODS)
def test_pods_on_not_ready_node_become_not_ready(ready, created, at, expected):
    passes = Passes()
    node = replace(a_node("n1", ready), created=START + created, heartbeat=None if ready is None else START)
    plan = passes.look(node, a_node("n2", heartbeat=START))
    if at:
        plan = passes.look(a_node("n2", heartbeat=START + at), at=at)
    pods = [a_pod("web", "n1", ready_since=-100.0), a_pod("other", "n2", ready_since=-100.0)]

    assert marked(plan, *pods) == (["web"] if expected else [])


# ── NoExecute taints ────────────────────────────────────────────────────────────────────────────────────────────────


def taints(passes: Passes, *names: str) -> list[set[str]]:
    """The keys of the NoExecute taints of these nodes."""
    return [{key.rpartition("/")[2] for key in no_execute_of(passes.nodes[name])} for name in names]


def look_and_taint(passes: Passes, *nodes: Node, at: float) -> None:
    """A pass and what it says is done; these nodes have just posted their status, and none has renewed its Lease."""
    leases = dict.fromkeys((*passes.nodes, *(node.name for node in nodes)), 0.0)
    passes.carry_out(passes.look(*(replace(node, heartbeat=START + at) for node in nodes), leases=leases, at=at))


def test_nodes_are_tainted_and_untainted_by_ready_status():
    """TestApplyNoExecuteTaints. Upstream's limiter lets two go in a pass there; here the second waits."""
    passes = Passes()
    nodes = [a_node("n0", "Unknown", since=-100), a_node("n1"), a_node("n2", "False", since=-90), a_node("n3")]
    look_and_taint(passes, *nodes, at=0)
    assert taints(passes, "n0", "n1", "n2", "n3") == [{"unreachable"}, set(), set(), set()]
    look_and_taint(passes, at=10)
    assert taints(passes, "n0", "n1", "n2", "n3") == [{"unreachable"}, set(), {"not-ready"}, set()]

    recovered = replace(a_node("n2", since=20), taints=passes.nodes["n2"].taints)
    look_and_taint(passes, recovered, at=20)
    assert passes.nodes["n2"].taints == ()


def test_node_without_ready_condition_is_not_tainted():
    """TestApplyNoExecuteTaints, ``node3``: it was in the queue as not ready."""
    passes = Passes()
    look_and_taint(passes, a_node("n0", "Unknown", since=-100), a_node("n1"), a_node("n3", "False"), at=0)
    assert [each.node for each in passes.look(at=1).waiting] == ["n3"]

    only_memory = a_node("n3", None, conditions={"MemoryPressure": "Unknown"})
    look_and_taint(passes, only_memory, at=10)
    assert taints(passes, "n0", "n3") == [{"unreachable"}, set()]


def test_heartbeat_untaints_node():
    """TestApplyNoExecuteTaintsToUnreachableNode."""
    passes = Passes()
    look_and_taint(passes, a_node("n0"), a_node("n1"), at=1)
    assert taints(passes, "n0", "n1") == [set(), set()]

    look_and_taint(passes, a_node("n1"), at=52)
    assert taints(passes, "n0", "n1") == [{"unreachable"}, set()]

    heard = replace(a_node("n0", since=53), taints=passes.nodes["n0"].taints)
    look_and_taint(passes, heard, at=53)
    assert passes.nodes["n0"].taints == ()


def test_recovered_node_does_not_block_the_queue():
    """TestApplyNoExecuteTaintsToNodesEnqueueTwice: a node that is queued twice jammed the queue once."""
    passes = Passes()
    look_and_taint(passes, a_node("n0", "Unknown", since=-100), a_node("n1"), a_node("n2", "False", since=-90), at=0)
    passes.look(at=1)
    passes.look(at=2)
    recovered = replace(a_node("n0", since=3), taints=passes.nodes["n0"].taints)
    joined = [a_node("n3", "Unknown", since=-80), a_node("n4"), a_node("n5", "False", since=-70)]
    look_and_taint(passes, recovered, *joined, at=3)
    for at in (10, 20, 30):
        look_and_taint(passes, *(passes.nodes[name] for name in ("n0", "n1", "n4")), at=at)

    assert taints(passes, "n0", "n1", "n2", "n3", "n4", "n5") == [
        set(), set(), {"not-ready"}, {"unreachable"}, set(), {"not-ready"}
    ]  # fmt: skip


def test_unreachable_is_swapped_to_not_ready_at_once():
    """TestSwapUnreachableNotReadyTaints: ``node0`` speaks again and is not ready; ``node1`` was never ill."""
    passes = Passes()
    look_and_taint(passes, a_node("n0", "Unknown", since=-100), a_node("n1"), at=0)
    assert taints(passes, "n0", "n1") == [{"unreachable"}, set()]
    [first] = [each.time_added for each in passes.nodes["n0"].taints if each.effect == "NoExecute"]

    speaks = replace(a_node("n0", "False", since=5), taints=passes.nodes["n0"].taints)
    look_and_taint(passes, speaks, at=5)
    assert taints(passes, "n0", "n1") == [{"not-ready"}, set()]
    assert {each.key for each in passes.nodes["n0"].taints} == {NOT_READY}
    assert [each.time_added for each in passes.nodes["n0"].taints if each.effect == "NoExecute"] == [first]

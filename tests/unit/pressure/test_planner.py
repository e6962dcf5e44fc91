"""Which pod the planner evicts from a node, how, and why not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.fixtures.golden import Golden
from tests.unit.pressure.nodes import (
    INODES,
    MEMORY,
    NODEFS,
    START,
    NodeRun,
    by_key,
    measured,
    names,
    node,
    pod,
    stalled,
    used,
)
from trimtab.api import reasons
from trimtab.api.node_pressure_policy import FailedPodCleanup, MemoryStall, NodePressurePolicySpec
from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects import OwnerReference, Pod
from trimtab.kube.objects.pod import PodCondition
from trimtab.pressure.measurement import ReadFailure
from trimtab.pressure.planner import (
    NodePlanner,
    NodeView,
    evicted_at,
    failed_pods_to_delete,
    is_evicted,
    protection_of,
)
from trimtab.pressure.state import NO_STATE, NodeState

HARD = NodePressurePolicySpec(eviction_hard={MEMORY: "1Gi"})
SOFT = NodePressurePolicySpec(eviction_soft={MEMORY: "1Gi"}, eviction_soft_grace_period={MEMORY: "0s"})
LOW = {MEMORY: "500Mi"}


def run(spec: NodePressurePolicySpec, *pods: Pod, **amounts: str) -> NodeRun:
    """Return a node with pods that use amounts of memory."""
    usage = by_key(*(used(name.replace("_", "-"), memory=amount) for name, amount in amounts.items()))
    return NodeRun(spec, *pods, usage=usage)


# What protects a pod, and what does not.


def controlled_by(kind: str, api_version: str = "apps/v1") -> tuple[OwnerReference, ...]:
    return (OwnerReference(api_version=api_version, kind=kind, name="owner", uid="owner", controller=True),)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"deleted": START}, reasons.TERMINATING, id="terminating"),
        pytest.param(
            {"annotations": FrozenMap({"kubernetes.io/config.mirror": "x"})}, reasons.MIRROR_POD, id="mirror pod"
        ),
        pytest.param({"priority": 2_000_000_000}, reasons.CRITICAL_POD, id="system-critical priority"),
        pytest.param(
            {"spec": {"priority_class_name": "system-node-critical"}}, reasons.CRITICAL_POD, id="priority class"
        ),
        pytest.param({"owners": controlled_by("DaemonSet")}, reasons.DAEMON_SET_POD, id="DaemonSet"),
        *(
            pytest.param({"owners": controlled_by("DaemonSet", version)}, None, id=f"DaemonSet of {version or '-'}")
            for version in ("", "v1", "apps/v1beta2", "extensions/v1beta1", "example.com/v1", "apps.kruise.io/v1alpha1")
        ),
        pytest.param({"priority": 1_999_999_999}, None, id="the highest priority of users"),
        pytest.param({"owners": ()}, None, id="bare pod"),
        pytest.param({"spec": {"qos": "Guaranteed"}}, None, id="Guaranteed"),
        pytest.param(
            {"annotations": FrozenMap({"descheduler.alpha.kubernetes.io/evict": "false"})}, None, id="evict: false"
        ),
        pytest.param(
            {"annotations": FrozenMap({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})},
            None,
            id="safe-to-evict: false",
        ),
        pytest.param(
            {"annotations": FrozenMap({"scheduler.alpha.kubernetes.io/critical-pod": ""})},
            None,
            id="critical-pod, which tenants may set",
        ),
        pytest.param(
            {"annotations": FrozenMap({"kubernetes.io/config.source": "file"})},
            None,
            id="source of static pods without the mirror annotation, which tenants may set",
        ),
        pytest.param(
            {"owners": (OwnerReference(api_version="v1", kind="Node", name="n1", uid="n1"),)},
            None,
            id="owned by a Node, which tenants may set",
        ),
        pytest.param(
            {
                "owners": (
                    *controlled_by("ReplicaSet"),
                    OwnerReference(api_version="apps/v1", kind="DaemonSet", name="logs", uid="logs"),
                )
            },
            None,
            id="a DaemonSet that is not the controller, which tenants may set",
        ),
    ],
)
def test_protection(fields: dict[str, Any], reason: str | None) -> None:
    found = protection_of(pod("web", **fields))
    assert (found.reason if found else None) == reason


def test_terminated_pods_are_neither_evicted_nor_reported() -> None:
    found = run(HARD, pod("done", phase="Succeeded"), pod("web"), done="9Gi", web="1Gi")
    plan = found.read(LOW)
    assert (names([plan.evict]), plan.kept) == (["web"], ())


def test_pods_that_do_not_use_the_resource_are_kept() -> None:
    """Their eviction would free nothing."""
    usage = by_key(used("idle", root="5Gi"), used("web", memory="1Gi"))
    found = NodeRun(HARD, pod("idle", priority=-10), pod("starting", phase="Pending"), pod("web"), usage=usage)
    plan = found.read(LOW)
    assert found.evicted == [("web", 1)]
    assert [(each.pod.name, each.reason) for each in plan.kept] == [
        ("starting", reasons.USAGE_UNKNOWN),
        ("idle", reasons.USAGE_UNKNOWN),
    ]
    found.remove("web")
    found.read(LOW)
    assert found.read(LOW).reason == reasons.NO_EVICTABLE_POD


def test_pid_pressure_needs_no_process_counts() -> None:
    """Not all container runtimes report them. The kubelet then goes by priority, too."""
    spec = NodePressurePolicySpec(eviction_hard={"pid.available": "10%"})
    found = NodeRun(spec, pod("low", priority=-1), pod("high"), usage=by_key(used("high"), used("low")))
    found.read({"pid.available": ("1k", "32k")})
    assert found.evicted == [("low", 1)]


# Grace periods.


@pytest.mark.parametrize(
    ("fields", "own", "hard", "expected"),
    [
        pytest.param({}, 45, False, 45, id="soft: that of the pod"),
        pytest.param({}, None, False, 30, id="soft: the default of pods"),
        pytest.param({}, 0, False, 1, id="soft: never 0"),
        pytest.param({"eviction_max_pod_grace_period": 20}, 45, False, 20, id="soft: the policy's maximum"),
        pytest.param({"eviction_max_pod_grace_period": 20}, 10, False, 10, id="soft: less than the maximum"),
        pytest.param({"eviction_max_pod_grace_period": 20}, 45, True, 1, id="hard: 1, as the kubelet"),
        pytest.param({"hard_eviction_max_pod_grace_period": 15}, 45, True, 15, id="hard: the policy's maximum"),
        pytest.param({"hard_eviction_max_pod_grace_period": 15}, 5, True, 5, id="hard: less than the maximum"),
        pytest.param({"hard_eviction_max_pod_grace_period": 15}, 0, True, 1, id="hard: never 0"),
    ],
)
def test_grace_period(fields: dict[str, int], own: int | None, hard: bool, expected: int) -> None:
    spec = replace(HARD if hard else SOFT, **fields)
    found = run(spec, pod("web", spec={"termination_grace_period": own}), web="1Gi")
    found.read(LOW)
    assert found.evicted == [("web", expected)]


# Refusals and deletion.


def test_alternatives_use_more_than_they_request() -> None:
    """If a PodDisruptionBudget refuses the first pod, only pods that cause the pressure as well are tried."""
    pods = [pod(name, requests={"memory": "1Gi"}) for name in ("a", "b", "c", "d")]
    plan = run(HARD, *pods, a="3Gi", b="2Gi", c="1Gi", d="500Mi").read(LOW)
    assert (names([plan.evict]), names(plan.alternatives)) == (["a"], ["b"])


def test_all_pods_that_exceed_their_requests_are_alternatives() -> None:
    """The budget of one app may refuse any number of pods."""
    found = [f"app-{number:02}" for number in range(30)]
    plan = run(HARD, *(pod(name) for name in found), **dict.fromkeys(found, "100Mi")).read(LOW)
    assert [*names([plan.evict]), *names(plan.alternatives)] == found


DELETING = replace(HARD, delete_after="2m")


@pytest.mark.parametrize(
    ("spec", "since", "how"),
    [
        pytest.param(DELETING, None, "Evict", id="not refused yet"),
        pytest.param(DELETING, START - 109, "Evict", id="refused for less"),
        pytest.param(DELETING, START - 110, "Delete", id="refused for deleteAfter"),
        pytest.param(HARD, START - 3600, "Evict", id="no deleteAfter"),
        pytest.param(replace(SOFT, delete_after="2m"), START - 3600, "Evict", id="soft thresholds never delete"),
    ],
)
def test_deletion_after_refused_evictions(spec: NodePressurePolicySpec, since: float | None, how: str) -> None:
    found = run(spec, pod("web"), web="1Gi")
    if since is not None:
        found.state = NodeState(first_met={f"hard/{MEMORY}": since}).refused("uid-web", since)
    plan = found.read(LOW)
    assert plan.evict is not None
    assert plan.evict.how == how


def test_refusals_are_forgotten_with_the_pod_and_with_the_pressure() -> None:
    found = run(HARD, pod("web"), pod("api"), web="2Gi", api="1Gi")
    found.read(LOW)
    found.state = found.state.refused("uid-web", found.now).refused("uid-api", found.now)
    found.remove("web")
    found.read(LOW)
    assert found.state.refused_since.keys() == {"uid-api"}
    found.read({MEMORY: "2Gi"})
    assert found.state == NodeState(last_met={"MemoryPressure": found.now})


def test_pod_that_was_not_evicted_after_all_is_forgotten_with_the_pressure() -> None:
    """Otherwise its UID would remain in the annotation for as long as it runs."""
    found = run(HARD, pod("web"), web="2Gi")
    found.read(LOW)
    assert found.state.evicting == "uid-web"
    found.hold({MEMORY: "2Gi"}, 310)
    assert found.state == NO_STATE


def test_evicted_pod_is_remembered_until_it_has_left_even_without_pressure() -> None:
    """If the pressure returns meanwhile, no second pod is evicted."""
    found = run(HARD, pod("web"), pod("api"), web="2Gi", api="1Gi")
    found.read(LOW)
    found.pods[0] = replace(found.pods[0], deleted=found.now + 40)
    assert found.read({MEMORY: "2Gi"}).reason == reasons.TRANSITION_PERIOD
    assert found.state.evicting == "uid-web"
    assert found.read(LOW).reason == reasons.EVICTING_POD


@pytest.mark.parametrize(
    ("remaining", "shortens"), [pytest.param(31, False, id="soon"), pytest.param(31.1, True, id="too late")]
)
def test_hard_threshold_shortens_the_termination_of_the_leaving_pod(remaining: float, shortens: bool) -> None:
    found = run(HARD, pod("web"), pod("api"), web="2Gi", api="1Gi")
    found.state = NodeState(first_met={f"hard/{MEMORY}": START}, evicting="uid-web")
    found.pods[0] = replace(found.pods[0], deleted=found.now + 10 + remaining)
    plan = found.read(LOW)
    assert plan.reason == (reasons.HARD_THRESHOLD_MET if shortens else reasons.EVICTING_POD)
    if shortens:
        assert plan.evict is not None
        assert (plan.evict.pod.name, plan.evict.how, plan.evict.grace_period) == ("web", "Evict", 1)


def test_soft_threshold_does_not_shorten_the_termination_of_the_leaving_pod() -> None:
    soft = NodePressurePolicySpec(eviction_soft={MEMORY: "1Gi"}, eviction_soft_grace_period={MEMORY: "0s"})
    found = run(soft, pod("web"), web="2Gi")
    found.state = NodeState(first_met={f"soft/{MEMORY}": START}, evicting="uid-web")
    found.pods[0] = replace(found.pods[0], deleted=found.now + 3600)
    assert found.read(LOW).reason == reasons.EVICTING_POD


# One pod at a time.


@pytest.mark.parametrize(
    ("after", "reason"),
    [pytest.param(29.9, reasons.EVICTING_POD, id="cleanup"), pytest.param(30, reasons.HARD_THRESHOLD_MET, id="stuck")],
)
def test_next_eviction_waits_for_the_cleanup_of_a_terminating_pod(after: float, reason: str) -> None:
    """30 seconds after its grace period, as by the kubelet."""
    found = run(HARD, pod("stuck", deleted=START + 10 - after), pod("web"), web="1Gi")
    found.state = NodeState(first_met={f"hard/{MEMORY}": START}, evicting="uid-stuck")
    assert found.read(LOW).reason == reason


def test_next_eviction_waits_for_the_pod_that_is_being_evicted() -> None:
    found = run(HARD, pod("web"), pod("api"), web="2Gi", api="1Gi")
    found.evicting = found.pods[0]
    plan = found.read(LOW)
    assert (plan.evict, plan.reason, plan.conditions) == (None, reasons.EVICTING_POD, {"MemoryPressure"})
    found.remove("web")
    assert found.read(LOW).reason == reasons.HARD_THRESHOLD_MET


@pytest.mark.parametrize(
    ("spec", "ends", "amount", "reason"),
    [
        pytest.param(SOFT, 600, "2Gi", reasons.EVICTING_POD, id="soft: enough, even if it takes long"),
        pytest.param(SOFT, 601, "2Gi", reasons.SOFT_THRESHOLD_MET, id="soft: enough, but it takes too long"),
        pytest.param(SOFT, 600, "100Mi", reasons.SOFT_THRESHOLD_MET, id="soft: not enough"),
        pytest.param(SOFT, -29.9, "2Gi", reasons.EVICTING_POD, id="soft: it ended, and its memory is being freed"),
        pytest.param(SOFT, -30, "2Gi", reasons.SOFT_THRESHOLD_MET, id="soft: it ended, and freed nothing"),
        pytest.param(HARD, 1, "2Gi", reasons.EVICTING_POD, id="hard: enough, at once"),
        pytest.param(HARD, 20, "2Gi", reasons.HARD_THRESHOLD_MET, id="hard: enough, but too late"),
    ],
)
def test_eviction_waits_for_terminating_pods_that_free_enough(
    spec: NodePressurePolicySpec, ends: float, amount: str, reason: str
) -> None:
    drained = pod("drained", deleted=START + 10 + ends)
    assert run(spec, drained, pod("web"), drained=amount, web="1Gi").read(LOW).reason == reason


@pytest.mark.parametrize(
    ("age", "reason"),
    [
        pytest.param(0, reasons.KUBELET_EVICTS, id="now"),
        pytest.param(59, reasons.KUBELET_EVICTS, id="less than a minute ago"),
        pytest.param(60, reasons.HARD_THRESHOLD_MET, id="a minute ago"),
        pytest.param(-5, reasons.KUBELET_EVICTS, id="the kubelet's clock is a little fast"),
        pytest.param(-3600, reasons.HARD_THRESHOLD_MET, id="the kubelet's clock is an hour fast"),
    ],
)
def test_no_pod_is_evicted_for_a_minute_after_the_kubelet_evicted_one(age: int, reason: str, golden: Golden) -> None:
    old = failed("old", START - 1000)
    plan = run(HARD, failed("killed", START + 10 - age), old, pod("web"), web="1Gi").read(LOW)
    assert plan.reason == reason
    if reason == reasons.KUBELET_EVICTS:
        golden(plan.message)


FOR_PRESSURE = PodCondition(type="DisruptionTarget", status="True", reason="TerminationByKubelet", since=START)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"conditions": (FOR_PRESSURE,)}, reasons.KUBELET_EVICTS, id="node pressure"),
        pytest.param(
            {"conditions": (PodCondition(type="Ready", status="False", since=START),)},
            reasons.HARD_THRESHOLD_MET,
            id="its own limit of an emptyDir volume or of ephemeral storage",
        ),
        pytest.param({"conditions": (), "created": START}, reasons.HARD_THRESHOLD_MET, id="not admitted"),
        pytest.param(
            {"conditions": (replace(FOR_PRESSURE, reason="EvictionByEvictionAPI"),)},
            reasons.HARD_THRESHOLD_MET,
            id="its own limit, while another component evicted it",
        ),
        pytest.param(
            {"conditions": (replace(FOR_PRESSURE, status="False"),)}, reasons.HARD_THRESHOLD_MET, id="not disrupted"
        ),
        pytest.param(
            {"conditions": (FOR_PRESSURE,), "reason": "Preempting"},
            reasons.HARD_THRESHOLD_MET,
            id="preempted by the kubelet for a critical pod",
        ),
        pytest.param(
            {"conditions": (FOR_PRESSURE,), "reason": "Terminated"},
            reasons.HARD_THRESHOLD_MET,
            id="terminated because the node shut down",
        ),
    ],
)
def test_only_kubelet_evictions_for_node_pressure_stop_evictions(fields: dict[str, Any], reason: str) -> None:
    """A tenant can make the kubelet evict a pod every few seconds: ``emptyDir.sizeLimit`` or a storage limit is enough.

    For these, the kubelet sets no condition (``evictPod(..., nil, nil)`` in the ``*LimitEviction`` functions).
    """
    assert run(HARD, failed("killed", None, **fields), pod("web"), web="1Gi").read(LOW).reason == reason


# Several thresholds.


def test_hard_thresholds_come_before_soft_ones() -> None:
    """The kubelet puts the memory first even if only a soft threshold of it is met."""
    spec = replace(SOFT, eviction_hard={NODEFS: "10%"})
    usage = by_key(used("memory", memory="2Gi", root="1Gi"), used("disk", memory="1Gi", root="2Gi"))
    plan = NodeRun(spec, pod("memory"), pod("disk"), usage=usage).read({MEMORY: "500Mi", NODEFS: ("1Gi", "100Gi")})
    assert (names([plan.evict]), plan.reason) == (["disk"], reasons.HARD_THRESHOLD_MET)
    assert plan.conditions == {"MemoryPressure", "DiskPressure"}


def test_next_threshold_is_relieved_if_no_pod_uses_the_resource_of_the_first() -> None:
    spec = NodePressurePolicySpec(eviction_hard={MEMORY: "1Gi", INODES: "5%"})
    found = NodeRun(spec, pod("web"), usage=by_key(used("web", root_inodes=100)))
    plan = found.read({MEMORY: "500Mi", INODES: ("1", "1000")})
    assert plan.evict is not None
    assert plan.evict.threshold.signal == INODES


# Readings.


@pytest.mark.parametrize("state", [NO_STATE, NodeState(last_met={"MemoryPressure": START})])
def test_failed_reading_is_the_reason(state: NodeState) -> None:
    failure = ReadFailure(node="n1", reason=reasons.STATS_FORBIDDEN, message="403", at=START)
    plan = NodePlanner(HARD).plan(NodeView(node(), (), failure, state=state), now=START)
    assert (plan.reason, plan.message, plan.state, plan.evict) == (reasons.STATS_FORBIDDEN, "403", state, None)


def test_node_without_pressure_has_an_empty_plan() -> None:
    plan = NodePlanner(HARD).plan(NodeView(node(), (pod("web"),), measured({MEMORY: "2Gi"}, now=START)), now=START)
    assert (plan.reason, plan.state, plan.conditions, plan.met) == ("", NO_STATE, frozenset(), ())


def test_pods_are_decoded_only_if_a_pod_must_leave() -> None:
    def fail() -> Any:
        raise AssertionError("the pods of the measurement were decoded")

    soft = replace(SOFT, eviction_soft_grace_period={MEMORY: "1m"})
    plan = NodePlanner(soft).plan(NodeView(node(), (pod("web"),), measured(LOW, now=START, pods=fail)), now=START)
    assert plan.reason == reasons.SOFT_GRACE_PERIOD


@pytest.mark.parametrize(
    ("available", "needed"),
    [
        pytest.param("900Mi", True, id="met"),
        pytest.param("1200Mi", True, id="the reclaim may be missing"),
        pytest.param("2Gi", False, id="not met"),
    ],
)
def test_pods_of_a_measurement_are_needed_at_thresholds(available: str, needed: bool) -> None:
    planner = NodePlanner(replace(HARD, eviction_minimum_reclaim={MEMORY: "500Mi"}))
    assert planner.pods_needed(measured({MEMORY: available}, now=START)) is needed


@pytest.mark.parametrize(
    ("percent", "needed"),
    [
        pytest.param(None, False, id="not reported"),
        pytest.param(9.9, False, id="below"),
        pytest.param(10.0, True, id="at the threshold"),
    ],
)
def test_pods_of_a_measurement_are_needed_at_a_memory_stall(percent: float | None, needed: bool) -> None:
    planner = NodePlanner(NodePressurePolicySpec(memory_stall=MemoryStall(percent=10.0)))
    stall = None if percent is None else stalled(percent)
    assert planner.pods_needed(measured({MEMORY: "1Mi"}, now=START, memory_stall=stall)) is needed


def test_only_memory_is_read_if_nothing_else_has_a_threshold() -> None:
    assert NodePlanner(replace(HARD, memory_stall=MemoryStall(percent=1.0))).only_memory
    assert not NodePlanner(replace(HARD, eviction_soft={NODEFS: "0%"}, eviction_hard={NODEFS: "5%"})).only_memory


# Failed pods.


def failed(name: str, at: float | None = START, owner: str = "web", **fields: Any) -> Pod:
    conditions = () if at is None else (replace(FOR_PRESSURE, since=at),)
    owners = (OwnerReference(api_version="apps/v1", kind="ReplicaSet", name=owner, uid=owner, controller=True),)
    return pod(name, **{"phase": "Failed", "reason": "Evicted", "conditions": conditions, "owners": owners} | fields)


@pytest.mark.parametrize(
    ("cleanup", "age", "expected"),
    [
        pytest.param(FailedPodCleanup(), 3600, ["a", "b"], id="the most recent one of the owner is kept"),
        pytest.param(FailedPodCleanup(keep_per_owner=2), 3600, ["a"], id="two are kept"),
        pytest.param(FailedPodCleanup(keep_per_owner=0), 3600, ["a", "b", "c"], id="none is kept"),
        pytest.param(FailedPodCleanup(keep_per_owner=0), 3599, ["a", "b"], id="too young"),
        pytest.param(FailedPodCleanup(after="2h"), 3600, [], id="all too young"),
    ],
)
def test_failed_pods_are_deleted_by_age_and_owner(cleanup: FailedPodCleanup, age: float, expected: list[str]) -> None:
    pods = [failed("c", START), failed("a", START - 20), failed("b", START - 10), failed("other", START, owner="api")]
    found = failed_pods_to_delete(pods, cleanup, now=START + age)
    assert [each.name for each in found if each.name != "other"] == expected


def test_owners_of_another_group_or_with_another_uid_are_others() -> None:
    def owned_by(name: str, **fields: str) -> Pod:
        reference = {"api_version": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "1"} | fields
        return failed(name, owners=(OwnerReference(**reference, controller=True),))

    pods = [owned_by("a"), owned_by("b", api_version="apps.kruise.io/v1beta1"), owned_by("c", uid="2")]
    assert failed_pods_to_delete(pods, FailedPodCleanup(), now=START + 1e6) == []


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(failed("x", phase="Running"), id="running"),
        pytest.param(failed("x", reason="Error"), id="failed by itself"),
        pytest.param(failed("x", phase="Succeeded"), id="succeeded"),
        pytest.param(failed("x", deleted=START), id="terminating"),
        pytest.param(failed("x", None), id="no time is known"),
    ],
)
def test_other_pods_are_not_deleted(kept: Pod) -> None:
    cleanup = FailedPodCleanup(after="0s", keep_per_owner=0)
    assert failed_pods_to_delete([kept], cleanup, now=START + 1e6) == []


def test_pod_without_a_controller_is_the_only_one_of_its_owner() -> None:
    pods = [failed("a", owners=()), failed("b", owners=())]
    assert failed_pods_to_delete(pods, FailedPodCleanup(), now=START + 1e6) == []
    assert failed_pods_to_delete(pods, FailedPodCleanup(keep_per_owner=0), now=START + 1e6) == pods


def test_time_of_the_eviction() -> None:
    ready = PodCondition(type="Ready", status="False", since=START + 5)
    target = PodCondition(type="DisruptionTarget", status="True", since=START)
    assert evicted_at(failed("x", None, conditions=(ready, target))) == START
    assert evicted_at(failed("x", None, conditions=(ready,))) == START + 5
    assert evicted_at(failed("x", None, started=START + 1, created=START)) == START + 1
    assert evicted_at(failed("x", None, created=START)) == START
    assert is_evicted(failed("x"))

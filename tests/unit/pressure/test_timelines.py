"""Nodes over time: the kubelet's ``eviction_manager_test.go`` (v1.36), and scenarios of OpenShift 3.11's manual.

Docstrings that begin with a number, such as 21.2.9, cite a section of that manual.

The kubelet's tests that do not apply:

- ``TestMemoryPressure_VerifyPodStatus`` and its likes: the eviction API sets the status of the pod.
- ``TestAdmitUnderNodeConditions``: a taint keeps pods away from the node.
- ``TestNodeReclaimFuncs``: only the kubelet can delete images and dead containers. It does so at its own thresholds.
- ``TestStorageLimitEvictions``, ``TestManagerWithLocalStorageCapacityIsolationOpen``: the kubelet enforces limits.
- ``TestUpdateMemcgThreshold``: notifications of the kernel.

The kubelet's tests have gaps of up to 20 minutes between two readings. Here, nodes are read every 10 seconds.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from msgspec.structs import replace

from tests.fixtures.golden import Golden
from tests.unit.pressure.nodes import (
    IMAGEFS,
    INODES,
    MEMORY,
    NODEFS,
    PID,
    NodeRun,
    by_key,
    names,
    node,
    pod,
    stalled,
    used,
)
from trimtab.api import reasons
from trimtab.api.node_pressure_policy import MemoryStall, NodePressurePolicySpec
from trimtab.kube.objects import OwnerReference
from trimtab.kube.objects.pod import PodCondition

LOW, DEFAULT, HIGH = -1, 0, 1


def policy(**fields: Any) -> NodePressurePolicySpec:
    return NodePressurePolicySpec(**fields)


def soft_and_hard(signal: str, soft: str, hard: str) -> NodePressurePolicySpec:
    """Return the thresholds of the kubelet's tests: two minutes of grace, at most 5 s for the pod."""
    return policy(
        eviction_hard={signal: hard},
        eviction_soft={signal: soft},
        eviction_soft_grace_period={signal: "2m"},
        eviction_max_pod_grace_period=5,
    )


MEMORY_PODS = (
    pod("guaranteed-low-priority-high-usage", requests={"memory": "1Gi"}, priority=LOW),
    pod("burstable-below-requests", requests={"memory": "100Mi"}),
    pod("burstable-above-requests", requests={"memory": "100Mi"}),
    pod("best-effort-high-priority-high-usage", priority=HIGH),
    pod("best-effort-low-priority-low-usage", priority=LOW),
)
MEMORY_USAGE = by_key(
    *(
        used(each.name, memory=amount)
        for each, amount in zip(MEMORY_PODS, ("900Mi", "50Mi", "400Mi", "400Mi", "100Mi"), strict=True)
    )
)
DISK_NAMES = (
    ("low-priority-high-usage", LOW),
    ("below-requests", DEFAULT),
    ("above-requests", DEFAULT),
    ("high-priority-high-usage", HIGH),
    ("low-priority-low-usage", LOW),
)
DISK_PODS = tuple(pod(name, priority=priority) for name, priority in DISK_NAMES)
DISK_USAGE = by_key(
    used("low-priority-high-usage", root="900Mi"),
    used("below-requests", logs="50Mi"),
    used("above-requests", root="400Mi"),
    used("high-priority-high-usage", local_volumes="400Mi"),
    used("low-priority-low-usage", root="100Mi"),
)
INODE_USAGE = by_key(
    *(
        used(name, root_inodes=amount)
        for (name, _), amount in zip(DISK_NAMES, ("900Mi", "50Mi", "400Mi", "400Mi", "100Mi"), strict=True)
    )
)
PID_PODS = (
    pod("high-priority-high-usage", priority=HIGH),
    pod("default-priority-low-usage"),
    pod("default-priority-medium-usage"),
    pod("low-priority-high-usage", priority=LOW),
    pod("low-priority-low-usage", priority=LOW),
)
PID_USAGE = by_key(
    *(used(each.name, processes=count) for each, count in zip(PID_PODS, (900, 100, 400, 600, 50), strict=True))
)


@pytest.mark.parametrize(
    ("signal", "thresholds", "values", "pods", "usage", "dedicated", "condition", "evicted"),
    [
        pytest.param(
            MEMORY,
            ("2Gi", "1Gi"),
            ("3Gi", "1500Mi", "500Mi"),
            MEMORY_PODS,
            MEMORY_USAGE,
            False,
            "MemoryPressure",
            "best-effort-low-priority-low-usage",
            id="TestMemoryPressure",
        ),
        pytest.param(
            PID,
            ("1500", "1200"),
            ("1700", "1300", "800"),
            PID_PODS,
            PID_USAGE,
            False,
            "PIDPressure",
            "low-priority-high-usage",
            id="TestPIDPressure",
        ),
        pytest.param(
            NODEFS,
            ("2Gi", "1Gi"),
            ("16Gi", "1.5Gi", "750Mi"),
            DISK_PODS,
            DISK_USAGE,
            False,
            "DiskPressure",
            "low-priority-high-usage",
            id="TestDiskPressureNodeFs: no image fs",
        ),
        pytest.param(
            IMAGEFS,
            ("2Gi", "1Gi"),
            ("16Gi", "1.5Gi", "750Mi"),
            DISK_PODS,
            DISK_USAGE,
            True,
            "DiskPressure",
            "low-priority-high-usage",
            id="TestDiskPressureNodeFs: image fs",
        ),
        pytest.param(
            "containerfs.available",
            ("2Gi", "1Gi"),
            ("16Gi", "1.5Gi", "750Mi"),
            DISK_PODS,
            DISK_USAGE,
            True,
            "DiskPressure",
            "low-priority-high-usage",
            id="TestDiskPressureNodeFs: container fs",
        ),
        pytest.param(
            INODES,
            ("2Mi", "1Mi"),
            ("3Mi", "1.5Mi", "0.5Mi"),
            DISK_PODS,
            INODE_USAGE,
            False,
            "DiskPressure",
            "low-priority-high-usage",
            id="TestInodePressureFsInodes: no image fs",
        ),
        pytest.param(
            "imagefs.inodesFree",
            ("2Mi", "1Mi"),
            ("3Mi", "1.5Mi", "0.5Mi"),
            DISK_PODS,
            INODE_USAGE,
            True,
            "DiskPressure",
            "low-priority-high-usage",
            id="TestInodePressureFsInodes: image fs",
        ),
    ],
)
def test_soft_and_hard_thresholds_as_in_the_kubelet(
    signal: str,
    thresholds: tuple[str, str],
    values: tuple[str, str, str],
    pods: tuple[Any, ...],
    usage: dict[str, Any],
    dedicated: bool,
    condition: str,
    evicted: str,
) -> None:
    run = NodeRun(soft_and_hard(signal, *thresholds), *pods, usage=usage)
    run.dedicated_image_fs = dedicated
    fine, soft, hard = ({signal: value} for value in values)

    assert run.read(fine).conditions == frozenset()

    # The soft threshold is met: pressure, and no eviction within the grace period.
    plan = run.hold(soft, 120)
    assert (plan.conditions, run.evicted, plan.reason) == ({condition}, [], reasons.SOFT_GRACE_PERIOD)
    plan = run.read(soft)
    assert (plan.conditions, run.evicted, plan.reason) == ({condition}, [(evicted, 5)], reasons.SOFT_THRESHOLD_MET)
    run.evicted.clear()

    # No pressure any more: the condition ends after the transition period.
    assert run.hold(fine, 300).conditions == {condition}
    plan = run.read(fine)
    assert (plan.conditions, plan.reason, bool(plan.state)) == (frozenset(), "", False)

    # The hard threshold is met: an eviction at once.
    plan = run.read(hard)
    assert (plan.conditions, run.evicted, plan.reason) == ({condition}, [(evicted, 1)], reasons.HARD_THRESHOLD_MET)
    run.evicted.clear()

    # Exactly at the soft threshold again: no eviction, but the condition stays for the transition period.
    plan = run.read({signal: thresholds[0]}, after=60)
    assert (plan.conditions, run.evicted, plan.reason) == ({condition}, [], reasons.TRANSITION_PERIOD)
    assert run.hold(fine, 290).conditions == {condition}
    assert run.read(fine).conditions == frozenset()
    assert run.evicted == []


def test_minimum_reclaim_as_in_the_kubelet() -> None:
    """``TestMinReclaim``."""
    run = NodeRun(
        policy(eviction_hard={MEMORY: "1Gi"}, eviction_minimum_reclaim={MEMORY: "500Mi"}),
        *MEMORY_PODS,
        usage=MEMORY_USAGE,
    )
    best_effort = "best-effort-low-priority-low-usage"
    assert run.read({MEMORY: "2Gi"}).conditions == frozenset()
    run.read({MEMORY: "500Mi"})
    assert run.evicted == [(best_effort, 1)]
    run.read({MEMORY: "1.2Gi"})  # above the threshold, but not by the reclaim
    assert run.evicted == [(best_effort, 1)] * 2
    plan = run.read({MEMORY: "2Gi"})
    assert (plan.conditions, len(run.evicted)) == ({"MemoryPressure"}, 2)
    run.hold({MEMORY: "2Gi"}, 290)
    assert run.read({MEMORY: "2Gi"}).conditions == frozenset()
    assert run.read({MEMORY: "1.2Gi"}).conditions == frozenset()
    assert len(run.evicted) == 2


def test_allocatable_memory_as_in_the_kubelet() -> None:
    """``TestAllocatableMemoryPressure``."""
    signal = "allocatableMemory.available"
    run = NodeRun(policy(eviction_hard={signal: "1Gi"}), *MEMORY_PODS, usage=MEMORY_USAGE)
    assert run.read({signal: "4Gi"}).conditions == frozenset()
    run.pods.append(pod("guaranteed-high-2", requests={"memory": "1Gi"}))
    run.usage |= by_key(used("guaranteed-high-2", memory="1Gi"))
    plan = run.read({signal: "500Mi"})
    assert (plan.conditions, run.evicted) == ({"MemoryPressure"}, [("best-effort-low-priority-low-usage", 1)])
    run.remove("guaranteed-high-2")
    assert run.hold({signal: "2Gi"}, 300).conditions == {"MemoryPressure"}
    assert run.read({signal: "2Gi"}).conditions == frozenset()
    assert len(run.evicted) == 1


def test_static_and_critical_pods_are_not_evicted_as_in_the_kubelet() -> None:
    """``TestStaticCriticalPodsAreNotEvicted``. In the API, a static pod is a mirror pod."""
    mirror = {"kubernetes.io/config.mirror": "hash", "kubernetes.io/config.source": "file"}
    critical = pod("critical", requests={"memory": "100Mi"}, priority=2_000_000_000, namespace="kube-system")
    static = pod("static", annotations=mirror, namespace="kube-system")
    run = NodeRun(soft_and_hard(MEMORY, "2Gi", "1Gi"), critical, static)
    run.usage = {
        "kube-system/critical": used("critical", memory="800Mi"),
        "kube-system/static": used("static", memory="1Gi"),
    }
    run.hold({MEMORY: "1500Mi"}, 120)
    plan = run.read({MEMORY: "1500Mi"})
    assert (plan.evict, plan.reason, plan.conditions) == (None, reasons.NO_EVICTABLE_POD, {"MemoryPressure"})
    assert [(each.pod.name, each.reason) for each in plan.kept] == [
        ("critical", reasons.CRITICAL_POD),
        ("static", reasons.MIRROR_POD),
    ]
    assert run.read({MEMORY: "500Mi"}).reason == reasons.NO_EVICTABLE_POD
    assert run.evicted == []


# The scenarios of OpenShift 3.11's manual, chapter 21 "Handling Out of Resource Errors".


def test_example_scenario(golden: Golden) -> None:
    """21.2.9: a node of 10Gi; below 10% for 30 s, or below 5% at once."""
    run = NodeRun(
        policy(eviction_soft={MEMORY: "10%"}, eviction_soft_grace_period={MEMORY: "30s"}, eviction_hard={MEMORY: "5%"}),
        pod("web", requests={"memory": "1Gi"}),
        pod("batch", requests={"memory": "1Gi"}),
        usage=by_key(used("web", memory="1023Mi"), used("batch", memory="3Gi")),
    )

    def read(available: str) -> Any:
        return run.read({MEMORY: (available, "10Gi")})

    assert read("1Gi").met == ()
    for available in ("1000Mi", "900Mi", "800Mi"):
        assert read(available).reason == reasons.SOFT_GRACE_PERIOD
    plan = read("700Mi")
    assert run.evicted == [("batch", 30)]
    assert plan.kept == ()
    assert names(plan.alternatives) == []  # web does not use more than it requests
    golden(plan.message)
    run.remove("batch")
    assert read("500Mi").reason == reasons.WAITING_FOR_STATS
    assert read("400Mi").reason == reasons.HARD_THRESHOLD_MET
    assert run.evicted == [("batch", 30), ("web", 1)]


def test_oscillation_around_a_soft_threshold() -> None:
    """21.2.3: a node that crosses the threshold again and again has a constant condition, and evicts no pod."""
    run = NodeRun(soft_and_hard(MEMORY, "2Gi", "1Gi"), *MEMORY_PODS, usage=MEMORY_USAGE)
    shown = []
    for _ in range(30):
        shown.append(run.hold({MEMORY: "1900Mi"}, 60).conditions)
        shown.append(run.hold({MEMORY: "2100Mi"}, 60).conditions)
    assert set(shown) == {frozenset({"MemoryPressure"})}
    assert run.evicted == []
    run.hold({MEMORY: "2100Mi"}, 230)
    assert run.read({MEMORY: "2100Mi"}).conditions == {"MemoryPressure"}
    assert run.read({MEMORY: "2100Mi"}).conditions == frozenset()


def test_state_is_written_only_at_transitions() -> None:
    """An hour of oscillation changes the annotation once per crossing, not once per reading."""
    run = NodeRun(soft_and_hard(MEMORY, "2Gi", "1Gi"), *MEMORY_PODS, usage=MEMORY_USAGE)
    states = []
    for values in ({MEMORY: "1900Mi"}, {MEMORY: "2100Mi"}) * 10:
        for _ in range(6):
            run.read(values)
            states.append(run.state)
    changes = sum(one is not other for one, other in itertools.pairwise(states))
    assert changes == 19


def test_pods_are_evicted_one_at_a_time_until_the_signal_is_above_its_threshold() -> None:
    """21.2.2: the node evicts until the signal has recovered; a pod has its grace period."""
    pods = [pod(name, spec={"termination_grace_period": 40}) for name in ("a", "b", "c")]
    run = NodeRun(
        policy(eviction_soft={MEMORY: "2Gi"}, eviction_soft_grace_period={MEMORY: "30s"}),
        *pods,
        usage=by_key(used("a", memory="3Gi"), used("b", memory="2Gi"), used("c", memory="1Gi")),
    )
    run.hold({MEMORY: "500Mi"}, 40)
    assert run.evicted == [("a", 40)]
    run.pods[0] = replace(run.pods[0], deleted=run.now + 40)
    for _ in range(4):
        assert run.read({MEMORY: "500Mi"}).reason == reasons.EVICTING_POD
    run.remove("a")
    assert run.read({MEMORY: "1Gi"}).reason == reasons.WAITING_FOR_STATS  # these stats may include the pod
    assert run.read({MEMORY: "1Gi"}).reason == reasons.SOFT_THRESHOLD_MET
    assert run.evicted == [("a", 40), ("b", 40)]
    run.remove("b")
    assert run.read({MEMORY: "3Gi"}).reason == reasons.TRANSITION_PERIOD
    assert len(run.evicted) == 2


def test_disk_pressure_on_the_file_system_of_images() -> None:
    """21.2.1, 21.2.7: nodefs has logs and volumes, imagefs has writable layers."""
    run = NodeRun(
        policy(eviction_hard={NODEFS: "10%", IMAGEFS: "15%"}),
        pod("layers"),
        pod("volumes"),
        usage=by_key(used("layers", root="9Gi", logs="1Gi"), used("volumes", root="1Gi", local_volumes="5Gi")),
    )
    run.dedicated_image_fs = True
    plan = run.read({NODEFS: ("50Gi", "100Gi"), IMAGEFS: ("14Gi", "100Gi")})
    assert (names([plan.evict]), plan.conditions) == (["layers"], {"DiskPressure"})
    run.remove("layers")
    run.read({NODEFS: ("9Gi", "100Gi"), IMAGEFS: ("50Gi", "100Gi")})
    plan = run.read({NODEFS: ("9Gi", "100Gi"), IMAGEFS: ("50Gi", "100Gi")})
    assert names([plan.evict]) == ["volumes"]


def test_inode_starvation_with_the_ranking_by_qos() -> None:
    """21.2.7: the pod of the lowest QoS class is evicted first, although it uses fewest inodes."""
    run = NodeRun(
        policy(eviction_hard={INODES: "5%"}, ranking="QoS"),
        pod("guaranteed", spec={"qos": "Guaranteed"}),
        pod("best-effort"),
        usage=by_key(used("guaranteed", root_inodes=900_000), used("best-effort", root_inodes=1_000)),
    )
    assert names([run.read({INODES: ("10000", "1000000")}).evict]) == ["best-effort"]


def test_guaranteed_pods_are_evicted_last() -> None:
    """21.2.7: a Guaranteed pod is evicted only if no other pod remains."""
    run = NodeRun(
        policy(eviction_hard={MEMORY: "1Gi"}, ranking="QoS"),
        pod("guaranteed", requests={"memory": "8Gi"}, spec={"qos": "Guaranteed"}),
        pod("burstable", requests={"memory": "1Gi"}, spec={"qos": "Burstable"}),
        usage=by_key(used("guaranteed", memory="7Gi"), used("burstable", memory="500Mi")),
    )
    run.read({MEMORY: "500Mi"})
    run.remove("burstable")
    run.hold({MEMORY: "500Mi"}, 20)
    assert run.evicted == [("burstable", 1), ("guaranteed", 1)]


def test_pods_of_daemon_sets_are_not_evicted() -> None:
    """21.4.1: a DaemonSet would recreate its pod on the same node at once."""
    owner = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="logs", uid="logs", controller=True)
    run = NodeRun(
        policy(eviction_hard={MEMORY: "1Gi"}),
        pod("agent", owners=(owner,)),
        pod("web", requests={"memory": "4Gi"}),
        usage=by_key(used("agent", memory="5Gi"), used("web", memory="1Gi")),
    )
    plan = run.read({MEMORY: "500Mi"})
    assert run.evicted == [("web", 1)]
    (kept,) = plan.kept
    assert (kept.pod.name, kept.reason) == ("agent", reasons.DAEMON_SET_POD)
    assert "DaemonSet logs" in kept.message


def test_nothing_is_evicted_while_the_kubelet_evicts() -> None:
    """The kubelet shows its condition, and has evicted a pod: both evict nothing more for a minute after the pod."""
    run = NodeRun(soft_and_hard(MEMORY, "2Gi", "1Gi"), *MEMORY_PODS, usage=MEMORY_USAGE)
    run.hold({MEMORY: "1500Mi"}, 120)
    run.node = node("Ready", "MemoryPressure")
    assert run.read({MEMORY: "900Mi"}).reason == reasons.KUBELET_EVICTS
    run.node = node("Ready", "DiskPressure")  # another resource
    killed = pod("killed", phase="Failed", reason="Evicted")
    since = run.now
    target = PodCondition(type="DisruptionTarget", status="True", reason="TerminationByKubelet", since=since)
    run.pods.append(replace(killed, conditions=(target,)))
    for _ in range(5):
        assert run.read({MEMORY: "900Mi"}).reason == reasons.KUBELET_EVICTS
    assert run.evicted == []
    assert run.read({MEMORY: "900Mi"}).reason == reasons.HARD_THRESHOLD_MET
    assert run.now - since == 60


def test_pods_that_exceed_their_own_storage_limits_do_not_stop_evictions() -> None:
    """A tenant's pod fills its emptyDir volume beyond its limit, is evicted by the kubelet, and is recreated."""
    run = NodeRun(soft_and_hard(MEMORY, "2Gi", "1Gi"), *MEMORY_PODS, usage=MEMORY_USAGE)
    for number in range(12):
        ready = PodCondition(type="Ready", status="False", since=run.now)
        run.pods.append(pod(f"filler-{number}", phase="Failed", reason="Evicted", conditions=(ready,)))
        run.read({MEMORY: "3Gi"})
    run.read({MEMORY: "900Mi"})
    assert len(run.evicted) == 1


def test_other_resources_are_relieved_while_the_kubelet_evicts_for_one() -> None:
    run = NodeRun(
        policy(eviction_hard={MEMORY: "1Gi", NODEFS: "10%"}),
        pod("web"),
        usage=by_key(used("web", memory="1Gi", root="1Gi")),
    )
    run.node = node("MemoryPressure")
    plan = run.read({MEMORY: "500Mi", NODEFS: ("1Gi", "100Gi")})
    assert plan.evict is not None
    assert plan.evict.threshold.signal == NODEFS


# Further: forecast, memory stall, unknown values, restarts.


def ramp(run: NodeRun, start: int, step: int, count: int) -> list[str]:
    """Read values that fall by a step in MiB every 10 s, and return the reasons."""
    return [run.read({MEMORY: f"{start - step * each}Mi"}).reason for each in range(count)]


FORECAST = policy(
    eviction_soft={MEMORY: "4Gi"},
    eviction_soft_grace_period={MEMORY: "5m"},
    eviction_forecast="2m",
    kubelet_eviction_hard={MEMORY: "500Mi"},
)


def test_forecast_shortens_the_grace_period() -> None:
    """At 25 MiB/s, the kubelet would kill a pod before the grace period has passed."""
    run = NodeRun(FORECAST, *MEMORY_PODS, usage=MEMORY_USAGE)
    found = ramp(run, 4500, 250, 8)
    assert found == [""] * 2 + [reasons.SOFT_GRACE_PERIOD] * 2 + [reasons.PRESSURE_FORECAST] * 4
    first = found.index(reasons.PRESSURE_FORECAST)
    available = 4500 - 250 * first
    assert (available - 500) / 25 <= 120 < (available + 250 - 500) / 25
    assert run.evicted[0] == ("best-effort-low-priority-low-usage", 30)
    plan = run.read({MEMORY: "2500Mi"})
    trend = plan.trends[MEMORY]
    assert trend.per_second == pytest.approx(-25 * 1024 * 1024)


@pytest.mark.parametrize("change", [pytest.param(0, id="constant"), pytest.param(-100, id="rising")])
def test_forecast_evicts_nothing_unless_the_signal_approaches_the_threshold(change: int) -> None:
    run = NodeRun(FORECAST, *MEMORY_PODS, usage=MEMORY_USAGE)
    assert set(ramp(run, 2000, change, 10)) == {reasons.SOFT_GRACE_PERIOD}


def test_slow_approach_waits_for_the_grace_period() -> None:
    run = NodeRun(FORECAST, *MEMORY_PODS, usage=MEMORY_USAGE)
    found = ramp(run, 4000, 10, 31)  # 1 MiB/s: an hour
    assert found == [reasons.SOFT_GRACE_PERIOD] * 30 + [reasons.SOFT_THRESHOLD_MET]


def test_trends_are_only_reported_without_a_forecast() -> None:
    run = NodeRun(soft_and_hard(MEMORY, "4Gi", "500Mi"), *MEMORY_PODS, usage=MEMORY_USAGE)
    assert set(ramp(run, 4000, 250, 10)) == {reasons.SOFT_GRACE_PERIOD}
    trend = run.read({MEMORY: "1500Mi"}).trends[MEMORY]
    assert trend.seconds_to == pytest.approx(40, abs=1)


def test_memory_stall_evicts_before_the_memory_is_used_up(golden: Golden) -> None:
    run = NodeRun(
        policy(memory_stall=MemoryStall(percent=10.0, window="avg10", grace_period="20s")),
        *MEMORY_PODS,
        usage=MEMORY_USAGE,
    )
    run.read({MEMORY: "8Gi"}, memory_stall=stalled(2.0))
    for _ in range(2):
        plan = run.read({MEMORY: "8Gi"}, memory_stall=stalled(15.5))
        assert (plan.reason, plan.conditions) == (reasons.SOFT_GRACE_PERIOD, {"MemoryPressure"})
    plan = run.read({MEMORY: "8Gi"}, memory_stall=stalled(15.5))
    assert run.evicted == [("best-effort-low-priority-low-usage", 30)]
    golden(plan.message)


def test_memory_stall_is_averaged_again_before_the_next_eviction() -> None:
    """The average of 60 seconds includes the stall that the evicted pod caused."""
    stall = MemoryStall(percent=10.0, window="avg60", grace_period="20s")
    run = NodeRun(policy(memory_stall=stall), *MEMORY_PODS, usage=MEMORY_USAGE)

    def read() -> str:
        return run.read({MEMORY: "8Gi"}, memory_stall=stalled(30.0)).reason

    assert [read() for _ in range(3)] == [reasons.SOFT_GRACE_PERIOD] * 2 + [reasons.SOFT_THRESHOLD_MET]
    run.remove("best-effort-low-priority-low-usage")
    assert [read() for _ in range(8)] == [reasons.WAITING_FOR_STATS] * 7 + [reasons.SOFT_THRESHOLD_MET]


def test_forecast_uses_no_values_from_before_an_eviction() -> None:
    """The evicted pod was the one that used more and more."""
    run = NodeRun(FORECAST, *MEMORY_PODS, usage=MEMORY_USAGE)
    ramp(run, 4500, 250, 5)
    ((first, _),) = run.evicted
    run.remove(first)
    assert run.read({MEMORY: "3400Mi"}).reason == reasons.SOFT_GRACE_PERIOD
    assert set(ramp(run, 3400, 0, 6)) == {reasons.SOFT_GRACE_PERIOD}
    assert reasons.PRESSURE_FORECAST in ramp(run, 3400, 300, 5)


def test_signal_that_is_no_longer_in_the_stats_keeps_its_condition() -> None:
    run = NodeRun(
        policy(eviction_hard={MEMORY: "1Gi", NODEFS: "10%"}), pod("web"), usage=by_key(used("web", root="1Gi"))
    )
    run.read({MEMORY: "5Gi", NODEFS: ("1Gi", "100Gi")})
    problem = "stale: not measured for 60s"
    for _ in range(60):
        plan = run.read({MEMORY: "5Gi"}, problems={NODEFS: problem})
        assert (plan.reason, plan.conditions) == (reasons.STATS_UNKNOWN, {"DiskPressure"})
        assert plan.message == f"{NODEFS}: {problem}"
    assert run.read({MEMORY: "5Gi", NODEFS: ("50Gi", "100Gi")}).reason == reasons.TRANSITION_PERIOD


def test_node_without_a_current_measurement_keeps_its_state() -> None:
    """Nothing is evicted from it, and its grace period goes on."""
    run = NodeRun(soft_and_hard(MEMORY, "2Gi", "1Gi"), *MEMORY_PODS, usage=MEMORY_USAGE)
    run.read({MEMORY: "1500Mi"})
    before = run.state
    for _ in range(60):
        plan = run.unread()
        assert (plan.evict, plan.reason, plan.conditions) == (None, reasons.STATS_UNKNOWN, {"MemoryPressure"})
        assert run.state is before
    assert run.read({MEMORY: "1500Mi"}).reason == reasons.SOFT_THRESHOLD_MET


def test_stats_that_are_not_measured_again_evict_one_pod_only() -> None:
    run = NodeRun(policy(eviction_hard={MEMORY: "1Gi"}), *MEMORY_PODS, usage=MEMORY_USAGE)
    run.read({MEMORY: "500Mi"}, at=run.now)
    frozen = run.now
    for _ in range(5):
        assert run.read({MEMORY: "500Mi"}, at=frozen - 10).reason == reasons.WAITING_FOR_STATS
    assert len(run.evicted) == 1


def test_reading_that_is_not_repeated_is_not_current() -> None:
    run = NodeRun(policy(eviction_hard={MEMORY: "1Gi"}), *MEMORY_PODS, usage=MEMORY_USAGE)
    assert run.read({MEMORY: "500Mi"}, read_at=run.now - 25).reason == reasons.STATS_STALE
    assert run.evicted == []
    assert run.read({MEMORY: "500Mi"}, read_at=run.now - 15).reason == reasons.HARD_THRESHOLD_MET


def test_restart_during_an_eviction_evicts_no_second_pod() -> None:
    run = NodeRun(soft_and_hard(MEMORY, "2Gi", "1Gi"), *MEMORY_PODS, usage=MEMORY_USAGE)
    run.hold({MEMORY: "1500Mi"}, 60)
    run.restart()  # the grace period goes on
    run.hold({MEMORY: "1500Mi"}, 70)
    assert len(run.evicted) == 1
    leaving = run.pods[4]
    run.pods[4] = replace(leaving, deleted=run.now + 5)
    run.restart()
    for _ in range(3):
        assert run.read({MEMORY: "1500Mi"}).reason == reasons.EVICTING_POD
    run.remove(leaving.name)
    run.restart()
    assert run.read({MEMORY: "1500Mi"}).reason == reasons.WAITING_FOR_STATS
    run.restart()
    assert run.read({MEMORY: "1500Mi"}).reason == reasons.SOFT_THRESHOLD_MET
    assert len(run.evicted) == 2


def test_pod_that_stays_terminating_does_not_block_the_node() -> None:
    """Its containers have ended 30 s after its grace period at the latest, even if a finalizer keeps the object."""
    run = NodeRun(policy(eviction_hard={MEMORY: "1Gi"}), *MEMORY_PODS, usage=MEMORY_USAGE)
    run.read({MEMORY: "500Mi"})
    run.pods[4] = replace(run.pods[4], deleted=run.now + 1)
    found = [run.read({MEMORY: "500Mi"}).reason for _ in range(4)]
    assert found == [reasons.EVICTING_POD] * 3 + [reasons.HARD_THRESHOLD_MET]
    assert [name for name, _ in run.evicted] == [
        "best-effort-low-priority-low-usage",
        "burstable-above-requests",
    ]

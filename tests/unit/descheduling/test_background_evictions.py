"""Pods that somebody else moves (KubeVirt): on their way out, neither evicted again nor counted as staying."""

from __future__ import annotations

import msgspec
import pytest

from tests.builders import PodBuilder, budget, node, pod
from tests.fixtures.golden import Golden
from tests.unit.descheduling.planning import NOW, built, kept, moves, node_taints, plan, policy, utilization
from trimtab.api import reasons
from trimtab.api.descheduler_policy import Cooldown
from trimtab.api.descheduler_status import EvictionMemory
from trimtab.api.plan import Evict
from trimtab.api.reasons import EVACUATION_FAILED, EVICTION_IN_BACKGROUND
from trimtab.api.scalars import to_time
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.memory.assess import assess
from trimtab.descheduling.memory.cycle_memory import CycleMemory
from trimtab.descheduling.planning import planner
from trimtab.disruption.background_evictions import IN_PROGRESS, REQUEST_EVICT_ONLY
from trimtab.disruption.outcome import REFUSED, STARTED, Outcome

TAINTED = node("n1").taint("x")


def machine(name: str = "vm-1", on: str = "n1", *, going: bool = False, owner: str = "") -> PodBuilder:
    marks = {REQUEST_EVICT_ONLY: "", **({IN_PROGRESS: ""} if going else {})}
    virt = pod(name, "shop").labels(app="vm").owned_by("VirtualMachineInstance", owner or name)
    return virt.annotations(marks).uid(f"uid-{name}").on(on).ready()


def test_background_eviction_ignores_pdb():
    """KubeVirt gives each machine a budget that allows nothing; its webhook answers before budgets are looked at."""
    guard = budget("vm", namespace="shop").selecting(app="vm").allowing(0, healthy=1, expected=1)
    assert moves(plan([TAINTED, node("n2"), machine(), guard], node_taints())) == [("vm-1", "n1", "n2")]


def test_single_vm_pod_is_evicted_in_background_with_surge():
    made = plan([TAINTED, node("n2"), machine()], node_taints(), singleReplica="Surge")
    assert [(action.pod, action.how) for action in made.actions] == [("vm-1", "Evict")]


def test_background_eviction_needs_capacity_for_both_pods():
    apart = machine().anti_affinity("zone", labelSelector={"matchLabels": {"app": "vm"}})
    objects = [node("n1").taint("x").labels(zone="a"), node("n2").labels(zone="a"), apart]
    assert kept(plan(objects, node_taints())) == {"vm-1": reasons.NO_PLACE}


def test_pod_evicted_in_background_is_not_evicted_again():
    made = plan([TAINTED, node("n2"), machine(going=True)], node_taints())
    assert (moves(made), kept(made)) == ([], {})


def test_pod_evicted_in_background_counts_as_terminating():
    full = [node("n1").allocatable(cpu="4"), node("n2").allocatable(cpu="4")]
    pods = [machine(f"vm-{i}").cpu("1") for i in range(3)]
    level = utilization({"cpu": 30}, {"cpu": 60})
    assert len(plan([*full, *pods], level).actions) == 1
    leaving = [machine("vm-0", going=True).cpu("1"), *pods[1:]]
    assert moves(plan([*full, *leaving], level)) == []


@pytest.mark.parametrize(
    ("limits", "planned"),
    [
        pytest.param({}, 2, id="none"),
        pytest.param({"perCycle": 2}, 1, id="of the cycle"),
        pytest.param({"perNode": 1}, 0, id="of the node"),
        pytest.param({"perNamespace": 2}, 1, id="of the namespace"),
        pytest.param({"perOwner": 1}, 2, id="of another owner"),
    ],
)
def test_pod_evicted_in_background_counts_for_limits(limits, planned):
    objects = [TAINTED, node("n2"), machine("vm-0", going=True), machine("vm-1"), machine("vm-2")]
    made = plan(objects, node_taints(), limits=limits)
    assert len(made.actions) == planned
    assert set(kept(made).values()) <= {reasons.LIMIT_REACHED}
    assert all(" or in progress" in each.message for each in made.kept)


def test_terminated_vm_pod_is_ignored():
    ended = machine("vm-0", going=True).phase("Succeeded")
    assert len(plan([TAINTED, node("n2"), ended, machine()], node_taints(), limits={"perCycle": 1}).actions) == 1


ACTION = Evict(
    policy="default",
    strategy="RemovePodsViolatingNodeTaints",
    namespace="shop",
    pod="vm-1",
    node="n1",
    target="n2",
    reason=reasons.NODE_TAINTS_VIOLATED,
    message="",
    uid="uid-vm-1",
    owner="VirtualMachineInstance/vm-1",
)
COOLDOWN = Cooldown()


def begun(snapshot: Snapshot) -> CycleMemory:
    memory = CycleMemory(EvictionMemory(), COOLDOWN)
    memory.begin([ACTION], snapshot, now=NOW)
    return memory


def taken_over(snapshot: Snapshot, *, at: float = NOW) -> EvictionMemory:
    memory = begun(snapshot)
    memory.ended(Outcome(action=ACTION, result=STARTED, reason=EVICTION_IN_BACKGROUND, message="", at=at))
    return msgspec.json.decode(msgspec.json.encode(memory.memory), type=EvictionMemory)  # as a restart finds it


def test_background_eviction_is_known_after_restart():
    snapshot = Snapshot(built([TAINTED, node("n2"), machine()]))
    memory = taken_over(snapshot)
    wanted = [policy(node_taints())]
    assert not planner.plan_evictions(snapshot, wanted, now=NOW + 500, memories={"default": memory}).actions
    assert planner.plan_evictions(snapshot, wanted, now=NOW + 601, memories={"default": memory}).actions


def test_background_eviction_fails_after_ten_minutes(golden: Golden):
    snapshot = Snapshot(built([TAINTED, node("n2"), machine()]))
    memory = assess(taken_over(snapshot), snapshot, COOLDOWN, now=NOW + 601)
    [setback] = memory.setbacks
    assert (setback.trouble, setback.kind, setback.failures) == ("Stayed", "VirtualMachineInstance", 1)
    made = planner.plan_evictions(snapshot, [policy(node_taints())], now=NOW + 601, memories={"default": memory})
    assert kept(made) == {"vm-1": reasons.COOLING_DOWN}
    golden(made.kept[0].message)


def test_annotated_background_eviction_is_awaited():
    going = Snapshot(built([TAINTED, node("n2"), machine(going=True)]))
    memory = assess(taken_over(going), going, COOLDOWN, now=NOW + 5000)
    assert (len(memory.watched), memory.setbacks) == (1, ())


def test_failed_evacuation_counts_as_failure():
    snapshot = Snapshot(built([TAINTED, node("n2"), machine()]))
    memory = begun(snapshot)
    memory.ended(Outcome(action=ACTION, result=REFUSED, reason=EVACUATION_FAILED, message="", at=NOW + 60))
    assert [setback.trouble for setback in memory.memory.setbacks] == ["Stayed"]
    assert memory.memory.watched == ()


def test_outcome_during_recheck_is_settled_afterwards():
    snapshot = Snapshot(built([TAINTED, node("n2"), machine()]))
    memory = begun(snapshot)
    with memory.lent_to_thread():
        memory.ended(Outcome(action=ACTION, result=STARTED, reason=EVICTION_IN_BACKGROUND, message="", at=NOW + 9))
        lent = memory.assess(snapshot, now=NOW + 10)
        assert not lent.watched[0].background
    [watched] = memory.memory.watched
    assert (watched.background, watched.time) == (True, to_time(NOW + 9))

"""Single replicas under `singleReplica: Surge`: which go with a rollout, which stay, and what holds their place."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import PodBuilder, budget, node, pod, pvc
from tests.fixtures.golden import Golden
from tests.unit.cluster.test_rollouts import deployment, rolling, settled
from tests.unit.descheduling.planning import NOW, built, kept, life_time, messages, moves, node_taints, policy
from tests.unit.descheduling.test_invariants import every_move_watched, policies, worlds
from trimtab.api import reasons
from trimtab.api.descheduler_policy import Cooldown, DeschedulerPolicy
from trimtab.api.descheduler_status import EvictionMemory
from trimtab.api.plan import SURGE, Plan
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.rollouts import Rollouts, rollouts_of
from trimtab.descheduling.memory.assess import assess
from trimtab.descheduling.memory.cycle_memory import CycleMemory
from trimtab.descheduling.planning import planner
from trimtab.descheduling.planning.recheck import recheck_move
from trimtab.disruption.background_evictions import REQUEST_EVICT_ONLY
from trimtab.disruption.outcome import EVICTED, STARTED, Outcome
from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

TAINTED = node("n1").taint("x")
EVICT = "descheduler.alpha.kubernetes.io/evict"


def replica(
    name: str = "web-1", on: str = "n1", *, of: str = "web", template: str = "1a2b", **labels: str
) -> PodBuilder:
    labelled = pod(name, "shop").labels({"app": of, "pod-template-hash": template, **labels})
    return labelled.owned_by("ReplicaSet", f"{of}-{template}").uid(f"uid-{name}").on(on).ready()


ONE = settled(deployment())


def plan(
    things: Sequence[Any],
    *deployments: dict[str, Any],
    strategies: dict[str, Any] | None = None,
    rollouts: Rollouts | None = None,
    **spec: Any,
) -> Plan:
    wanted = policy(strategies or node_taints(), **{"singleReplica": "Surge", **spec})
    known = rollouts or rollouts_of(deployments or (ONE,))
    return planner.plan_evictions(Snapshot(built(things)), [wanted], now=NOW, rollouts=known)


def ways(plan: Plan) -> list[tuple[str, str]]:
    return [(action.pod, action.how) for action in plan.actions]


def test_single_replica_is_restarted_by_rollout():
    [action] = plan([TAINTED, node("n2"), replica()]).actions
    assert (action.pod, action.node, action.target, action.how) == ("web-1", "n1", "n2", SURGE)
    assert action.deployment == "web"


def test_single_replica_is_evicted_by_default():
    assert ways(plan([TAINTED, node("n2"), replica()], singleReplica="Evict")) == [("web-1", "Evict")]


def test_plan_shows_how_only_for_surges():
    [shown] = plan([TAINTED, node("n2"), replica()]).document()["actions"]  # type: ignore[misc]
    assert shown["how"] == "Surge"
    [shown] = plan([TAINTED, node("n2"), replica()], singleReplica="Evict").document()["actions"]  # type: ignore[misc]
    assert "how" not in shown


@pytest.mark.parametrize(
    "things",
    [
        pytest.param([replica(), replica("web-2", "n2")], id="of two pods"),
        pytest.param([replica().condition("Ready", "False")], id="a pod that is not ready"),
        pytest.param([replica().merge(metadata={"ownerReferences": []}).owned_by("Job", "sum")], id="a Job's"),
    ],
)
def test_several_replicas_are_evicted(things):
    assert ("web-1", "Evict") in ways(plan([TAINTED, node("n2"), *things]))


@pytest.mark.parametrize(
    ("things", "deployments", "reason", "words"),
    [
        pytest.param(
            [replica()], [deployment(strategy={"type": "Recreate"})], reasons.CANNOT_SURGE, "Recreate", id="Recreate"
        ),
        pytest.param(
            [replica()],
            [deployment(strategy=rolling(0, 1))],
            reasons.CANNOT_SURGE,
            "maxSurge 0 and maxUnavailable 1 of 1 pod",
            id="no surge",
        ),
        pytest.param(
            [replica()],
            [deployment(strategy=rolling(1, 1))],
            reasons.CANNOT_SURGE,
            "maxSurge 1 and maxUnavailable 1",
            id="the old pod may be deleted first",
        ),
        pytest.param([replica()], [deployment(paused=True)], reasons.CANNOT_SURGE, "is paused", id="paused"),
        pytest.param(
            [replica()], [deployment(replicas=3)], reasons.ROLLOUT_IN_PROGRESS, "1 of 3 pods are new", id="to grow"
        ),
        pytest.param([replica()], [deployment(replicas=0)], reasons.OWNER_NOT_SETTLED, "wants 0 pods", id="to end"),
        pytest.param(
            [replica()],
            [settled(deployment(), observedGeneration=0)],
            reasons.ROLLOUT_IN_PROGRESS,
            "generation is 1",
            id="changed",
        ),
        pytest.param(
            [replica()],
            [settled(deployment(), replicas=2)],
            reasons.ROLLOUT_IN_PROGRESS,
            "1 of 1 pods are new, 1 available, 2 in all",
            id="a rollout by its numbers",
        ),
        pytest.param(
            [replica(), replica("web-2", "n2", template="9z").phase("Pending")],
            [],
            reasons.ROLLOUT_IN_PROGRESS,
            "a pod of another template, web-2",
            id="a rollout by its pods",
        ),
        pytest.param([replica()], [deployment("db")], reasons.CANNOT_SURGE, "web was not found", id="unknown"),
        pytest.param(
            [replica().labels(app="other")], [], reasons.CANNOT_SURGE, "does not select the pod", id="another's pod"
        ),
        pytest.param(
            [replica().claim("data"), pvc("data").access("ReadWriteOnce")],
            [],
            reasons.CANNOT_SURGE,
            "claim data has ReadWriteOnce",
            id="a claim of one node",
        ),
        pytest.param(
            [replica().volume("gcePersistentDisk", pdName="d")],
            [],
            reasons.CANNOT_SURGE,
            "a volume of kind gcePersistentDisk",
            id="a disk of one node",
        ),
        pytest.param(
            [replica().merge(metadata={"ownerReferences": []}).owned_by("StatefulSet", "db")],
            [],
            reasons.CANNOT_SURGE,
            "StatefulSet db, and only a Deployment",
            id="a StatefulSet",
        ),
        pytest.param(
            [replica().merge(metadata={"ownerReferences": []}).owned_by("ReplicaSet", "alone")],
            [],
            reasons.CANNOT_SURGE,
            "ReplicaSet alone, and only a Deployment",
            id="a bare ReplicaSet",
        ),
    ],
)
def test_pod_that_cannot_surge_is_kept(things, deployments, reason, words):
    known = [each if "status" in each else settled(each) for each in deployments]
    made = plan([TAINTED, node("n2"), *things], *known)
    assert moves(made) == []
    assert kept(made)["web-1"] == reason
    assert words in messages(made)["web-1"]


def test_unreadable_deployments_keep_single_replicas(golden: Golden):
    made = plan([TAINTED, node("n2"), replica()], rollouts=Rollouts(problem="Deployments cannot be listed: forbidden"))
    golden("\n".join(f"{key}: {text}" for key, text in messages(made).items()))
    assert kept(made) == {"web-1": reasons.CANNOT_SURGE}


def test_without_deployments_pods_decide_about_surge():
    objects = built([TAINTED, node("n2"), replica()])
    made = planner.plan_evictions(Snapshot(objects), [policy(node_taints(), singleReplica="Surge")], now=NOW)
    assert ways(made) == [("web-1", SURGE)]


def test_evict_annotation_allows_eviction_if_surge_is_impossible():
    willing = replica().annotations({EVICT: "true"})
    recreated = settled(deployment(strategy={"type": "Recreate"}))
    assert ways(plan([TAINTED, node("n2"), willing], recreated)) == [("web-1", "Evict")]
    assert ways(plan([TAINTED, node("n2"), willing])) == [("web-1", SURGE)]
    under_way = settled(deployment(), replicas=2)
    assert kept(plan([TAINTED, node("n2"), willing], under_way)) == {"web-1": reasons.ROLLOUT_IN_PROGRESS}


def test_exhausted_pdb_does_not_block_surge():
    guard = budget("web", namespace="shop").selecting(app="web").allowing(0, healthy=1, expected=1)
    assert ways(plan([TAINTED, node("n2"), replica(), guard])) == [("web-1", SURGE)]
    held = plan([TAINTED, node("n2"), replica(), guard], singleReplica="Evict")
    assert kept(held) == {"web-1": reasons.DISRUPTION_BUDGET}


def test_min_replicas_does_not_block_surge():
    spec: dict[str, Any] = {"protections": {"minReplicas": 2}}
    assert ways(plan([TAINTED, node("n2"), replica()], **spec)) == [("web-1", SURGE)]
    held = plan([TAINTED, node("n2"), replica()], singleReplica="Evict", **spec)
    assert kept(held) == {"web-1": reasons.TOO_FEW_REPLICAS}


def test_limits_count_rollouts():
    objects = [TAINTED, node("n2"), replica(), replica("db-1", of="db")]
    made = plan(objects, ONE, settled(deployment("db")), limits={"perCycle": 1})
    assert len(made.actions) == 1
    assert set(kept(made).values()) == {reasons.LIMIT_REACHED}


def test_surge_needs_capacity_for_both_pods():
    apart = replica().anti_affinity("zone", labelSelector={"matchLabels": {"app": "web"}})
    one_zone = [node("n1").taint("x").labels(zone="a"), node("n2").labels(zone="a")]
    made = plan([*one_zone, apart])
    assert kept(made) == {"web-1": reasons.NO_PLACE}
    assert moves(plan([*one_zone, apart], singleReplica="Evict")) == [("web-1", "n1", "n2")]
    assert moves(plan([*one_zone, node("n3").labels(zone="b"), apart])) == [("web-1", "n1", "n3")]


def test_surge_on_same_node_needs_capacity_for_both_pods():
    old = replica().cpu("3").created("2026-11-19T12:00:00Z")
    strategies = life_time(60)
    assert kept(plan([node("n1"), old], strategies=strategies)) == {"web-1": reasons.NO_PLACE}
    assert moves(plan([node("n1"), node("n2"), old], strategies=strategies)) == [("web-1", "n1", "n2")]
    assert moves(plan([node("n1").allocatable(cpu="8"), old], strategies=strategies)) == [("web-1", "n1", "n1")]


def test_later_moves_do_not_use_capacity_of_surging_pods(golden: Golden):
    first, second = node("n1").taint("x").allocatable(pods="1"), node("n2").taint("y").allocatable(pods="2")
    single = replica().tolerates("y", effect="NoSchedule")  # goes first, by name
    later = replica("z-1", "n2", of="z").tolerates("x", effect="NoSchedule")
    objects = [first, second, node("n3").allocatable(pods="1"), single, later, replica("z-2", "n3", of="z")]
    assert moves(plan(objects, singleReplica="Evict")) == [("web-1", "n1", "n2"), ("z-1", "n2", "n1")]
    made = plan(objects)
    assert moves(made) == [("web-1", "n1", "n2")]
    assert kept(made) == {"z-1": reasons.NO_PLACE}
    golden(messages(made)["z-1"])


def test_a_plan_does_not_depend_on_the_order_of_its_input():
    objects = [TAINTED, node("n2"), node("n3"), *(replica(f"a{i}-1", of=f"a{i}") for i in range(5))]
    known = [settled(deployment(f"a{i}")) for i in range(5)]
    assert plan(objects, *known) == plan(objects[::-1], *known[::-1])


def test_surge_is_rechecked_for_single_replica(golden: Golden):
    objects = [TAINTED, node("n2"), replica()]
    wanted = policy(node_taints(), singleReplica="Surge")
    [action] = plan(objects).actions
    assert recheck_move(Snapshot(built(objects)), wanted, action, NOW) is None
    scale_up = Snapshot(built([*objects, replica("web-2", "n2")]))
    refusal = recheck_move(scale_up, wanted, action, NOW)
    assert refusal is not None
    assert refusal.reason == reasons.PLAN_OUTDATED
    golden(refusal.message)
    rolled = Snapshot(built([*objects, replica("web-2", "n2", template="9z")]))
    refusal = recheck_move(rolled, wanted, action, NOW)
    assert refusal is not None
    assert refusal.reason == reasons.ROLLOUT_IN_PROGRESS


@pytest.mark.parametrize("home", ["n1", "n2"], ids=["to where it was", "to where it is not wanted either"])
def test_deployment_returning_to_node_is_restarted_at_most_three_times(home):
    """By a scheduler that knows better, say: the taint is one that it does not see."""
    remembered, restarts, now = EvictionMemory(), 0, NOW
    single = replica()
    made = None
    for cycle in range(100):
        second = node("n2").taint("x") if home == "n2" else node("n2")
        snapshot = Snapshot(built([TAINTED, second, node("n3"), single]))
        memory = CycleMemory(remembered, Cooldown())
        wanted = [policy(node_taints(), singleReplica="Surge")]
        known = memory.assess(snapshot, now=now)
        made = planner.plan_evictions(
            snapshot, wanted, now=now, memories={"default": known}, rollouts=rollouts_of([ONE])
        )
        memory.planned(made, snapshot, now=now)
        if made.actions:
            [action] = made.actions
            assert action.how == SURGE
            memory.begin([action], snapshot, now=now)
            memory.ended(Outcome(action, EVICTED, reasons.EVICTED, "", now))
            restarts += 1
            created = datetime.fromtimestamp(now + 1, tz=UTC).isoformat()
            single = replica(f"web-{cycle + 2}", home, template=f"t{cycle}").created(created)
        remembered = msgspec.json.decode(msgspec.json.encode(memory.memory), type=EvictionMemory)
        now += 3000.0
    assert restarts == 3
    assert made is not None
    assert set(kept(made).values()) == {reasons.GAVE_UP}


def test_rollout_with_pending_pod_counts_as_failure():
    """It goes on, and nothing is restarted again; but should somebody undo it, the next one waits."""
    world = [TAINTED, node("n2"), replica().created("2026-11-20T10:00:00Z")]
    [action] = plan(world).actions
    memory = CycleMemory(EvictionMemory(), Cooldown())
    memory.begin([action], Snapshot(built(world)), now=NOW)
    memory.ended(Outcome(action, STARTED, reasons.ROLLOUT_IN_PROGRESS, "", NOW))
    waiting = replica("web-2", "", template="9z").phase("Pending").created("2026-11-20T12:00:01Z")
    rolled = Snapshot(built([*world, waiting.condition("Ready", "False")]))
    assert len(assess(memory.memory, rolled, Cooldown(), now=NOW + 300).watched) == 1
    [setback] = assess(memory.memory, rolled, Cooldown(), now=NOW + 302).setbacks
    assert (setback.trouble, setback.kind, setback.name) == ("Pending", "Deployment", "web")


@pytest.mark.parametrize("pause", [300.0, 700.0, 3000.0], ids=["soon", "later", "much later"])
def test_undone_rollouts_are_repeated_at_most_three_times(pause):
    """By who keeps it as a repository says, or rolls back what is not done in time: then the old pod stays for good."""
    remembered, restarts, now = EvictionMemory(), 0, NOW
    snapshot = Snapshot(built([TAINTED, node("n2"), replica().created("2026-11-20T10:00:00Z")]))
    wanted = [policy(node_taints(), singleReplica="Surge")]
    made = None
    for _ in range(100):
        memory = CycleMemory(remembered, Cooldown())
        known = memory.assess(snapshot, now=now)
        made = planner.plan_evictions(
            snapshot, wanted, now=now, memories={"default": known}, rollouts=rollouts_of([ONE])
        )
        memory.planned(made, snapshot, now=now)
        if made.actions:
            [action] = made.actions
            memory.begin([action], snapshot, now=now)
            memory.sent(action, snapshot)
            memory.ended(Outcome(action, STARTED, reasons.ROLLOUT_IN_PROGRESS, "", now + 60))
            restarts += 1
        remembered = msgspec.json.decode(msgspec.json.encode(memory.memory), type=EvictionMemory)
        now += pause
    assert restarts == 3
    assert made is not None
    assert kept(made) == {"web-1": reasons.GAVE_UP}
    assert [setback.trouble for setback in remembered.setbacks] == ["Stayed"]


def test_progressing_rollout_is_awaited(golden: Golden):
    world = [TAINTED, node("n2"), replica().created("2026-11-20T10:00:00Z")]
    [action] = plan(world).actions
    memory = CycleMemory(EvictionMemory(), Cooldown())
    memory.begin([action], Snapshot(built(world)), now=NOW)
    memory.ended(Outcome(action, STARTED, reasons.ROLLOUT_IN_PROGRESS, "", NOW))
    starting = replica("web-2", "n2", template="9z").created("2026-11-20T12:00:01Z").condition("Ready", "False")
    rolled = Snapshot(built([*world, starting]))
    left = assess(memory.memory, rolled, Cooldown(), now=NOW + 7200)
    assert (len(left.watched), left.setbacks) == (1, ())
    badly = Snapshot(built([TAINTED, node("n2").taint("x"), node("n3"), *world[2:], starting]))
    made = planner.plan_evictions(
        badly,
        [policy(node_taints(), singleReplica="Surge")],
        now=NOW + 7200,
        memories={"default": left},
        rollouts=rollouts_of([ONE]),
    )
    assert kept(made) == dict.fromkeys(("web-1", "web-2"), reasons.ROLLOUT_IN_PROGRESS)
    undone = Snapshot(built(world))
    known = rollouts_of([ONE])
    wanted = [policy(node_taints(), singleReplica="Surge")]
    made = planner.plan_evictions(undone, wanted, now=NOW + 7200, memories={"default": left}, rollouts=known)
    assert kept(made) == {"web-1": reasons.ROLLOUT_IN_PROGRESS}
    golden(messages(made)["web-1"])
    assert [each.trouble for each in assess(left, undone, Cooldown(), now=NOW + 7200).setbacks] == ["Stayed"]


def of_deployments(world: Sequence[Any]) -> list[Any]:
    """The cluster with every ReplicaSet's pods as a Deployment makes them, most of them alone, and some machines."""
    made = []
    for each in world:
        if isinstance(each, Pod) and each.controller is not None and each.controller.kind == "ReplicaSet":
            alone = f"-{each.name}" if each.name[-1] in "02468" else ""
            owner = msgspec.structs.replace(each.controller, name=f"{each.controller.name}{alone}-1a2b")
            labels = FrozenMap({**each.labels, "pod-template-hash": "1a2b"})
            marks = FrozenMap({**each.annotations, **({REQUEST_EVICT_ONLY: ""} if each.name.endswith("3") else {})})
            made.append(msgspec.structs.replace(each, owners=(owner,), labels=labels, annotations=marks))
        else:
            made.append(each)
    return made


@st.composite
def surging(draw: st.DrawFn, name: str = "default") -> DeschedulerPolicy:
    wanted = draw(policies(name))
    return msgspec.structs.replace(wanted, spec=msgspec.structs.replace(wanted.spec, single_replica="Surge"))


@given(worlds().map(of_deployments), surging())
def test_every_surge_lowers_its_measure_only(world, wanted):
    with every_move_watched():
        planner.plan_evictions(Snapshot(world), [wanted], now=NOW)


@given(worlds().map(of_deployments), surging("a"), policies("b"), st.randoms(use_true_random=False))
def test_plans_with_rollouts_do_not_depend_on_the_order_of_their_input(world, first, second, chance):
    shuffled = list(world)
    chance.shuffle(shuffled)
    one = planner.plan_evictions(Snapshot(world), [first, second], now=NOW)
    other = planner.plan_evictions(Snapshot(shuffled), [second, first], now=NOW)
    assert msgspec.json.encode(one.document()) == msgspec.json.encode(other.document())


@given(worlds().map(of_deployments), surging())
def test_only_single_replicas_surge_with_reserved_capacity(world, wanted):
    """Only single replicas surge, each with room for its replacement that no later move of the plan uses."""
    snapshot = Snapshot(world)
    done = planner.plan_evictions(snapshot, [wanted], now=NOW)
    held: set[str] = set()
    with snapshot.fork():
        placer = Placer(snapshot)
        for action in done.actions:
            pod = snapshot.pods[action.key]
            if not action.target:
                snapshot.remove(pod)
                continue
            others = [each for each in world if isinstance(each, Pod) and each.owners == pod.owners]
            alive = [each for each in others if each.namespace == pod.namespace and not each.terminal]
            overlaps = action.how == SURGE or REQUEST_EVICT_ONLY in pod.annotations
            if action.how == SURGE:
                assert [each.name for each in alive if each.deleted is None] == [pod.name]
            if overlaps:
                assert placer.feasible(placer.replacement(pod))[snapshot.nodes.slot_of[action.target]]
            if overlaps or action.target != action.node:
                assert action.target not in held
            if overlaps:
                held.add(action.node)
            if action.target != action.node:
                placer.reserve(pod, snapshot.nodes.slot_of[action.target])


@given(worlds().map(of_deployments), surging())
def test_evictions_do_not_exceed_pdbs(world, wanted):
    snapshot = Snapshot(world)
    done = planner.plan_evictions(snapshot, [wanted], now=NOW)
    moved = [snapshot.pods[action.key] for action in done.actions if action.target and action.how != SURGE]
    evicted = [pod for pod in moved if REQUEST_EVICT_ONLY not in pod.annotations]
    for guard in snapshot.budgets.values():
        hit = [pod for pod in evicted if pod.namespace == guard.namespace and pod.labels["app"] == guard.name]
        assert len(hit) <= guard.disruptions_allowed

"""Invariants of scale-up plans: limits hold, and planned nodes fit their pods."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import HOSTNAME, ZONE, daemon_set, node, pod
from tests.strategies import examples
from tests.unit.autoscaling.scale_up_helpers import NOW, group, pending_pod, pending_pods
from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.groups import build_groups
from trimtab.autoscaling.scale_up import PlanInputs, ScaleUpPlan, scale_up
from trimtab.autoscaling.template import build_templates
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import KubeObject, MachineSet, Pod
from trimtab.placement.placer import Placer

SIZES = (("2", "4Gi"), ("4", "16Gi"), ("8", "8Gi"))
SPREADS = (
    lambda each: each.spread(HOSTNAME, max_skew=2),
    lambda each: each.spread(ZONE),
)
WISHES = (
    lambda each: each,
    lambda each: each.anti_affinity(HOSTNAME),
    lambda each: each.anti_affinity(HOSTNAME, labelSelector={"matchLabels": {"app": "b"}}),
    lambda each: each.anti_affinity(ZONE),
    lambda each: each.affinity(ZONE),
    lambda each: each.host_port(80),
    lambda each: each.node_selector({ZONE: "x"}),
    lambda each: each.tolerates("special"),
    lambda each: each.priority(5),
    lambda each: each.priority(-20),
)


@st.composite
def classes(draw: st.DrawFn, name: str, wishes: tuple[Any, ...]) -> list[Any]:
    """Pending pods with equal specs."""
    cpu, memory = draw(st.sampled_from(("100m", "700m", "1", "3"))), draw(st.sampled_from(("100Mi", "1Gi", "3Gi")))
    app, chosen = draw(st.sampled_from(("a", "b", name))), draw(st.lists(st.sampled_from(wishes), max_size=2))
    made = []
    for number in range(draw(st.integers(1, 7))):
        each = pending_pod(f"{name}-{number}", cpu, memory).labels(app=app)
        for preference in chosen:
            preference(each)
        made.append(each.build())
    spec, labels = made[0].spec, made[0].labels
    return [replace(each, spec=spec, labels=labels) for each in made]


@st.composite
def worlds(draw: st.DrawFn, wishes: tuple[Any, ...] = WISHES) -> list[KubeObject]:
    """Up to three groups, existing nodes, DaemonSets, and pods of several classes."""
    built: list[Any] = []
    for number in range(draw(st.integers(1, 3))):
        cpu, memory = draw(st.sampled_from(SIZES))
        size = draw(st.integers(0, 1))
        owner = group(f"g{number}", size=size, most=draw(st.integers(1, 6)), cpu=cpu, memory=memory)
        owner.node_labels({ZONE: draw(st.sampled_from("xy"))})
        if draw(st.integers(0, 3)) == 0:
            owner.node_taint("special")
        built.append(owner)
    for number in range(draw(st.integers(0, 2))):
        built.append(node(f"n{number}").zone(draw(st.sampled_from("xy"))).allocatable(cpu="2", memory="4Gi"))
        built.append(pod(f"old-{number}").labels(app="a").on(f"n{number}").cpu("1"))
        if draw(st.booleans()):
            built[-1].anti_affinity(draw(st.sampled_from((HOSTNAME, ZONE))))
    if draw(st.booleans()):
        built.append(daemon_set().of_pods(pod("agent").cpu("200m")))
    found = [each.build() for each in built]
    for number in range(draw(st.integers(1, 4))):
        found += draw(classes(f"c{number}", wishes))
    return found


LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "maxNodesTotal": st.integers(1, 8),
        "cores": st.fixed_dictionaries({"min": st.just(0), "max": st.integers(4, 40)}),
        "memory": st.fixed_dictionaries({"min": st.just(0), "max": st.integers(4, 80)}),
    },
)
SPECS = st.fixed_dictionaries(
    {"resourceLimits": LIMITS, "balanceSimilarNodeGroups": st.booleans()},
    optional={
        "expanders": st.lists(
            st.sampled_from(("LeastWaste", "MostPods", "LeastNodes", "Random")), unique=True, min_size=1, max_size=2
        )
    },
)


def plan(objects: list[KubeObject], spec: dict[str, Any]) -> ScaleUpPlan:
    return scale_up(Snapshot(objects), PlanInputs(msgspec.convert(spec, ClusterAutoscalerSpec), NOW))


@settings(max_examples=examples(150))
@given(worlds((*WISHES, *SPREADS)), SPECS)
def test_limits_of_groups_and_cluster_are_never_exceeded(objects: list[KubeObject], spec: dict[str, Any]) -> None:
    snapshot = Snapshot(objects)
    found = build_groups(snapshot)
    made = build_templates(snapshot, found.all, now=NOW).of_group
    planned = plan(objects, spec)

    added = Counter(each.group for each in planned.nodes)
    assert {action.group: action.to - action.from_ for action in planned.actions} == added
    assert all(action.to <= found.by_id[action.group].maximum for action in planned.actions)
    if planned.actions:
        there = [each for each in snapshot.nodes.at if each is not None]
        coming = [made[each.id].node for each in found.all for _ in range(each.upcoming)]
        every = [*there, *coming, *(made[each.group].node for each in planned.nodes)]
        limits = spec["resourceLimits"]
        assert len(every) <= limits.get("maxNodesTotal", len(every))
        for name, unit, amount in (("cores", 1000, "cpu"), ("memory", 1 << 30, "memory")):
            total = sum(each.capacity.get(amount, 0) for each in every)
            assert name not in limits or total <= limits[name]["max"] * unit


@settings(max_examples=examples(150))
@given(worlds((*WISHES, *SPREADS)), SPECS)
def test_every_pending_pod_is_reported_once(objects: list[KubeObject], spec: dict[str, Any]) -> None:
    snapshot, planned = Snapshot(objects), plan(objects, spec)
    pending = sorted(key for key, each in snapshot.pods.items() if not each.node)
    helped = [key for action in planned.actions for key in action.pods]
    kept = [f"{each.namespace}/{each.name}" for each in planned.kept if each.kind == "Pod"]
    assert sorted(helped + kept) == pending
    assert sorted(helped) == sorted(each.key for new in planned.nodes for each in new.pods)
    assert all(each.reason and each.message for each in planned.kept)
    assert all(new.pods for new in planned.nodes)


@settings(max_examples=examples(200))
@given(worlds(), SPECS)
def test_every_placed_pod_passes_all_filters(objects: list[KubeObject], spec: dict[str, Any]) -> None:
    """Check the plan again, in a snapshot with all planned nodes and pods."""
    planned, snapshot = plan(objects, spec), Snapshot(objects)
    made = build_templates(snapshot, build_groups(snapshot).all, now=NOW).of_group
    for each in planned.reserved:
        snapshot.put(each)
    for number, new in enumerate(planned.nodes):
        for obj in made[new.group].instance(f"new-{number}"):
            snapshot.put(obj)
        for each in new.pods:
            snapshot.move(each, f"new-{number}")
    placer = Placer(snapshot)
    other_nodes = any(
        each.reason == reasons.FITS_ON_UPCOMING_NODE for each in planned.kept
    )  # where, a plan does not say
    for number, new in enumerate(planned.nodes):
        for each in new.pods:
            if other_nodes and each.spec.affinity.pod_required:
                continue
            with snapshot.fork():
                lifted = placer.unbind(snapshot.pods[each.key])
                assert placer.feasible(lifted)[snapshot.nodes.slot_of[f"new-{number}"]]


@settings(max_examples=examples(100))
@given(worlds((*WISHES, *SPREADS)), SPECS, st.randoms(use_true_random=False))
def test_plan_does_not_depend_on_the_order_of_objects(
    objects: list[KubeObject], spec: dict[str, Any], chance: random.Random
) -> None:
    first = msgspec.json.encode((plan(objects, spec).actions, plan(objects, spec).kept))
    chance.shuffle(objects)
    again = plan(objects, spec)
    assert msgspec.json.encode((again.actions, again.kept)) == first


@given(st.integers(1, 30), st.sampled_from(("300m", "1", "3")), st.integers(0, 3), st.integers(1, 12))
def test_an_additional_node_never_increases_the_plan(number: int, cpu: str, there: int, most: int) -> None:
    def added(nodes: int) -> int:
        built = [group(most=most), *pending_pods(number, cpu=cpu), *(node(f"n{each}") for each in range(nodes))]
        return len(plan([each.build() for each in built], {}).nodes)

    assert added(there + 1) <= added(there)


@given(worlds(), st.integers(1, 20), st.sampled_from(("300m", "1", "3")))
def test_added_nodes_suffice_for_equal_pods(drawn: list[KubeObject], number: int, cpu: str) -> None:
    """With the planned sizes, all helped pods fit on upcoming nodes."""
    objects = [each for each in drawn if not (isinstance(each, Pod) and not each.node)]
    pods = [each.build() for each in pending_pods(number, cpu=cpu)]
    planned = plan([*objects, *pods], {})
    sizes = {action.group: action.to for action in planned.actions}
    grown = [
        replace(each, replicas=sizes.get(f"MachineSet/{each.key}", each.replicas))
        if isinstance(each, MachineSet)
        else each
        for each in objects
    ]
    again = plan([*grown, *pods], {})
    assert again.actions == ()
    helped = {key.partition("/")[2] for action in planned.actions for key in action.pods}
    coming = {each.name for each in again.kept if each.reason == "FitsOnUpcomingNode"}
    there = {each.name for each in planned.kept if each.reason.startswith("FitsOn")}
    assert coming <= helped | there

"""Invariants of node groups: each node counts once, in at most one group."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import cluster_machine_set, machine_deployment, machine_pool, machine_set, node
from trimtab.autoscaling.groups import MachineState, NodeGroup, build_groups
from trimtab.autoscaling.template import build_templates
from trimtab.cli.redaction import redact
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import AnyMachine
from trimtab.kube.wire.decode import decode_object

NODES = [f"n{number}" for number in range(5)]
IDS = ["x://1", "x://2", "x://3", "x://acme/1"]
MAKERS = [
    lambda name: machine_set(name, "default"),
    lambda name: cluster_machine_set(name),
    lambda name: machine_deployment(name),
    lambda name: machine_pool(name),
]


@st.composite
def owners(draw: st.DrawFn, number: int) -> list[Any]:
    """A group of any kind with machines that claim nodes, with or without justification; the group comes first."""
    owner = draw(st.sampled_from(MAKERS))(f"g{number}").replicas(draw(st.integers(0, 4)))
    if draw(st.booleans()):
        owner.limits(draw(st.integers(0, 2)), draw(st.integers(2, 5)))
    if owner.kind == "MachinePool":
        reported = draw(st.lists(st.sampled_from(NODES), max_size=3))
        owner.merge(
            spec={"providerIDList": draw(st.lists(st.sampled_from(IDS), max_size=2))},
            status={"nodeRefs": [{"name": name} for name in reported]},
        )
    made = [owner]
    for place in range(draw(st.integers(0, 3))):
        machine = owner.machine(f"m{number}-{place}")
        for change in draw(st.sets(st.sampled_from(CHANGES))):
            change(machine, draw)
        made.append(machine)
    return made


CHANGES = [
    lambda machine, draw: machine.on(draw(st.sampled_from(NODES))),
    lambda machine, draw: machine.provider_id(draw(st.sampled_from(IDS))),
    lambda machine, _: machine.failed(),
    lambda machine, _: machine.deleted(),
]


@st.composite
def built_worlds(draw: st.DrawFn) -> list[Any]:
    """Groups of all kinds with machines and nodes that reference each other at random."""
    built = [each for number in range(draw(st.integers(1, 4))) for each in draw(owners(number))]
    for name in draw(st.lists(st.sampled_from(NODES), unique=True)):
        there = node(name)
        if draw(st.booleans()):
            there.provider_id(draw(st.sampled_from(IDS)))
        if draw(st.booleans()):
            claimed = f"default/m{draw(st.integers(0, 3))}-{draw(st.integers(0, 2))}"
            there.annotations({"machine.openshift.io/machine": claimed})
        built.append(there)
    return built


def worlds() -> st.SearchStrategy[list[Any]]:
    return built_worlds().map(lambda built: [builder.build() for builder in built])


@given(worlds())
def test_node_counts_once_and_every_machine_is_listed(objects: list[Any]) -> None:
    snapshot = Snapshot(objects)
    found = build_groups(snapshot)

    counts = Counter(machine.node for group in found.all for machine in group.machines if machine.node)
    assert set(counts.values()) <= {1}
    assert set(counts) == set(found.of_node) <= set(snapshot.nodes.slot_of)
    for group in found.all:
        assert all(found.of_node[name] == group.id for name in group.nodes)
        assert 0 <= group.upcoming <= group.target
        assert group.minimum <= group.maximum
        assert sum(len(group.in_state(state)) for state in MachineState) == len(group.machines)
        for machine in group.machines:
            assert machine.node or machine.state is not MachineState.RUNNING
    named = [machine.key for group in found.all for machine in group.machines if machine.name]
    assert len(named) == len(set(named))
    assert set(named) <= {each.key for each in objects if isinstance(each, AnyMachine)}


@given(worlds())
def test_group_has_a_template_or_a_problem(objects: list[Any]) -> None:
    snapshot = Snapshot(objects)
    found = build_groups(snapshot)
    made = build_templates(snapshot, found.all, now=0.0)

    without = {problem.name for problem in made.problems if problem.reason == "NoTemplate"}
    assert {group.name for group in found.all if group.id not in made.of_group} == without
    for template in made.of_group.values():
        assert template.node.ready
        assert not template.node.unschedulable
        assert all(amount >= 0 for amount in template.free.values())


@given(built_worlds())
def test_groups_of_a_snapshot_file_are_those_of_the_cluster(built: list[Any]) -> None:
    manifests = [builder.manifest() for builder in built]
    redacted = [redact(each["kind"], each) for each in manifests]
    live, kept = (build_groups(Snapshot(map(decode_object, each))) for each in (manifests, redacted))

    assert list(map(without_messages, kept.all)) == list(map(without_messages, live.all))
    assert [(each.name, each.reason) for each in kept.problems] == [(each.name, each.reason) for each in live.problems]


def without_messages(group: NodeGroup) -> NodeGroup:
    return replace(group, machines=tuple(replace(each, message="") for each in group.machines))

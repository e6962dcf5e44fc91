"""Groups that providers outside of the cluster tell: how they join the others, and a whole plan over them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import machine, machine_set, node, pod
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.autoscaling.groups import (
    ExternalGroup,
    ExternalGroups,
    ExternalMachine,
    GroupOptions,
    MachineState,
    NodeGroup,
    groups,
)
from trimtab.autoscaling.planner import plan
from trimtab.autoscaling.scale_up import Inputs
from trimtab.autoscaling.template import TemplateOrigin, Templates, templates
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node, Taint

NOW = 1_795_176_000.0  # 2026-11-20T12:00:00Z
HOUR = 3600.0


def external(name: str = "a", *, target: int = 0, most: int = 9, least: int = 0, **more: Any) -> ExternalGroup:
    return ExternalGroup("external", name, least, most, target, **more)


def instances(*provider_ids: str, **more: Any) -> tuple[ExternalMachine, ...]:
    return tuple(ExternalMachine(each, **more) for each in provider_ids)


def made(*told: ExternalGroup, objects: tuple[Any, ...] = ()) -> Any:
    return groups(Snapshot([each.build() for each in objects]), external=ExternalGroups(told))


def template(cpu: str = "4", memory: str = "16Gi") -> Node:
    return node("new").allocatable(cpu=cpu, memory=memory, pods=110).build()


def cloud_node(name: str, **amounts: Any) -> Any:
    return node(name).provider_id(f"cloud://{name}").allocatable(**{"cpu": "4", "memory": "16Gi", **amounts})


class TestJoining:
    """Instances and nodes."""

    def test_a_group_has_its_provider_before_its_name(self) -> None:
        found = made(external("pool/a", target=2, least=1, options=GroupOptions(unneeded_seconds=60)))
        assert found.problems == ()
        assert found.by_id["external/pool/a"] == NodeGroup(
            id="external/pool/a",
            api_version="external",
            kind="NodeGroup",
            namespace="",
            name="pool/a",
            minimum=1,
            maximum=9,
            target=2,
            options=GroupOptions(unneeded_seconds=60),
            template=found.by_id["external/pool/a"].template,
        )
        assert found.by_id["external/pool/a"].key == "external/pool/a"

    def test_an_instance_is_the_node_of_its_provider_id(self) -> None:
        told = external(target=2, machines=instances("cloud://n1", "cloud://n2"))
        found = made(told, objects=(cloud_node("n1"),))
        group = found.by_id["external/a"]
        assert [(each.key, each.state, each.node) for each in group.machines] == [
            ("cloud://n1", MachineState.RUNNING, "n1"),
            ("cloud://n2", MachineState.PENDING, ""),
        ]
        assert found.of_node == {"n1": "external/a"}
        assert group.upcoming == 1

    @pytest.mark.parametrize(
        ("instance", "there", "state"),
        [
            (ExternalMachine("cloud://n1", creating=True), False, MachineState.PENDING),
            (ExternalMachine("cloud://n1", creating=True), True, MachineState.RUNNING),
            (ExternalMachine("cloud://n1", deleting=True), True, MachineState.DELETING),
            (ExternalMachine("cloud://n1", deleting=True, reason="QUOTA"), False, MachineState.DELETING),
            (ExternalMachine("cloud://n1", creating=True, reason="QUOTA"), True, MachineState.FAILED),
            (ExternalMachine("cloud://n1", reason="QUOTA"), False, MachineState.FAILED),
            (ExternalMachine("cloud://n1", reason="QUOTA"), True, MachineState.RUNNING),
        ],
        ids=["made", "joined", "going", "going and failed", "failed", "failed without a node", "runs with an error"],
    )
    def test_what_an_instance_is_doing(self, instance: ExternalMachine, there: bool, state: MachineState) -> None:
        objects = (cloud_node("n1"),) if there else ()
        (found,) = made(external(target=1, machines=(instance,)), objects=objects).by_id["external/a"].machines
        assert found.state is state
        assert found.reason == ("QUOTA" if state is MachineState.FAILED else "")

    def test_a_node_that_a_machine_has_stays_the_machines(self) -> None:
        workers = machine_set("workers").limits(0, 3).replicas(1)
        objects = workers, machine("m1").of(workers).on("n1"), cloud_node("n1")
        found = made(external(target=1, machines=instances("cloud://n1")), objects=objects)
        assert found.of_node == {"n1": "MachineSet/openshift-machine-api/workers"}
        (problem,) = found.problems
        assert (problem.reason, problem.name) == ("NodeClaimedTwice", "external/a")
        assert "instance cloud://n1: the node n1 belongs to MachineSet/openshift-machine-api/workers" in problem.message

    def test_of_two_groups_with_one_instance_the_first_has_it(self) -> None:
        both = external("a", machines=instances("cloud://n1")), external("b", machines=instances("cloud://n1"))
        found = made(*both, objects=(cloud_node("n1"),))
        assert found.of_node == {"n1": "external/a"}
        assert [problem.reason for problem in found.problems] == ["NodeClaimedTwice"]

    @pytest.mark.parametrize(
        ("told", "message"),
        [
            (external("a", least=3, most=2), "its largest size is 2, less than its smallest, 3"),
            (external("a", target=-1), "its target is -1: it must be 0 or more"),
            (external("a", least=-1), "its smallest size is -1: it must be 0 or more"),
            (external("a", most=2**31), "its largest size is 2147483648: it must be 0 or more"),
            (external(""), "has no id"),
        ],
        ids=["max below min", "negative target", "negative min", "beyond int32", "no id"],
    )
    def test_impossible_sizes_are_told_and_the_others_go_on(self, told: ExternalGroup, message: str) -> None:
        found = made(told, external("b"))
        assert list(found.by_id) == ["external/b"]
        (problem,) = found.problems
        assert (problem.kind, problem.reason) == ("NodeGroup", "InvalidLimits")
        assert message in problem.message

    def test_a_group_that_is_told_twice_counts_once(self) -> None:
        found = made(external("a", most=3), external("a", most=5))
        assert [group.maximum for group in found.all] == [3]
        assert "told twice" in found.problems[0].message

    @given(st.permutations(range(4)))
    def test_the_order_of_the_answers_leaves_no_trace(self, order: list[int]) -> None:
        told = [
            external("a", target=2, machines=instances("cloud://n1", "cloud://n2")),
            external("a", target=1, machines=instances("cloud://n3")),
            external("b", target=1, machines=instances("cloud://n2")),
            external("c", least=5, most=1),
        ]
        objects = (cloud_node("n1"), cloud_node("n2"), cloud_node("n3"))
        assert made(*(told[each] for each in order), objects=objects) == made(*told, objects=objects)


class TestTemplates:
    """What a new node would be."""

    def of(self, told: ExternalGroup, *objects: Any) -> Templates:
        snapshot = Snapshot([each.build() for each in objects])
        return templates(snapshot, groups(snapshot, external=ExternalGroups((told,))).all, now=NOW)

    def test_the_providers_node_counts_where_there_is_none_to_learn_from(self) -> None:
        like = node("x").allocatable(cpu="4", memory="16Gi", pods=42).labels(size="l").taint("team", "x").build()
        found = self.of(external(node=like)).of_group["external/a"]
        assert found.origin is TemplateOrigin.PROVIDER
        assert found.node.allocatable["pods"] == 42
        assert found.node.labels["size"] == "l"
        assert "kubernetes.io/hostname" not in found.node.labels
        assert found.node.taints == (Taint(key="team", effect="NoSchedule", value="x"),)
        assert found.node.ready

    def test_a_real_node_teaches_more(self) -> None:
        told = external(target=1, machines=instances("cloud://n1"), node=template(cpu="8"))
        found = self.of(told, cloud_node("n1", cpu="3")).of_group["external/a"]
        assert (found.origin, found.node.allocatable["cpu"]) == (TemplateOrigin.LEARNED, 3000)

    def test_without_allocatable_a_part_of_the_capacity_is_held_back(self) -> None:
        like = Node(name="x", capacity=template().allocatable)
        found = self.of(external(node=like)).of_group["external/a"]
        assert 0 < found.node.allocatable["cpu"] < 4000
        assert "the capacity less a reserve" in " ".join(found.assumed)

    @pytest.mark.parametrize(
        ("told", "message"),
        [
            (external(), "its provider does not say it"),
            (external(untold="NodeGroupTemplateNodeInfo is not implemented"), "is not implemented"),
            (external(node=Node(name="x")), "its provider says nothing of cpu or memory"),
        ],
        ids=["silent", "says why", "empty"],
    )
    def test_without_any_it_is_told_why(self, told: ExternalGroup, message: str) -> None:
        found = self.of(told)
        assert found.of_group == {}
        (problem,) = found.problems
        assert (problem.name, problem.reason) == ("external/a", "NoTemplate")
        assert message in problem.message


class TestPlans:
    """The planner on the union of all groups."""

    def planned(self, told: tuple[ExternalGroup, ...], *objects: Any, status: Any = None, **spec: Any) -> Any:
        snapshot = Snapshot([each.build() for each in objects])
        inputs = Inputs(
            ClusterAutoscalerSpec(**spec),
            NOW,
            external=ExternalGroups(told),
            status=status or ClusterAutoscalerStatus(),
        )
        return plan(snapshot, inputs)[0]

    def test_pending_pods_grow_a_group_from_nothing(self) -> None:
        found = self.planned(
            (external(node=template()),), *(pod(f"w{each}").cpu("3").memory("1Gi").unschedulable() for each in "12")
        )
        (action,) = found.scaling
        assert (action.group, action.machine_set, action.from_, action.to) == ("external/a", "external/a", 0, 2)
        assert action.message == "2 nodes as its provider says for 2 pods"

    def test_machine_sets_and_external_groups_are_chosen_among(self) -> None:
        objects = (
            machine_set("small").limits(0, 9).replicas(0).capacity(cpu="8", memory="32Gi"),
            pod("w").cpu("3").memory("12Gi").unschedulable(),
        )
        (action,) = self.planned((external(node=template()),), *objects).scaling
        assert action.group == "external/a"
        assert "LeastWaste chose it over 1 other" in action.message

    def test_a_price_that_the_provider_says_counts(self) -> None:
        told = external("a", node=template(), price="2"), external("b", node=template(), price="1.99")
        found = self.planned(told, pod("w").cpu("3").memory("1Gi").unschedulable(), expanders=("Price",))
        assert [action.group for action in found.scaling] == ["external/b"]

    def test_instances_on_their_way_take_the_pods(self) -> None:
        told = external(target=1, node=template(), machines=instances("cloud://n1", creating=True))
        found = self.planned((told,), pod("w").cpu("3").memory("1Gi").unschedulable())
        assert found.scaling == ()
        assert [each.reason for each in found.kept] == ["FitsOnUpcomingNode"]

    def test_a_group_whose_provider_is_silent_is_paused_and_its_nodes_stay(self) -> None:
        told = external(
            target=1, node=template(), machines=instances("cloud://n1"), paused="its provider does not answer"
        )
        objects = (cloud_node("n1"), pod("w").cpu("64").memory("1Gi").unschedulable())
        found = self.planned((told,), *objects)
        assert found.scaling == ()
        assert {each.name: each.reason for each in found.kept} == {
            "external/a": "GroupPaused",
            "n1": "GroupPaused",
            "w": "NoGroupFits",
        }

    def test_an_unneeded_node_is_removed_by_its_instance(self) -> None:
        told = external(target=2, machines=instances("cloud://n1", "cloud://n2"))
        since = str(int(NOW - HOUR))
        nodes = (
            cloud_node(name).taint("DeletionCandidateOfClusterAutoscaler", since, "PreferNoSchedule")
            for name in ("n1", "n2")
        )
        found = self.planned((told,), *nodes, pod("w").on("n2").owned_by("ReplicaSet", "w").cpu("3").memory("1Gi"))
        (action,) = found.scaling
        assert (action.node, action.group, action.machine) == ("n1", "external/a", "cloud://n1")

    def test_the_smallest_size_holds(self) -> None:
        told = external(target=1, least=1, machines=instances("cloud://n1"))
        since = str(int(NOW - HOUR))
        there = cloud_node("n1").taint("DeletionCandidateOfClusterAutoscaler", since, "PreferNoSchedule")
        found = self.planned((told,), there)
        assert found.scaling == ()
        assert [each.reason for each in found.kept] == ["NodeGroupMinSizeReached"]

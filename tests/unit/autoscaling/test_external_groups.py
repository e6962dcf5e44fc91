"""Groups of external providers among other groups, and plans with them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import machine, machine_set, node, pod
from tests.fixtures.golden import Golden
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.autoscaling.groups import (
    ExternalGroup,
    ExternalGroups,
    ExternalMachine,
    GroupOptions,
    MachineState,
    NodeGroup,
    build_groups,
)
from trimtab.autoscaling.planner import plan
from trimtab.autoscaling.scale_up import PlanInputs
from trimtab.autoscaling.template import TemplateOrigin, Templates, build_templates
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node, Taint

NOW = 1_795_176_000.0  # 2026-11-20T12:00:00Z
HOUR = 3600.0


def external(name: str = "a", *, target: int = 0, most: int = 9, least: int = 0, **more: Any) -> ExternalGroup:
    return ExternalGroup("external", name, least, most, target, **more)


def instances(*provider_ids: str, **more: Any) -> tuple[ExternalMachine, ...]:
    return tuple(ExternalMachine(each, **more) for each in provider_ids)


def made(*reported: ExternalGroup, objects: tuple[Any, ...] = ()) -> Any:
    return build_groups(Snapshot([each.build() for each in objects]), external=ExternalGroups(reported))


def template(cpu: str = "4", memory: str = "16Gi") -> Node:
    return node("new").allocatable(cpu=cpu, memory=memory, pods=110).build()


def cloud_node(name: str, **amounts: Any) -> Any:
    return node(name).provider_id(f"cloud://{name}").allocatable(**{"cpu": "4", "memory": "16Gi", **amounts})


class TestJoining:
    """Matching of instances and nodes."""

    def test_group_id_starts_with_the_provider(self) -> None:
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

    def test_instance_is_matched_by_provider_id(self) -> None:
        reported = external(target=2, machines=instances("cloud://n1", "cloud://n2"))
        found = made(reported, objects=(cloud_node("n1"),))
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
        ids=[
            "creating",
            "joined",
            "deleting",
            "deleting and failed",
            "failed",
            "failed without a node",
            "runs with an error",
        ],
    )
    def test_instance_states(self, instance: ExternalMachine, there: bool, state: MachineState) -> None:
        objects = (cloud_node("n1"),) if there else ()
        (found,) = made(external(target=1, machines=(instance,)), objects=objects).by_id["external/a"].machines
        assert found.state is state
        assert found.reason == ("QUOTA" if state is MachineState.FAILED else "")

    def test_node_of_a_machine_stays_with_the_machine(self, golden: Golden) -> None:
        workers = machine_set("workers").limits(0, 3).replicas(1)
        there = cloud_node("n1").annotations({"machine.openshift.io/machine": f"{workers.namespace}/m1"})
        objects = workers, machine("m1").of(workers).on("n1"), there
        found = made(external(target=1, machines=instances("cloud://n1")), objects=objects)
        assert found.of_node == {"n1": "MachineSet/openshift-machine-api/workers"}
        (problem,) = found.problems
        assert (problem.reason, problem.name) == ("NodeClaimedTwice", "external/a")
        golden(problem.message)
        group = found.by_id["external/a"]
        assert [(each.state, each.unconfirmed_node) for each in group.machines] == [(MachineState.UNCONFIRMED, "n1")]
        assert group.upcoming == 0

    def test_instance_with_several_nodes_has_none_of_them(self) -> None:
        nodes = [cloud_node(name).provider_id("cloud://1") for name in ("n1", "n2")]
        found = made(external(target=1, machines=instances("cloud://1", reason="QUOTA")), objects=(*nodes,))
        group = found.by_id["external/a"]
        assert found.of_node == {}
        assert [(each.state, each.unconfirmed_node) for each in group.machines] == [(MachineState.UNCONFIRMED, "n1")]
        assert group.upcoming == 0

    def test_instance_of_two_groups_belongs_to_the_first(self) -> None:
        both = external("a", machines=instances("cloud://n1")), external("b", machines=instances("cloud://n1"))
        found = made(*both, objects=(cloud_node("n1"),))
        assert found.of_node == {"n1": "external/a"}
        assert [problem.reason for problem in found.problems] == ["NodeClaimedTwice"]

    @pytest.mark.parametrize(
        ("reported", "message"),
        [
            (external("a", least=3, most=2), "the maximum size 2, less than the minimum size 3"),
            (external("a", target=-1), "the target -1: it must be 0 or more"),
            (external("a", least=-1), "the minimum size -1: it must be 0 or more"),
            (external("a", most=2**31), "the maximum size 2147483648: it must be 0 or more"),
            (external(""), "has no id"),
        ],
        ids=["max below min", "negative target", "negative min", "beyond int32", "no id"],
    )
    def test_invalid_sizes_are_reported_and_other_groups_are_built(self, reported: ExternalGroup, message: str) -> None:
        found = made(reported, external("b"))
        assert list(found.by_id) == ["external/b"]
        (problem,) = found.problems
        assert (problem.kind, problem.reason) == ("NodeGroup", "InvalidLimits")
        assert message in problem.message

    def test_group_reported_twice_counts_once(self) -> None:
        found = made(external("a", most=3), external("a", most=5))
        assert [group.maximum for group in found.all] == [3]
        assert "reported twice" in found.problems[0].message

    @given(st.permutations(range(4)))
    def test_groups_do_not_depend_on_the_order_of_answers(self, order: list[int]) -> None:
        reported = [
            external("a", target=2, machines=instances("cloud://n1", "cloud://n2")),
            external("a", target=1, machines=instances("cloud://n3")),
            external("b", target=1, machines=instances("cloud://n2")),
            external("c", least=5, most=1),
        ]
        objects = (cloud_node("n1"), cloud_node("n2"), cloud_node("n3"))
        assert made(*(reported[each] for each in order), objects=objects) == made(*reported, objects=objects)


class TestTemplates:
    """Templates of external groups."""

    def of(self, reported: ExternalGroup, *objects: Any) -> Templates:
        snapshot = Snapshot([each.build() for each in objects])
        return build_templates(snapshot, build_groups(snapshot, external=ExternalGroups((reported,))).all, now=NOW)

    def test_providers_node_is_used_without_a_sample(self) -> None:
        like = node("x").allocatable(cpu="4", memory="16Gi", pods=42).labels(size="l").taint("team", "x").build()
        found = self.of(external(node=like)).of_group["external/a"]
        assert found.origin is TemplateOrigin.PROVIDER
        assert found.node.allocatable["pods"] == 42
        assert found.node.labels["size"] == "l"
        assert "kubernetes.io/hostname" not in found.node.labels
        assert found.node.taints == (Taint(key="team", effect="NoSchedule", value="x"),)
        assert found.node.ready

    def test_existing_node_is_preferred(self) -> None:
        reported = external(target=1, machines=instances("cloud://n1"), node=template(cpu="8"))
        found = self.of(reported, cloud_node("n1", cpu="3")).of_group["external/a"]
        assert (found.origin, found.node.allocatable["cpu"]) == (TemplateOrigin.LEARNED, 3000)

    def test_missing_allocatable_is_estimated(self, golden: Golden) -> None:
        like = Node(name="x", capacity=template().allocatable)
        found = self.of(external(node=like)).of_group["external/a"]
        assert 0 < found.node.allocatable["cpu"] < 4000
        golden(" ".join(found.assumptions))

    @pytest.mark.parametrize(
        ("reported", "message"),
        [
            (external(), "its provider does not describe its nodes"),
            (external(no_node_reason="NodeGroupTemplateNodeInfo is not implemented"), "is not implemented"),
            (external(node=Node(name="x")), "its provider reports no cpu or memory"),
        ],
        ids=["no answer", "with a reason", "empty"],
    )
    def test_missing_template_is_reported(self, reported: ExternalGroup, message: str) -> None:
        found = self.of(reported)
        assert found.of_group == {}
        (problem,) = found.problems
        assert (problem.name, problem.reason) == ("external/a", "NoTemplate")
        assert message in problem.message


class TestPlans:
    """Plans with external groups and MachineSets."""

    def planned(self, reported: tuple[ExternalGroup, ...], *objects: Any, status: Any = None, **spec: Any) -> Any:
        snapshot = Snapshot([each.build() for each in objects])
        inputs = PlanInputs(
            ClusterAutoscalerSpec(**spec),
            NOW,
            external=ExternalGroups(reported),
            status=status or ClusterAutoscalerStatus(),
        )
        return plan(snapshot, inputs)[0]

    def test_pending_pods_scale_up_a_group_from_zero(self, golden: Golden) -> None:
        found = self.planned(
            (external(node=template()),), *(pod(f"w{each}").cpu("3").memory("1Gi").unschedulable() for each in "12")
        )
        (action,) = found.scaling
        assert (action.group, action.machine_set, action.from_, action.to) == ("external/a", "external/a", 0, 2)
        golden(action.message)

    def test_expanders_choose_among_machine_sets_and_external_groups(self, golden: Golden) -> None:
        objects = (
            machine_set("small").limits(0, 9).replicas(0).capacity(cpu="8", memory="32Gi"),
            pod("w").cpu("3").memory("12Gi").unschedulable(),
        )
        (action,) = self.planned((external(node=template()),), *objects).scaling
        assert action.group == "external/a"
        golden(action.message)

    def test_price_of_the_provider_counts(self) -> None:
        reported = external("a", node=template(), price="2"), external("b", node=template(), price="1.99")
        found = self.planned(reported, pod("w").cpu("3").memory("1Gi").unschedulable(), expanders=("Price",))
        assert [action.group for action in found.scaling] == ["external/b"]

    def test_upcoming_instances_take_the_pods(self) -> None:
        reported = external(target=1, node=template(), machines=instances("cloud://n1", creating=True))
        found = self.planned((reported,), pod("w").cpu("3").memory("1Gi").unschedulable())
        assert found.scaling == ()
        assert [each.reason for each in found.kept] == ["FitsOnUpcomingNode"]

    def test_group_of_an_unreachable_provider_is_paused_and_keeps_its_nodes(self) -> None:
        reported = external(
            target=1, node=template(), machines=instances("cloud://n1"), paused="its provider does not answer"
        )
        objects = (cloud_node("n1"), pod("w").cpu("64").memory("1Gi").unschedulable())
        found = self.planned((reported,), *objects)
        assert found.scaling == ()
        assert {each.name: each.reason for each in found.kept} == {
            "external/a": "GroupPaused",
            "n1": "GroupPaused",
            "w": "NoGroupFits",
        }

    def test_unneeded_node_is_removed_by_its_instance(self) -> None:
        reported = external(target=2, machines=instances("cloud://n1", "cloud://n2"))
        since = str(int(NOW - HOUR))
        nodes = (
            cloud_node(name).taint("DeletionCandidateOfClusterAutoscaler", since, "PreferNoSchedule")
            for name in ("n1", "n2")
        )
        found = self.planned((reported,), *nodes, pod("w").on("n2").owned_by("ReplicaSet", "w").cpu("3").memory("1Gi"))
        (action,) = found.scaling
        assert (action.node, action.group, action.machine) == ("n1", "external/a", "cloud://n1")

    def test_minimum_size_is_respected(self) -> None:
        reported = external(target=1, least=1, machines=instances("cloud://n1"))
        since = str(int(NOW - HOUR))
        there = cloud_node("n1").taint("DeletionCandidateOfClusterAutoscaler", since, "PreferNoSchedule")
        found = self.planned((reported,), there)
        assert found.scaling == ()
        assert [each.reason for each in found.kept] == ["NodeGroupMinSizeReached"]

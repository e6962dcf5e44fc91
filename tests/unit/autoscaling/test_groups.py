"""Node groups of a snapshot: their objects, limits, machines and nodes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import (
    cluster_machine,
    cluster_machine_set,
    machine,
    machine_deployment,
    machine_pool,
    machine_set,
    node,
)
from tests.fixtures.golden import Golden
from trimtab.api.decode import decode_machine_autoscaler
from trimtab.api.machine_autoscaler import MachineAutoscaler
from trimtab.autoscaling.groups import GroupOptions, Groups, MachineState, NodeGroup, build_groups
from trimtab.cluster.snapshot import Snapshot

NAMESPACE = "openshift-machine-api"
A = "MachineSet/openshift-machine-api/workers-a"
NODES_MACHINE = "machine.openshift.io/machine"


def found(*builders: Any, autoscalers: tuple[MachineAutoscaler, ...] = ()) -> Groups:
    return build_groups(Snapshot([builder.build() for builder in builders]), autoscalers)


def only(*builders: Any, **options: Any) -> NodeGroup:
    made = found(*builders, **options)
    assert not made.problems
    (group,) = made.all
    return group


def autoscaler(
    name: str = "a",
    minimum: int = 1,
    maximum: int = 9,
    *,
    kind: str = "MachineSet",
    target: str = "workers-a",
    api_version: str = "machine.openshift.io/v1beta1",
    namespace: str = NAMESPACE,
    **metadata: Any,
) -> MachineAutoscaler:
    return decode_machine_autoscaler(
        {
            "apiVersion": "autoscaling.openshift.io/v1beta1",
            "kind": "MachineAutoscaler",
            "metadata": {"name": name, "namespace": namespace, **metadata},
            "spec": {
                "minReplicas": minimum,
                "maxReplicas": maximum,
                "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": target},
            },
        }
    )


class TestGroups:
    @pytest.mark.parametrize(
        ("builder", "id_"),
        [
            (machine_set(), A),
            (cluster_machine_set(), "MachineSet.cluster.x-k8s.io/default/md-1"),
            (cluster_machine_set(version="v1beta1"), "MachineSet.cluster.x-k8s.io/default/md-1"),
            (machine_deployment(), "MachineDeployment/default/md"),
            (machine_pool(), "MachinePool/default/mp"),
        ],
        ids=["MachineSet", "Cluster API MachineSet", "v1beta1", "MachineDeployment", "MachinePool"],
    )
    def test_object_with_both_limits_is_a_group(self, builder: Any, id_: str) -> None:
        group = only(builder.replicas(4).limits(2, 6))

        assert (group.id, group.minimum, group.maximum, group.target) == (id_, 2, 6, 4)
        assert group.api_version == builder.manifest()["apiVersion"]
        assert (group.kind, group.key) == (builder.kind, f"{builder.namespace}/{builder.name}")
        assert group.autoscaler == ""

    def test_object_without_limits_is_no_group(self) -> None:
        assert found(machine_set().replicas(3)) == Groups()

    def test_missing_replicas_default_to_one(self) -> None:
        builder = machine_set().limits(0, 3)
        del builder._manifest["spec"]["replicas"]

        assert only(builder).target == 1

    def test_limits_of_the_other_api_are_ignored(self) -> None:
        theirs = {"cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "1"}
        theirs |= {"cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "3"}

        assert found(machine_set().annotations(theirs)) == Groups()

    def test_machine_set_owned_by_a_deployment_is_no_group_and_its_machines_belong_to_the_deployment(self) -> None:
        owned = cluster_machine_set("md-1").limits(1, 5).replicas(1).owned_by("MachineDeployment", "md")

        group = only(machine_deployment().limits(1, 5).replicas(1), owned, owned.machine("a").on("n1"), node("n1"))

        assert group.id == "MachineDeployment/default/md"
        assert group.nodes == ("n1",)

    @pytest.mark.parametrize(
        ("authority", "ids"),
        [
            ("", [A]),
            ("MachineAPI", [A]),
            ("ClusterAPI", ["MachineSet.cluster.x-k8s.io/openshift-cluster-api/workers-a"]),
            ("Migrating", [A]),
        ],
    )
    def test_only_the_authoritative_machine_set_of_an_openshift_mirror_is_a_group(
        self, authority: str, ids: list[str]
    ) -> None:
        ours = machine_set().limits(1, 5).merge(status={"authoritativeAPI": authority})
        theirs = cluster_machine_set("workers-a", "openshift-cluster-api").limits(1, 5)

        assert list(found(ours, theirs).by_id) == ids

    @pytest.mark.parametrize(
        ("annotations", "words"),
        [
            (
                {"min-size": "1"},
                "annotation machine.openshift.io/cluster-api-autoscaler-node-group-max-size is missing",
            ),
            (
                {"max-size": "1"},
                "annotation machine.openshift.io/cluster-api-autoscaler-node-group-min-size is missing",
            ),
            ({"min-size": "one", "max-size": "2"}, "must be a whole number from 0 on, not 'one'"),
            ({"min-size": "-1", "max-size": "2"}, "must be a whole number from 0 on, not '-1'"),
            ({"min-size": "1", "max-size": "2147483648"}, "must be a whole number from 0 on, not '2147483648'"),
            ({"min-size": "3", "max-size": "2"}, "2 is less than 3"),
        ],
        ids=["no maximum", "no minimum", "a word", "negative", "too large", "maximum below minimum"],
    )
    def test_invalid_limits_are_reported_and_other_groups_are_built(
        self, annotations: dict[str, str], words: str
    ) -> None:
        prefix = "machine.openshift.io/cluster-api-autoscaler-node-group-"
        bad = machine_set().annotations({prefix + name: text for name, text in annotations.items()})

        made = found(bad, machine_set("good").limits(1, 2))

        (problem,) = made.problems
        assert [group.name for group in made.all] == ["good"]
        assert (problem.kind, problem.name, problem.reason) == ("MachineSet", "workers-a", "InvalidLimits")
        assert words in problem.message

    @pytest.mark.parametrize(
        ("builder", "words"),
        [
            (machine_set().annotations({"cluster.x-k8s.io/paused": "false"}), "annotation cluster.x-k8s.io/paused"),
            (machine_deployment().merge(spec={"paused": True}), "spec.paused is true"),
            (machine_set().deleted(), "it is being deleted"),
            (machine_set().merge(spec={"authoritativeAPI": "Migrating"}), "Migrating: neither API acts on it"),
        ],
        ids=["annotation", "spec", "deleted", "migrating"],
    )
    def test_paused_group_has_a_pause_reason(self, builder: Any, words: str) -> None:
        made = found(builder.limits(1, 2))

        assert words in made.all[0].paused
        assert [problem.reason for problem in made.problems] == ["GroupPaused"]


class TestMachineAutoscalers:
    def test_its_limits_override_annotations(self) -> None:
        group = only(machine_set().limits(7, 7), autoscalers=(autoscaler(minimum=0, maximum=3),))

        assert (group.minimum, group.maximum, group.autoscaler) == (0, 3, f"{NAMESPACE}/a")

    @pytest.mark.parametrize("kind", ["MachineDeployment", "MachineSet", "MachinePool"])
    def test_target_may_be_a_cluster_api_object(self, kind: str) -> None:
        target = cluster_machine_set("workers-a", NAMESPACE, kind=kind)

        assert only(target, autoscalers=(autoscaler(kind=kind, api_version="cluster.x-k8s.io/v1beta1"),)).maximum == 9

    @pytest.mark.parametrize(
        "wanted",
        [autoscaler(target="other"), autoscaler(namespace="elsewhere")],
        ids=["another name", "another namespace"],
    )
    def test_missing_target_is_reported(self, wanted: MachineAutoscaler) -> None:
        made = found(machine_set(), autoscalers=(wanted,))

        (problem,) = made.problems
        assert not made.by_id
        assert (problem.kind, problem.namespace, problem.name) == ("MachineAutoscaler", wanted.metadata.namespace, "a")
        assert problem.reason == "TargetNotFound"
        assert wanted.spec.scale_target_ref.name in problem.message

    def test_target_with_another_size_manager_is_reported(self, golden: Golden) -> None:
        owned = cluster_machine_set("md-1", NAMESPACE).owned_by("MachineDeployment", "md")
        wanted = autoscaler(target="md-1", api_version="cluster.x-k8s.io/v1beta2")

        (problem,) = found(owned, autoscalers=(wanted,)).problems

        assert problem.reason == "TargetUnsupported"
        golden(problem.message)

    @pytest.mark.parametrize(
        ("annotation", "first"),
        [("", "old"), (f"{NAMESPACE}/new", "new"), (f"{NAMESPACE}/gone", "old")],
        ids=["the oldest", "the one that the target names", "the oldest, as the named one is gone"],
    )
    def test_one_of_two_autoscalers_owns_the_target(self, annotation: str, first: str, golden: Golden) -> None:
        target = machine_set()
        if annotation:
            target.annotations({"autoscaling.openshift.io/machineautoscaler": annotation})
        both = (
            autoscaler("new", creationTimestamp="2026-11-02T00:00:00Z"),
            autoscaler("old", creationTimestamp="2026-11-01T00:00:00Z"),
        )

        made = found(target, autoscalers=both)

        (problem,) = made.problems
        assert made.all[0].autoscaler == f"{NAMESPACE}/{first}"
        assert {problem.name, first} == {"old", "new"}
        assert problem.reason == "TargetAlreadyOwned"
        golden(problem.message)

    def test_deleted_autoscaler_owns_nothing(self) -> None:
        leaving = autoscaler(deletionTimestamp="2026-11-20T12:00:00Z")

        assert found(machine_set(), autoscalers=(leaving,)) == Groups()


class TestMachines:
    def test_machine_state_follows_from_its_object(self) -> None:
        owner = machine_set().replicas(4).limits(0, 9)
        group = only(
            owner,
            owner.machine("deleting").on("n1").deleted("2026-11-20T11:00:00Z"),
            owner.machine("failed").failed("InsufficientResources", "no capacity").created("2026-11-20T10:00:00Z"),
            owner.machine("failed-later").on("n2").failed(),
            owner.machine("pending").created("2026-11-20T11:30:00Z"),
            owner.machine("lost").on("n9"),
            owner.machine("running").on("n3").marked(),
            machine("without-owner").on("n4"),
            *(node(f"n{number}") for number in range(1, 6)),
        )

        states = {each.name: (each.state, each.node) for each in group.machines}
        assert states == {
            "deleting": (MachineState.DELETING, "n1"),
            "failed": (MachineState.FAILED, ""),
            "failed-later": (MachineState.FAILED, "n2"),
            "pending": (MachineState.PENDING, ""),
            "lost": (MachineState.PENDING, ""),
            "running": (MachineState.RUNNING, "n3"),
        }
        failed = next(each for each in group.machines if each.name == "failed")
        assert (failed.reason, failed.message) == ("InsufficientResources", "no capacity")
        assert [each.name for each in group.machines if each.marked] == ["running"]
        assert group.nodes == ("n2", "n3")

    @pytest.mark.parametrize(
        ("target", "upcoming"), [(0, 0), (2, 0), (3, 0), (4, 1), (9, 6)], ids=lambda value: str(value)
    )
    def test_upcoming_is_the_target_without_nodes_and_failures(self, target: int, upcoming: int) -> None:
        owner = machine_set().replicas(target).limits(0, 9)
        group = only(
            owner,
            owner.machine("a").on("n1"),
            owner.machine("b").on("n2"),
            owner.machine("c").failed(),
            owner.machine("d").on("n3").deleted(),
            *(node(f"n{number}") for number in range(1, 4)),
        )

        assert group.upcoming == upcoming

    @pytest.mark.parametrize(
        ("of_machine", "of_node"),
        [
            (lambda each: each.on("n1"), lambda each: each),
            (lambda each: each, lambda each: each.annotations({NODES_MACHINE: f"{NAMESPACE}/a-1"})),
        ],
        ids=["nodeRef", "the node's annotation"],
    )
    def test_machine_and_node_are_matched(self, of_machine: Any, of_node: Any) -> None:
        owner = machine_set().limits(0, 9)

        made = found(owner, of_machine(owner.machine("a-1")), of_node(node("n1")))

        assert made.of_node == {"n1": A}
        assert made.group_of("n1") is made.by_id[A]
        assert made.group_of("other") is None

    def test_cluster_api_node_names_its_machine_by_two_annotations(self) -> None:
        owner = cluster_machine_set().limits(0, 9)
        annotations = {"cluster.x-k8s.io/machine": "md-1-a", "cluster.x-k8s.io/cluster-namespace": "default"}

        group = only(owner, owner.machine("md-1-a"), node("n1").annotations(annotations))

        assert group.nodes == ("n1",)

    def test_node_claimed_twice_counts_once_and_is_reported(self) -> None:
        owner = machine_set().limits(0, 9)

        made = found(owner, owner.machine("a").on("n1"), owner.machine("b").on("n1"), node("n1"))

        (problem,) = made.problems
        assert made.all[0].nodes == ("n1",)
        assert (problem.kind, problem.name, problem.reason) == ("Machine", "b", "NodeClaimedTwice")

    def test_machine_pool_has_nodes_without_machines(self) -> None:
        pool = machine_pool().limits(1, 9).replicas(3)
        pool.merge(
            spec={"providerIDList": ["x://1", "x://2"]},
            status={"nodeRefs": [{"name": name, "uid": f"node--{name}"} for name in ("n3", "n2", "n1")]},
        )

        group = only(
            pool,
            pool.machine("m").on("n1"),
            node("n1").provider_id("x://1"),
            node("n2").provider_id("x://2"),
            node("n3"),
        )

        assert group.nodes == ("n1", "n2", "n3")
        assert [(each.name, each.node) for each in group.machines] == [("m", "n1"), ("", "n2"), ("", "n3")]
        assert group.upcoming == 0

    def test_machines_never_belong_to_an_owner_of_the_other_api(self) -> None:
        ours = machine_set("a", "x").limits(0, 9)
        theirs = cluster_machine_set("a", "x").limits(0, 9)

        made = found(ours, theirs, ours.machine("m").on("n1"), theirs.machine("m").on("n2"), node("n1"), node("n2"))

        assert made.of_node == {"n1": "MachineSet/x/a", "n2": "MachineSet.cluster.x-k8s.io/x/a"}

    def test_cluster_api_machine_without_owner_is_in_no_group(self) -> None:
        assert found(cluster_machine().on("n1"), node("n1")) == Groups()


class TestOptions:
    def test_options_of_both_apis_are_read(self) -> None:
        for builder in (machine_set(), machine_deployment()):
            builder.limits(0, 1).option("scaledownutilizationthreshold", "0.65")
            builder.option("scaledowngpuutilizationthreshold", "1").option("scaledownunneededtime", "1m30s")
            builder.option("scaledownunreadytime", "0.5h").option("maxnodeprovisiontime", "10M")
            builder.option("maxnodestartuptime", "500ms")

            assert only(builder).options == GroupOptions(0.65, 1.0, 90.0, 1800.0, 600.0, 0.5)

    @pytest.mark.parametrize(
        ("name", "value", "words"),
        [
            ("scaledownutilizationthreshold", "50%", "must be a fraction between 0 and 1, e.g. 0.5; not '50%'"),
            ("scaledownutilizationthreshold", "1.5", "must be a fraction between 0 and 1"),
            ("scaledownutilizationthreshold", "nan", "must be a fraction between 0 and 1"),
            ("scaledownunneededtime", "-5m", "must be a duration that is not negative"),
            ("scaledownunneededtime", "5", "must be a duration that is not negative"),
            ("scaledownuneededtime", "5m", "is not a known option: allowed are scaledownutilizationthreshold"),
        ],
    )
    def test_invalid_option_is_reported_and_ignored(self, name: str, value: str, words: str) -> None:
        made = found(machine_set().limits(0, 1).option(name, value))

        (problem,) = made.problems
        assert made.all[0].options == GroupOptions()
        assert problem.reason == "InvalidAnnotation"
        assert f"machine.openshift.io/autoscaling-options-{name}" in problem.message
        assert words in problem.message

    def test_empty_option_is_ignored(self) -> None:
        assert only(machine_set().limits(0, 1).option("scaledownunneededtime", "")).options == GroupOptions()


def world() -> list[Any]:
    built: list[Any] = []
    for letter in "abc":
        owner = machine_set(f"workers-{letter}").limits(0, 9).replicas(2)
        built += [owner, owner.machine(f"{letter}-1").on(f"{letter}1"), owner.machine(f"{letter}-2").on("a1")]
        built += [node(f"{letter}1"), node(f"{letter}2").provider_id("x://1")]
    built += [machine_set("bad").limits(3, 1), machine_deployment().limits(0, 2)]
    return [builder.build() for builder in built]


@given(st.permutations(world()), st.permutations([autoscaler(name) for name in "xyz"]))
def test_groups_do_not_depend_on_the_order_of_objects(objects: list[Any], wanted: list[MachineAutoscaler]) -> None:
    assert build_groups(Snapshot(objects), wanted) == build_groups(
        Snapshot(world()), [autoscaler(name) for name in "xyz"]
    )

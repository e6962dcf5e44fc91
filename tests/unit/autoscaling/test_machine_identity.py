"""A node must confirm the claim of a machine; machines of other clusters do not count."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import cluster_machine_set, machine_deployment, machine_pool, machine_set, node
from tests.fixtures.golden import Golden
from tests.unit.autoscaling.iteration_reports import NOW as REPORTED
from tests.unit.autoscaling.scale_up_helpers import group, pending_pods, planned, sizes
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec, NodeGroupAutoDiscovery
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.conditions import ConditionUpdate
from trimtab.api.decode import decode_machine_autoscaler
from trimtab.api.plan import Plan, RemoveNode
from trimtab.autoscaling.cluster_state import advance, state_from_status, status_with_state
from trimtab.autoscaling.cluster_state.state import AutoscalerState
from trimtab.autoscaling.groups import (
    ExternalGroup,
    ExternalGroups,
    ExternalMachine,
    GroupMachine,
    Groups,
    MachineState,
    build_groups,
)
from trimtab.autoscaling.iteration import IterationInput, plan_iteration
from trimtab.autoscaling.planner import plan
from trimtab.autoscaling.report.iteration_report import IterationReport
from trimtab.autoscaling.report.status import conditions_of
from trimtab.autoscaling.scale_up import PlanInputs
from trimtab.autoscaling.scale_up_executor import plan_corrections
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.wire.decode import decode_object

OLD, NEW = "2026-11-01T00:00:00Z", "2026-11-20T00:00:00Z"
MACHINE = "machine.openshift.io/machine"
THEIRS = "openshift-machine-api/workers-a-1"
LISTED = ("openshift-machine-api", "clusters", "default", "tenant")
"""Namespaces in the settings, so that a tenant's objects count although no node belongs to them."""


def found(*builders: Any, autoscalers: tuple[Any, ...] = (), **discovery: Any) -> Groups:
    snapshot = Snapshot([builder.build() for builder in builders])
    return build_groups(snapshot, autoscalers, discovery=NodeGroupAutoDiscovery(**discovery))


def deployment(name: str = "md", namespace: str = "clusters", *, cluster: str = "") -> Any:
    made = machine_deployment(name, namespace).limits(0, 9).replicas(1)
    return made.merge(spec={"clusterName": cluster}) if cluster else made


def with_machine(owner: Any, on: str = "worker-1", *, cluster: str = "", uid: str | None = None) -> list[Any]:
    """A MachineDeployment with its MachineSet and one machine that references a node."""
    name, namespace = owner.name, owner.namespace
    sets = cluster_machine_set(f"{name}-x", namespace).owned_by("MachineDeployment", name)
    machine = sets.machine(f"{name}-x-1").on(on)
    if uid is not None:
        machine.merge(status={"nodeRef": {"uid": uid}})
    if cluster:
        for each in (sets, machine):
            each.merge(spec={"clusterName": cluster})
    return [owner, sets, machine]


def reasons(made: Groups) -> list[str]:
    return [problem.reason for problem in made.problems]


class TestNodesConfirm:
    def test_node_of_the_same_name_in_another_cluster_is_not_matched(self) -> None:
        made = found(*with_machine(deployment(), uid="node-of-the-other-cluster"), node("worker-1"))

        assert made.of_node == {}
        assert reasons(made) == ["NodeIdentityMismatch"]
        assert [machine.state for machine in made.all[0].machines] == [MachineState.UNCONFIRMED]

    @pytest.mark.parametrize(
        ("machine", "there"),
        [
            (lambda each: each.provider_id("aws:///a/i-1"), lambda each: each.provider_id("aws:///a/i-2")),
            (lambda each: each, lambda each: each.annotations({MACHINE: THEIRS})),
            (lambda each: each, lambda each: each.annotations({"cluster.x-k8s.io/machine": "m"})),
            (lambda each: each.merge(status={"nodeRef": {"uid": "other"}}), lambda each: each),
        ],
        ids=["provider ID", "the node names another machine", "a machine of the other API", "uid"],
    )
    def test_contradiction_outweighs_confirmation(self, machine: Any, there: Any) -> None:
        owner = machine_set("forged", "tenant").limits(0, 9).replicas(1)

        made = found(owner, machine(owner.machine("m").on("n1")), there(node("n1")), namespaces=LISTED)

        assert made.of_node == {}
        assert reasons(made) == ["NodeIdentityMismatch"]

    def test_provider_ids_may_differ_before_the_instance(self) -> None:
        owner = machine_set().limits(0, 9)

        made = found(
            owner,
            owner.machine("m").on("n1").provider_id("openstack:///i-1"),
            node("n1").provider_id("openstack://r/i-1"),
        )

        assert list(made.of_node) == ["n1"]

    def test_name_alone_confirms_nothing(self) -> None:
        """Cluster API v1beta2 references nodes by name."""
        owner = machine_set("forged", "tenant").limits(0, 9).replicas(1)
        machine = owner.machine("m").merge(status={"phase": "Running", "nodeRef": {"name": "n1"}})

        made = found(owner, machine, node("n1").provider_id("x://1"))

        assert made.of_node == {}
        assert reasons(made) == ["NodeNotConfirmed"]

    def test_name_counts_with_the_nodes_annotation(self) -> None:
        owner = machine_set("own", "tenant").limits(0, 9).replicas(1)
        machine = owner.machine("m").merge(status={"phase": "Running", "nodeRef": {"name": "n1"}})

        assert list(found(owner, machine, node("n1").annotations({MACHINE: "tenant/m"})).of_node) == ["n1"]

    def test_provider_id_does_not_outweigh_a_contradiction(self) -> None:
        forged = machine_set("aaa", "tenant").limits(0, 9).replicas(1)
        there = node("n1").provider_id("x://1").annotations({MACHINE: THEIRS})

        made = found(forged, forged.machine("m").provider_id("x://1"), there, namespaces=LISTED)

        assert made.of_node == {}

    def test_machine_that_references_another_node_is_not_matched_by_annotation(self) -> None:
        owner = machine_set().limits(0, 9)

        made = found(owner, owner.machine("m").on("gone"), node("n1").annotations({MACHINE: f"{owner.namespace}/m"}))

        assert made.of_node == {}

    def test_nodes_of_a_pool_must_confirm_too(self) -> None:
        pool = machine_pool().limits(1, 9).replicas(3)
        names = [{"name": "n1"}, {"name": "n2", "uid": "other"}, {"name": "n3", "uid": "node--n3"}, {"name": "n4"}]
        names.append({"name": "n5", "uid": "node--n5"})
        pool.merge(spec={"providerIDList": ["x://4", "x://5"]}, status={"nodeRefs": names})
        named = {"cluster.x-k8s.io/machine": "m", "cluster.x-k8s.io/cluster-namespace": "default"}

        made = found(
            pool,
            node("n1"),
            node("n2"),
            node("n3"),
            node("n4").provider_id("x://4"),
            node("n5").provider_id("x://5").annotations(named),
        )

        assert sorted(made.of_node) == ["n3"]

    def test_node_of_a_pool_belongs_to_no_machine_in_another_namespace(self) -> None:
        """Cluster API annotates the nodes of a MachinePool with its namespace. A tenant knows their UIDs."""
        owner = machine_pool(namespace="clusters").limits(0, 9).replicas(1)
        owner.merge(status={"nodeRefs": [{"name": "n1", "uid": "node--n1"}]})
        forged = cluster_machine_set("aaa", "tenant").limits(0, 9).replicas(1)
        theirs = machine_pool("aaa", "tenant").limits(0, 9).replicas(1)
        theirs.merge(status={"nodeRefs": [{"name": "n1", "uid": "node--n1"}]})
        there = node("n1").annotations({"cluster.x-k8s.io/cluster-namespace": "clusters"})

        made = found(owner, forged, theirs, forged.machine("m").on("n1").created(OLD), there, namespaces=LISTED)

        assert made.of_node == {"n1": "MachinePool/clusters/mp"}
        assert reasons(made) == ["NodeIdentityMismatch"]


class TestTwoClaims:
    def test_machine_named_by_the_node_wins(self) -> None:
        forged = machine_set("aaa", "tenant").limits(0, 9)
        real = machine_set("workers").limits(0, 9)

        made = found(
            forged,
            real,
            forged.machine("m").on("n1"),
            real.machine("workers-1").on("n1"),
            node("n1").annotations({MACHINE: f"{real.namespace}/workers-1"}),
            namespaces=LISTED,
        )

        assert made.of_node == {"n1": "MachineSet/openshift-machine-api/workers"}
        assert reasons(made) == ["NodeIdentityMismatch"]

    def test_oldest_machine_wins_among_equals(self) -> None:
        forged, real = machine_set("aaa", "tenant").limits(0, 9), machine_set("workers").limits(0, 9)
        machines = [forged.machine("m").created(NEW), real.machine("workers-1").created(OLD)]

        made = found(forged, real, *(each.on("n1") for each in machines), node("n1"))

        assert made.of_node == {"n1": "MachineSet/openshift-machine-api/workers"}
        assert reasons(made) == ["NodeClaimedTwice"]


def workers(*, replicas: int = 1) -> Any:
    return machine_set("workers").limits(0, 9).replicas(replicas)


def linked(machine: Any, provider_id: str = "x://1") -> Any:
    """The node of a machine, with the annotation that the machine's API writes."""
    return node("n1").provider_id(provider_id).annotations({MACHINE: machine.build().key})


def pool(*references: tuple[str, str], ids: tuple[str, ...] = ("x://1",)) -> Any:
    listed = [{"name": name, "uid": uid} for name, uid in references]
    made = machine_pool().limits(0, 9).replicas(1)
    return made.merge(spec={"providerIDList": list(ids)}, status={"nodeRefs": listed})


class Seeming(NamedTuple):
    """Objects with one or more nodes that seem to be those of machines.

    ``machines`` are the states of all machines of each group by its name, with the name of the confirmed node or
    ``~`` and that of the unconfirmed one. ``upcoming`` is the number of upcoming nodes of all groups.
    """

    objects: Callable[[], list[Any]]
    machines: dict[str, list[str]]
    upcoming: int = 0
    problems: tuple[str, ...] = ()


def _unlinked() -> list[Any]:
    owner = workers()
    return [owner, owner.machine("m").provider_id("x://1"), node("n1").provider_id("x://1")]


def _unlinked_with_another_id() -> list[Any]:
    """The API writes the region only into the node's ID."""
    owner = workers()
    return [owner, owner.machine("m").provider_id("x:///1"), node("n1").provider_id("x://region/1")]


def _same_number_in_two_groups() -> list[Any]:
    """The first instance of another scale set has a node, and this one is being created."""
    owner, other = workers(), machine_set("other").limits(0, 9).replicas(1)
    linked_machine = other.machine("o").on("n1").provider_id("x://other/0")
    return [
        owner,
        other,
        linked_machine,
        owner.machine("m").provider_id("x://workers/0"),
        linked(linked_machine, "x://other/0"),
    ]


def _unlinked_and_failed() -> list[Any]:
    owner, machine, there = _unlinked()
    return [owner, machine.failed(), there]


def _without_node() -> list[Any]:
    owner, machine, _ = _unlinked()
    return [owner, machine, node("n1").provider_id("x://2")]


def _recreated() -> list[Any]:
    owner = workers()
    return [owner, owner.machine("m").on("n1", uid="old").provider_id("x://1"), node("n1").provider_id("x://1")]


def _recreated_without_provider_id() -> list[Any]:
    owner = workers()
    return [owner, owner.machine("m").on("n1", uid="old"), node("n1")]


def _renamed() -> list[Any]:
    owner = workers()
    machine = owner.machine("m").on("n0")
    return [owner, machine, node("n1").annotations({MACHINE: machine.build().key})]


def _name_and_provider_id() -> list[Any]:
    """Cluster API's v1beta2 references nodes by name."""
    owner = cluster_machine_set("workers").limits(0, 9).replicas(1)
    machine = owner.machine("m").provider_id("x://1").merge(status={"nodeRef": {"name": "n1"}})
    return [owner, machine, node("n1").provider_id("x://1")]


def _copied() -> list[Any]:
    real, forged = workers(), machine_set("aaa", "tenant").limits(0, 9).replicas(1)
    machine = real.machine("m").on("n1").provider_id("x://1")
    return [real, forged, machine, forged.machine("m").provider_id("x://1"), linked(machine)]


def _copied_and_unlinked() -> list[Any]:
    return [*_copied()[:2], *(each.machine("m").provider_id("x://1") for each in _copied()[:2]), _unlinked()[2]]


def _same_id_in_one_group() -> list[Any]:
    owner = workers(replicas=2)
    machine = owner.machine("m").on("n1").provider_id("x://1")
    return [owner, machine, owner.machine("o").provider_id("x://1"), linked(machine)]


def _two_nodes() -> list[Any]:
    return [*_unlinked(), node("n2").provider_id("x://1")]


def _uid_of_a_linked_node() -> list[Any]:
    """The forged machine has all fields that pods can read: name, UID and provider ID of the node."""
    objects = _copied()
    objects[3].on("n1")
    return objects


def _pool_with_machines() -> list[Any]:
    owner = pool()
    machine = owner.machine("m").provider_id("x://1")
    return [owner, machine, node("n1").provider_id("x://1")]


def _pool_with_a_machine_and_a_stale_node() -> list[Any]:
    owner = pool()
    machine = owner.machine("m").on("n2").provider_id("x://1")
    return [owner, machine, *(node(name).provider_id("x://1") for name in ("n1", "n2"))]


def _pool_with_a_stale_node() -> list[Any]:
    """The instance x://2 has no node."""
    owner = pool(("n2", "node--n2"), ids=("x://1", "x://2")).replicas(2)
    return [owner, *(node(name).provider_id("x://1") for name in ("n1", "n2"))]


def _pool_of_a_tenant() -> list[Any]:
    real = workers()
    machine = real.machine("m").on("n1").provider_id("x://1")
    return [real, pool(("n1", "node--n1")), machine, linked(machine)]


SEEMING = {
    "not linked yet": Seeming(_unlinked, {"workers": ["Unconfirmed ~n1"]}),
    "not linked yet, another provider ID": Seeming(_unlinked_with_another_id, {"workers": ["Unconfirmed ~n1"]}),
    "instance number of another group": Seeming(
        _same_number_in_two_groups, {"other": ["Running n1"], "workers": ["Pending"]}, upcoming=1
    ),
    "not linked and failed": Seeming(_unlinked_and_failed, {"workers": ["Failed ~n1"]}),
    "no node has the provider ID": Seeming(_without_node, {"workers": ["Pending"]}, upcoming=1),
    "recreated": Seeming(_recreated, {"workers": ["Unconfirmed ~n1"]}, problems=("NodeIdentityMismatch",)),
    "recreated, no provider ID": Seeming(
        _recreated_without_provider_id, {"workers": ["Unconfirmed ~n1"]}, problems=("NodeIdentityMismatch",)
    ),
    "registered again under a new name": Seeming(_renamed, {"workers": ["Unconfirmed ~n1"]}),
    "name and provider ID": Seeming(
        _name_and_provider_id, {"workers": ["Unconfirmed ~n1"]}, problems=("NodeNotConfirmed",)
    ),
    "copied by a tenant": Seeming(_copied, {"workers": ["Running n1"], "aaa": ["Unconfirmed ~n1"]}),
    "copied by a tenant, not linked yet": Seeming(
        _copied_and_unlinked, {"workers": ["Unconfirmed ~n1"], "aaa": ["Unconfirmed ~n1"]}
    ),
    "all fields copied by a tenant": Seeming(
        _uid_of_a_linked_node,
        {"workers": ["Running n1"], "aaa": ["Unconfirmed ~n1"]},
        problems=("NodeIdentityMismatch",),
    ),
    "twice in one group": Seeming(_same_id_in_one_group, {"workers": ["Running n1", "Unconfirmed ~n1"]}),
    "on two nodes": Seeming(_two_nodes, {"workers": ["Unconfirmed ~n1"]}),
    "MachinePool, referenced": Seeming(
        lambda: [pool(("n1", "node--n1")), node("n1").provider_id("x://1")], {"mp": ["Running n1"]}
    ),
    "MachinePool, listed": Seeming(lambda: [pool(), node("n1").provider_id("x://1")], {"mp": ["Unconfirmed ~n1"]}),
    "MachinePool, recreated": Seeming(
        lambda: [pool(("n1", "old")), node("n1").provider_id("x://1")], {"mp": ["Unconfirmed ~n1"]}
    ),
    "MachinePool, recreated under a new name": Seeming(
        lambda: [pool(("n0", "old")), node("n1").provider_id("x://1")], {"mp": ["Unconfirmed ~n1"]}
    ),
    "MachinePool, replaced": Seeming(
        lambda: [pool(("n1", "node--n1")), node("n1").provider_id("x://2")], {"mp": []}, upcoming=1
    ),
    "MachinePool with Machines": Seeming(_pool_with_machines, {"mp": ["Unconfirmed ~n1"]}),
    "MachinePool with Machines and a stale node": Seeming(
        _pool_with_a_machine_and_a_stale_node, {"mp": ["Running n2"]}
    ),
    "MachinePool with a stale node": Seeming(_pool_with_a_stale_node, {"mp": ["Running n2"]}, upcoming=1),
    "MachinePool of a tenant": Seeming(_pool_of_a_tenant, {"workers": ["Running n1"], "mp": ["Unconfirmed ~n1"]}),
}


class TestSeemingNodes:
    """A provider ID confirms no machine, but a machine whose node may exist is neither upcoming nor removed."""

    @pytest.mark.parametrize("case", SEEMING.values(), ids=SEEMING)
    def test_membership(self, case: Seeming) -> None:
        made = found(*case.objects(), namespaces=LISTED)

        def described(machine: GroupMachine) -> str:
            unconfirmed = f"~{machine.unconfirmed_node}" if machine.unconfirmed_node else ""
            return f"{machine.state} {machine.node}{unconfirmed}".rstrip()

        assert {group.name: [described(each) for each in group.machines] for group in made.all} == case.machines
        assert sum(group.upcoming for group in made.all) == case.upcoming
        assert tuple(reasons(made)) == case.problems
        assert set(made.of_node) == {node for group in made.all for node in group.nodes}

    @pytest.mark.parametrize("case", SEEMING.values(), ids=SEEMING)
    def test_unconfirmed_machines_are_never_removed(self, case: Seeming) -> None:
        """Neither a day later, when all deadlines have passed, nor with their idle node; idle confirmed nodes are."""
        snapshot = Snapshot([each.build() for each in case.objects()])
        discovery = NodeGroupAutoDiscovery(namespaces=LISTED)
        made = build_groups(snapshot, discovery=discovery)
        nodes = {name: snapshot.nodes.node(slot) for name, slot in snapshot.nodes.slot_of.items()}
        unconfirmed = {each.key for group in made.all for each in group.machines if each.unconfirmed_node}
        spec = ClusterAutoscalerSpec(node_group_auto_discovery=discovery)

        state = AutoscalerState()
        for time in (REPORTED, REPORTED + 3600.0, REPORTED + 86_400.0, REPORTED + 86_401.0):
            state, findings = advance(state, made, nodes, spec, now=time)
            for correction in plan_corrections(findings, made):
                assert not unconfirmed.intersection(each.key for each in correction.machines)
        later = REPORTED + 86_400.0
        status = status_with_state(AutoscalerState(unneeded=dict.fromkeys(nodes, REPORTED)))
        planned, _ = plan(snapshot, PlanInputs(spec, later, status=status))
        assert {each.node for each in planned.scaling if isinstance(each, RemoveNode)} == set(made.of_node)

    def test_node_is_kept_and_the_group_is_named(self, golden: Golden) -> None:
        snapshot = Snapshot([each.build() for each in _unlinked()])

        planned, _ = plan(snapshot, PlanInputs(ClusterAutoscalerSpec(), 1_795_176_000.0))

        (kept,) = [each for each in planned.kept if each.kind == "Node"]
        assert (kept.name, kept.reason) == ("n1", "NotAutoscaled")
        golden(kept.message)


FORGERIES = (
    lambda machine: machine.on("n1"),
    lambda machine: machine.merge(status={"nodeRef": {"name": "n1"}}),
    lambda machine: machine.merge(status={"nodeRef": {"name": "n1", "uid": ""}}),
    lambda machine: machine.provider_id("x://1"),
    lambda machine: machine.provider_id("y://1"),
    lambda machine: machine.labels({"cluster.x-k8s.io/cluster-name": "prod"}),
    lambda machine: machine.merge(spec={"clusterName": "prod"}),
    lambda machine: machine.annotations({MACHINE: THEIRS}),
)


@given(
    st.sets(st.sampled_from(FORGERIES)),
    st.sampled_from(("MachineSet", "MachineDeployment", "MachineSet of Cluster API")),
    st.booleans(),
)
def test_tenants_machine_never_takes_a_node_that_names_its_machine(
    forgeries: set[Any], kind: str, deleting: bool
) -> None:
    """Arbitrary machines in the namespace of a tenant, younger than the real ones."""
    real = machine_set("workers-a").limits(0, 9).replicas(1)
    there = node("n1").provider_id("x://1").annotations({MACHINE: f"{real.namespace}/workers-a-1"})
    if kind == "MachineSet":
        forged = [machine_set("aaa", "tenant").limits(0, 9).replicas(1)]
        forged.append(forged[0].machine("workers-a-1"))
    elif kind == "MachineDeployment":
        forged = with_machine(deployment("aaa", "tenant"), "n1")
    else:
        forged = [cluster_machine_set("aaa", "tenant").limits(0, 9).replicas(1)]
        forged.append(forged[0].machine("workers-a-1"))
    for forge in forgeries:
        forge(forged[-1].created(NEW))
    if deleting:
        forged[-1].deleted()

    made = found(real, real.machine("workers-a-1").on("n1").created(OLD), there, *forged, namespaces=LISTED)

    assert made.of_node == {"n1": "MachineSet/openshift-machine-api/workers-a"}


class TestClusters:
    def two(self) -> list[Any]:
        """Machines of two clusters in one management cluster, and a node that could belong to either."""
        ours = with_machine(deployment("ours", "a", cluster="prod"), cluster="prod")
        theirs = with_machine(deployment("theirs", "b", cluster="dev"), "worker-2", cluster="dev")
        return [*ours, *theirs, node("worker-1"), node("worker-2")]

    def test_single_cluster_name_is_this_cluster(self) -> None:
        made = found(*with_machine(deployment(cluster="prod"), cluster="prod"), node("worker-1"))

        assert list(made.of_node) == ["worker-1"]
        assert made.problems == ()

    def test_several_clusters_without_setting_pause_all_groups(self) -> None:
        made = found(*self.two(), machine_set().limits(0, 9))

        assert reasons(made) == ["SeveralClusters"]
        assert {group.kind: bool(group.paused) for group in made.all} == {
            "MachineDeployment": True,
            "MachineSet": False,
        }

    @pytest.mark.parametrize("namespaces", [(), ("a",)])
    def test_groups_of_other_clusters_are_no_groups(self, namespaces: tuple[str, ...]) -> None:
        made = found(*self.two(), cluster_name="prod", namespaces=namespaces)

        assert made.of_node == {"worker-1": "MachineDeployment/a/ours"}
        assert [group.paused for group in made.all] == [""]
        assert made.problems == ()

    def test_namespaces_alone_select_groups(self) -> None:
        made = found(*self.two(), namespaces=("b",))

        assert made.of_node == {"worker-2": "MachineDeployment/b/theirs"}
        assert made.problems == ()

    def test_object_without_cluster_name_is_not_this_clusters(self) -> None:
        made = found(*with_machine(deployment()), node("worker-1"), cluster_name="prod")

        assert made.all == ()

    def test_cluster_label_counts_too(self) -> None:
        owner = deployment().labels({"cluster.x-k8s.io/cluster-name": "dev"})

        assert found(*with_machine(owner), node("worker-1"), cluster_name="prod").all == ()

    def test_machine_of_another_cluster_than_its_owner_does_not_count(self) -> None:
        made = found(*with_machine(deployment(cluster="prod"), cluster="dev"), node("worker-1"), cluster_name="prod")

        assert [group.machines for group in made.all] == [()]

    def test_node_of_another_cluster_does_not_count(self) -> None:
        there = node("worker-1").annotations({"cluster.x-k8s.io/cluster-name": "dev"})

        made = found(*with_machine(deployment(cluster="prod"), cluster="prod"), there)

        assert made.of_node == {}

    @pytest.mark.parametrize(
        ("labels", "settings", "groups_", "problems"),
        [
            (("x", "x"), {}, 2, []),
            (("x", "y"), {}, 2, ["SeveralClusters"]),
            (("x", "y"), {"cluster_name": "x"}, 1, []),
            (("x", ""), {"cluster_name": "x"}, 2, []),
        ],
        ids=["one", "several", "the setting", "no label"],
    )
    def test_cluster_label_of_the_machine_api_counts_if_present(
        self, labels: tuple[str, str], settings: dict[str, Any], groups_: int, problems: list[str]
    ) -> None:
        key = "machine.openshift.io/cluster-api-cluster"
        sets = [machine_set(f"s{place}").limits(0, 9) for place in range(2)]
        for each, label in zip(sets, labels, strict=True):
            each.labels({key: label} if label else {})

        made = found(*sets, **settings)

        assert len(made.all) == groups_
        assert reasons(made) == problems
        assert all(bool(group.paused) == bool(problems) for group in made.all)

    def test_machine_autoscaler_of_another_clusters_group_is_reported(self) -> None:
        target = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "name": "theirs"}
        autoscaler = decode_machine_autoscaler(
            {
                "apiVersion": "autoscaling.openshift.io/v1beta1",
                "kind": "MachineAutoscaler",
                "metadata": {"name": "x", "namespace": "b"},
                "spec": {"minReplicas": 0, "maxReplicas": 9, "scaleTargetRef": target},
            }
        )

        made = found(*self.two(), autoscalers=(autoscaler,), cluster_name="prod")

        assert reasons(made) == ["TargetUnsupported"]

    def test_condition_reports_several_clusters(self) -> None:
        degraded = conditions_for(found(*self.two()))["Degraded"]

        assert (degraded.status, degraded.reason) == (True, "SeveralClusters")


def conditions_for(groups: Groups) -> dict[str, ConditionUpdate]:
    report = IterationReport(
        started=REPORTED,
        finished=REPORTED,
        mode="Act",
        generation=1,
        plan=Plan(now=REPORTED),
        groups=groups,
        state=AutoscalerState(),
    )
    return {each.type: each for each in conditions_of(report, ClusterAutoscalerStatus())}


def linked_node(name: str = "n1", namespace: str = "clusters", cluster: str = "prod") -> Any:
    """A node with the annotations that Cluster API's controller writes."""
    keys = {
        "cluster.x-k8s.io/machine": name,
        "cluster.x-k8s.io/cluster-namespace": namespace,
        "cluster.x-k8s.io/cluster-name": cluster,
    }
    return node(name).annotations({key: value for key, value in keys.items() if value})


class TestUnconfirmedGroups:
    """A tenant may write objects of Cluster API in the tenant's namespace, and knows the cluster's name."""

    OURS = "MachineDeployment/clusters/md"

    def tenants(self, *, cluster: str = "prod", name: str = "aaa") -> Any:
        made = deployment(name, "tenant", cluster=cluster).replicas(9)
        return made.annotations({"capacity.cluster-autoscaler.kubernetes.io/cpu": "64"})

    @pytest.mark.parametrize("cluster", ["prod", "theirs", ""])
    @pytest.mark.parametrize("settings", [{}, {"cluster_name": "prod"}], ids=["no setting", "clusterName"])
    def test_tenants_objects_are_no_groups_and_pause_none(self, cluster: str, settings: dict[str, str]) -> None:
        made = found(deployment(cluster="prod"), linked_node(), self.tenants(cluster=cluster), **settings)

        assert {group.id: group.paused for group in made.all} == {self.OURS: ""}

    @pytest.mark.parametrize(
        ("cluster", "settings", "problems"),
        [
            ("prod", {}, ["NodeGroupNotConfirmed"]),
            ("theirs", {}, ["NodeGroupNotConfirmed"]),
            ("prod", {"cluster_name": "prod"}, ["NodeGroupNotConfirmed"]),
            ("theirs", {"cluster_name": "prod"}, []),
            ("prod", {"namespaces": ("clusters",)}, []),
        ],
    )
    def test_problem_names_the_object_unless_the_settings_exclude_it(
        self, cluster: str, settings: dict[str, Any], problems: list[str]
    ) -> None:
        made = found(deployment(cluster="prod"), linked_node(), self.tenants(cluster=cluster), **settings)

        assert reasons(made) == problems
        assert all("tenant/aaa" in f"{each.namespace}/{each.name} {each.message}" for each in made.problems)

    def test_problems_do_not_multiply_with_the_objects(self, golden: Golden) -> None:
        many = [self.tenants(name=f"aaa-{number}") for number in range(20)]

        made = found(deployment(cluster="prod"), linked_node(), *many)

        (problem,) = made.problems
        golden(problem.message)

    def test_condition_names_the_objects_of_each_cluster(self, golden: Golden) -> None:
        made = found(deployment(cluster="prod"), self.tenants(cluster="theirs"))

        golden(next(each.message for each in made.problems if each.reason == "SeveralClusters"))

    def test_tenants_objects_are_reported_in_ready_and_not_in_degraded(self, golden: Golden) -> None:
        """The tenant's objects name two more clusters, and one has an invalid size."""
        tenants = [self.tenants(), self.tenants(cluster="theirs", name="bbb"), self.tenants(name="ccc").replicas(-1)]

        conditions = conditions_for(found(deployment(cluster="prod"), linked_node(), *tenants))

        assert (conditions["Degraded"].status, conditions["Degraded"].reason) == (False, "AllWell")
        assert conditions["Ready"].status
        golden(conditions["Ready"].message)

    def test_several_clusters_without_a_paused_group_are_no_problem(self) -> None:
        """The tenant's machines belong to no node group, and no node names its machine."""
        orphans = [
            machine_deployment(name, "tenant").replicas(1).merge(spec={"clusterName": name}) for name in ("x", "y")
        ]

        made = found(*orphans, machine_set().limits(0, 9), node("n1"))

        assert (len(made.by_id), made.problems) == (1, ())

    def test_several_clusters_in_the_namespace_of_the_nodes(self) -> None:
        """Objects in the same namespace belong to this cluster only if its nodes name their cluster."""
        both = deployment(cluster="prod"), deployment("dev", cluster="dev")

        one, none = found(*both, linked_node()), found(*both, linked_node(cluster=""))

        assert ({group.id for group in one.all}, reasons(one)) == ({self.OURS}, ["NodeGroupNotConfirmed"])
        assert reasons(none) == ["SeveralClusters"]
        assert [bool(group.paused) for group in none.all] == [True, True]

    def test_objects_of_an_api_without_nodes_pause_no_other_api(self) -> None:
        """All nodes belong to the Machine API; only tenants have objects of Cluster API, which name two clusters."""
        ours = machine_set().limits(0, 9)
        there = node("n1").annotations({MACHINE: f"{ours.namespace}/m"})

        made = found(ours, there, self.tenants(), self.tenants(cluster="theirs", name="bbb"))

        assert {group.id: group.paused for group in made.all} == {f"MachineSet/{ours.namespace}/{ours.name}": ""}

    def test_uid_of_a_node_without_annotations_gives_a_tenant_no_node(self) -> None:
        """A tenant reads the UID in the token of a pod. Another node shows where the machines of this cluster are."""
        bare = node("n2").uid("uid-of-n2")
        forged = with_machine(self.tenants(), "n2", cluster="prod", uid="uid-of-n2")

        made = found(deployment(cluster="prod"), linked_node(), bare, *forged)

        assert made.of_node == {}

    @pytest.mark.parametrize("settings", [{"namespaces": ("tenant",)}, {}], ids=["namespaces", "MachineAutoscaler"])
    def test_administrator_confirms_a_namespace_without_nodes(self, settings: dict[str, Any]) -> None:
        target = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "name": "aaa"}
        autoscaler = {
            "apiVersion": "autoscaling.openshift.io/v1beta1",
            "kind": "MachineAutoscaler",
            "metadata": {"name": "x", "namespace": "tenant"},
            "spec": {"minReplicas": 0, "maxReplicas": 9, "scaleTargetRef": target},
        }
        autoscalers = () if settings else (decode_machine_autoscaler(autoscaler),)

        made = found(self.tenants(), linked_node(), autoscalers=autoscalers, **settings)

        assert [group.id for group in made.all] == ["MachineDeployment/tenant/aaa"]

    def test_new_groups_next_to_linked_machines_need_no_node(self) -> None:
        made = found(deployment("new", cluster="prod"), linked_node())

        assert [group.id for group in made.all] == ["MachineDeployment/clusters/new"]
        assert made.problems == ()

    def test_namespace_remains_confirmed_without_nodes_while_it_has_objects(self) -> None:
        """All nodes belong to the Machine API after trimtab has removed the last node of Cluster API."""
        there = node("n1").annotations({MACHINE: "openshift-machine-api/m"})
        ours, tenants = deployment(cluster="prod").replicas(0), self.tenants()
        before = found(ours, linked_node(), tenants)

        def later(*objects: Any, confirmed: tuple[str, ...]) -> Groups:
            return build_groups(Snapshot([each.build() for each in objects]), confirmed=confirmed)

        after = later(ours, there, tenants, confirmed=before.confirmed_namespaces)
        gone = later(tenants, there, confirmed=after.confirmed_namespaces)

        assert before.confirmed_namespaces == after.confirmed_namespaces == ("clusters/prod",)
        assert list(after.by_id) == [self.OURS]
        assert (gone.by_id, gone.confirmed_namespaces) == ({}, ())

    @pytest.mark.parametrize("others", [(), (node("n1").annotations({MACHINE: "openshift-machine-api/m"}),)])
    def test_cluster_remains_confirmed_without_nodes_while_it_has_objects(self, others: tuple[Any, ...]) -> None:
        """Its namespace also holds the objects of another cluster."""
        ours, theirs = deployment(cluster="prod"), deployment("dev", cluster="dev")
        first = found(ours, theirs, linked_node())

        after, gone, excluded = (
            build_groups(
                Snapshot([each.build() for each in (*objects, *others)]),
                discovery=NodeGroupAutoDiscovery(namespaces=namespaces),
                confirmed=first.confirmed_namespaces,
            )
            for objects, namespaces in (((ours, theirs), ()), ((theirs,), ()), ((ours,), ("others",)))
        )

        assert {group.id: group.paused for group in after.all} == {self.OURS: ""}
        assert after.confirmed_namespaces == first.confirmed_namespaces == ("clusters/prod",)
        assert gone.confirmed_namespaces == excluded.confirmed_namespaces == ()

    @pytest.mark.parametrize(
        ("annotations", "groups"),
        [
            ({MACHINE: "worker-1"}, 2),
            ({MACHINE: "clusters/"}, 2),
            ({MACHINE: f"{'x' * 300}/m"}, 2),
            ({MACHINE: "Not.A.Namespace/m"}, 2),
            ({"cluster.x-k8s.io/cluster-namespace": "x" * 64}, 2),
            ({"cluster.x-k8s.io/cluster-name": "x" * 64}, 2),
            ({MACHINE: "clusters/m"}, 1),
            ({MACHINE: "openshift-machine-api/m"}, 0),
            ({"cluster.x-k8s.io/cluster-name": "prod.example"}, 0),
        ],
    )
    def test_invalid_annotations_confirm_nothing(self, annotations: dict[str, str], groups: int) -> None:
        """The status contains only names of namespaces with objects, so that the API server accepts it."""
        made = found(deployment(cluster="prod"), self.tenants(), node("n1").annotations(annotations))

        assert len(made.by_id) == groups
        assert made.confirmed_namespaces == (("clusters",) if groups == 1 else ())

    def test_confirmed_namespaces_survive_a_restart(self) -> None:
        """A new process reads them from the status, and iterations keep them."""
        there = node("n1").annotations({MACHINE: "openshift-machine-api/m"})
        snapshot = Snapshot([each.build() for each in (deployment().replicas(0), self.tenants(), there)])
        state = state_from_status(status_with_state(AutoscalerState(confirmed_namespaces=("clusters",))))
        status = ClusterAutoscalerStatus()

        result = plan_iteration(
            snapshot,
            IterationInput(ClusterAutoscalerSpec(), status, state, REPORTED, (), ExternalGroups()),
        )

        assert list(result.groups.by_id) == [self.OURS]
        assert result.state.confirmed_namespaces == ("clusters",)

    def test_nodes_of_external_providers_confirm_no_namespace(self) -> None:
        provider = ExternalGroup("external", "a", 0, 9, 1, machines=(ExternalMachine("cloud://n1"),))
        snapshot = Snapshot([self.tenants().build(), node("n1").provider_id("cloud://n1").build()])

        for groups in ((provider,), (replace(provider, machines=()),), ()):
            made = build_groups(snapshot, external=ExternalGroups(groups, configured=True))

            assert (list(made.by_id), reasons(made)) == (["external/a"] * len(groups), ["NodeGroupNotConfirmed"])

    def test_tenants_upcoming_nodes_delay_no_scale_up(self) -> None:
        """The tenant's nodes would be large enough for all pods, and will never exist."""
        ours = group("workers")
        there = node("n1").annotations({MACHINE: f"{ours.namespace}/m"}).allocatable(cpu="1m", memory="1Mi")
        tenants = self.tenants().capacity(cpu="64", memory="256Gi")

        made = planned(ours, there, tenants, *pending_pods(4))

        assert sizes(made) == {"workers": (0, 1)}
        assert not made.kept or {each.reason for each in made.kept} == {"NodeGroupNotConfirmed"}


def capi(uid: str = "") -> list[Any]:
    """A management cluster with a forged machine of another cluster for each node."""
    annotation = "cluster.x-k8s.io/cluster-api-autoscaler-node-group"
    theirs = {"clusterName": "somebody-elses-cluster"}
    api = {"apiVersion": "cluster.x-k8s.io/v1beta1"}

    def owner(kind: str, name: str, owner_uid: str) -> dict[str, Any]:
        return {"ownerReferences": [{**api, "kind": kind, "name": name, "uid": owner_uid, "controller": True}]}

    def there(name: str) -> dict[str, Any]:
        since = {"trimtab.dev/unneeded-since": "2026-11-19T00:00:00Z"} if name == "worker-1" else {}
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-01T00:00:00Z"}
        metadata: dict[str, Any] = {"name": name, "creationTimestamp": "2026-11-01T00:00:00Z", "annotations": since}
        metadata |= {"uid": uid + name} if uid else {}
        status = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}, "conditions": [ready]}
        return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}

    where = {"namespace": "tenant-clusters"}
    sizes = {f"{annotation}-min-size": "0", f"{annotation}-max-size": "10"}
    deployed = {
        **api,
        "kind": "MachineDeployment",
        "metadata": {**where, "name": "md-0", "uid": "md", "annotations": sizes},
    }
    sets = {**api, "kind": "MachineSet", "metadata": {**where, "name": "md-0-x", "uid": "ms"}}
    sets["metadata"] |= owner("MachineDeployment", "md-0", "md")
    machine = {**api, "kind": "Machine", "metadata": {**where, "name": "md-0-x-1", "uid": "m"}, "spec": theirs}
    machine["metadata"] |= owner("MachineSet", "md-0-x", "ms")
    reference = {"kind": "Node", "name": "worker-1", "uid": "node-of-the-other-cluster"}
    machine["status"] = {"phase": "Running", "nodeRef": reference}
    spec = {**theirs, "replicas": 1}
    return [there("worker-1"), there("worker-2"), {**deployed, "spec": spec}, {**sets, "spec": spec}, machine]


@pytest.mark.parametrize("uid", ["", "uid-of-"])
def test_node_claimed_by_a_foreign_machine_is_not_removed(uid: str) -> None:
    snapshot = Snapshot([decode_object(manifest) for manifest in capi(uid)])
    made, _ = plan(snapshot, PlanInputs(ClusterAutoscalerSpec(), 1_795_176_000.0))

    assert not made.scaling
    assert {each.name: each.reason for each in made.kept if each.kind == "Node"} == {
        "worker-1": "NotAutoscaled",
        "worker-2": "NotAutoscaled",
    }


@given(st.permutations(range(5)), st.booleans())
def test_groups_do_not_depend_on_the_order_of_objects(order: list[int], oldest_first: bool) -> None:
    times = (OLD, NEW) if oldest_first else (NEW, OLD)
    sets = [machine_set(name, "default").limits(0, 9) for name in ("a", "b")]
    machines = [each.machine(f"{each.name}-1").on("n1").created(time) for each, time in zip(sets, times, strict=True)]
    objects = [*sets, *machines, node("n1")]

    made = found(*(objects[place] for place in order))

    assert made.of_node == {"n1": f"MachineSet/default/{'a' if oldest_first else 'b'}"}
    assert list(itertools.chain(reasons(made))) == ["NodeClaimedTwice"]

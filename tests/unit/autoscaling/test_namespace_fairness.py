"""Limits are shared among namespaces, so that no tenant prevents nodes for others."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import HOSTNAME, ZONE, daemon_set, node, pod
from tests.unit.autoscaling.scale_up_helpers import group, planned
from trimtab.autoscaling.scale_up import ScaleUpPlan
from trimtab.autoscaling.scale_up.namespace_shares import NamespaceShares, node_shares
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import ResourceList

EARLY, LATE = "2026-11-20T10:00:00Z", "2026-11-20T11:59:00Z"


def pending(namespace: str, count: int, *, cpu: str = "3", created: str = LATE, prefix: str = "p") -> list[Any]:
    return [
        pod(f"{prefix}-{each:03}", namespace)
        .cpu(cpu)
        .memory("1Gi")
        .labels(app=namespace)
        .created(created)
        .unschedulable()
        for each in range(count)
    ]


def nodes_of(made: ScaleUpPlan) -> Counter[str]:
    """The number of planned nodes with pods of each namespace."""
    return Counter(namespace for each in made.nodes for namespace in {pod.namespace for pod in each.pods})


def helped(made: ScaleUpPlan) -> Counter[str]:
    return Counter(pod.namespace for each in made.nodes for pod in each.pods)


def reasons_of(made: ScaleUpPlan, namespace: str) -> set[str]:
    return {each.reason for each in made.kept if each.namespace == namespace and each.kind == "Pod"}


SHORT: tuple[tuple[Any, dict[str, Any]], ...] = (
    (group(most=6), {}),
    (group(most=99), {"resourceLimits": {"maxNodesTotal": 6}}),
    (group(most=99), {"resourceLimits": {"cores": {"min": 0, "max": 24}}}),
)


class TestShortLimits:
    @pytest.mark.parametrize(("owner", "spec"), SHORT, ids=["the group", "nodes", "cores"])
    @pytest.mark.parametrize("tenant", ["aaa", "tenant"])
    def test_tenants_200_pods_leave_nodes_for_others(self, owner: Any, spec: dict[str, Any], tenant: str) -> None:
        made = planned(owner, *pending(tenant, 200, created=EARLY), *pending("bank", 4), **spec)

        assert nodes_of(made) == {"bank": 3, tenant: 3}

    def test_unused_share_goes_to_other_namespaces(self) -> None:
        made = planned(group(most=9), *pending("tenant", 200), *pending("bank", 2), *pending("shop", 3))

        assert nodes_of(made) == {"bank": 2, "shop": 3, "tenant": 4}

    def test_single_node_goes_to_the_namespace_with_the_fewest_nodes(self) -> None:
        owner = group(size=1, most=2)
        there = [owner.machine("m").on("n1"), node("n1").allocatable(cpu="4"), pod("old", "tenant").on("n1").cpu("3")]

        made = planned(owner, *there, *pending("tenant", 200, created=EARLY), *pending("zoo", 1))

        assert nodes_of(made) == {"zoo": 1}

    def test_oldest_pod_decides_among_equals(self) -> None:
        made = planned(group(most=1), *pending("aaa", 9), *pending("bank", 1, created=EARLY))

        assert nodes_of(made) == {"bank": 1}

    def test_higher_priority_comes_first(self) -> None:
        important = [each.priority(1000) for each in pending("bank", 5)]

        made = planned(group(most=6), *pending("tenant", 200), *important)

        assert nodes_of(made) == {"bank": 5, "tenant": 1}

    @pytest.mark.parametrize("depends", [lambda each: each.anti_affinity(ZONE), lambda each: each.spread(ZONE)])
    def test_coscheduled_pods_get_their_share(self, depends: Any) -> None:
        owners = [group(name, most=2).node_labels({ZONE: name}) for name in "abc"]

        made = planned(*owners, *pending("tenant", 200), *(depends(each) for each in pending("bank", 3)))

        assert nodes_of(made) == {"bank": 3, "tenant": 3}

    def test_pods_join_new_nodes_of_other_namespaces(self) -> None:
        made = planned(group(most=2), *pending("tenant", 200), *pending("bank", 1), *pending("zoo", 2, cpu="1"))

        assert len(made.nodes) == 2
        assert helped(made)["zoo"] == 2
        assert helped(made)["bank"] == 1

    def test_without_shortage_nodes_are_not_shared_out(self) -> None:
        wanting = [*pending("tenant", 4, cpu="1"), *pending("bank", 4, cpu="1")]

        made = planned(group(most=9), *wanting, resourceLimits={"maxNodesTotal": 9})

        assert len(made.nodes) == 2

    def test_message_names_the_limit(self) -> None:
        made = planned(group(most=6), *pending("tenant", 200), *pending("bank", 2))

        assert reasons_of(made, "tenant") == {"MaxSizeReached"}
        assert reasons_of(made, "bank") == set()


LIMIT: dict[str, Any] = {"resourceLimits": {"maxNodesPerNamespace": 3}}


class TestLimitPerNamespace:
    def test_no_namespace_exceeds_its_limit(self) -> None:
        made = planned(group(most=99), *pending("tenant", 200), *pending("bank", 2), **LIMIT)

        assert nodes_of(made) == {"bank": 2, "tenant": 3}
        assert reasons_of(made, "tenant") == {"MaxNodesPerNamespaceReached"}
        assert reasons_of(made, "bank") == set()

    def test_limit_applies_to_a_single_namespace(self) -> None:
        assert len(planned(group(most=99), *pending("tenant", 9), **LIMIT).nodes) == 3

    def test_zero_is_no_limit(self) -> None:
        made = planned(group(most=99), *pending("tenant", 9), resourceLimits={"maxNodesPerNamespace": 0})

        assert len(made.nodes) == 9

    def test_existing_and_upcoming_nodes_count(self) -> None:
        """A new process knows nothing else."""
        owner = group(size=2, most=99)
        there = [owner.machine("m").on("n1"), node("n1").allocatable(cpu="4"), pod("old", "tenant").on("n1").cpu("3")]

        made = planned(owner, *there, *pending("tenant", 9), **LIMIT)

        assert Counter(each.reason for each in made.kept if each.kind == "Pod") == {
            "FitsOnUpcomingNode": 1,
            "MaxNodesPerNamespaceReached": 7,
        }
        assert len(made.nodes) == 1

    def test_nodes_without_pods_of_the_namespace_do_not_count(self) -> None:
        owner = group(size=1, most=99)
        there = [owner.machine("m").on("n1"), node("n1").allocatable(cpu="4"), pod("old", "bank").on("n1").cpu("3")]

        assert len(planned(owner, *there, *pending("tenant", 9), **LIMIT).nodes) == 3

    @pytest.mark.parametrize("owner", [{}, {"api_version": "x/v1"}], ids=["no such DaemonSet", "API group"])
    def test_forged_owner_reference_does_not_evade_the_limit(self, owner: dict[str, str]) -> None:
        workers = group(size=10, most=99)
        there: list[Any] = [daemon_set("agent", "kube-system")]
        for each in range(10):
            there += [workers.machine(f"m{each}").on(f"n{each}"), node(f"n{each}").allocatable(cpu="4")]
            there.append(pod(f"old-{each}", "tenant").on(f"n{each}").cpu("3").owned_by("DaemonSet", "none", **owner))

        assert len(planned(workers, *there, *pending("tenant", 20), **LIMIT).nodes) == 0

    @pytest.mark.parametrize(
        ("namespace", "number", "counted"),
        [("tenant", 5, 5), ("tenant", 6, 0), ("kube-system", 5, 0)],
        ids=["half of the nodes", "most nodes", "system namespace"],
    )
    def test_pods_of_a_daemon_set_on_few_nodes_count(self, namespace: str, number: int, counted: int) -> None:
        """Its node affinity lists the nodes that the tenant uses."""
        status = {"desiredNumberScheduled": number, "currentNumberScheduled": number}
        there: list[Any] = [daemon_set("own", namespace).merge(status=status)]
        there += [node(f"n{each}").allocatable(cpu="4") for each in range(10)]
        there += [
            pod(f"own-{each}", namespace).on(f"n{each}").cpu("3").owned_by("DaemonSet", "own") for each in range(number)
        ]
        names = [f"n{each}" for each in range(10)]

        assert NamespaceShares(Snapshot([each.build() for each in there]), names, 3).used(namespace) == counted

    def test_pods_may_join_nodes_of_other_namespaces(self) -> None:
        few = {"resourceLimits": {"maxNodesPerNamespace": 1}}

        made = planned(group(most=99), *pending("bank", 1), *pending("tenant", 8, cpu="1"), **few)

        assert len(made.nodes) == 2
        assert helped(made) == {"bank": 1, "tenant": 5}


AMOUNTS = ResourceList(cpu=8000, memory=1 << 34, pods=110)


class TestNodeShares:
    def test_node_is_divided_by_requests(self) -> None:
        there = [
            pod("a", "x").cpu("3"),
            pod("b", "y").cpu("1"),
            pod("c", "kube-system").cpu("9").owned_by("DaemonSet", "agent"),
        ]

        found = node_shares([each.on("n").build() for each in there], AMOUNTS, {})

        assert found == {"x": 0.75, "y": 0.25}

    def test_pods_without_requests_use_the_node_too(self) -> None:
        found = node_shares([pod("a", "x").on("n").build()], AMOUNTS, {})

        assert found == {"x": 1.0}

    @pytest.mark.parametrize(
        ("made", "counts"),
        [
            (pod("a", "x").owned_by("DaemonSet", "agent"), False),
            (pod("a", "x").owned_by("DaemonSet", "agent", api_version="y/v1"), True),
            (pod("a", "x").owned_by("DaemonSet", "agent", uid="other"), True),
            (pod("a", "x").owned_by("DaemonSet", "none"), True),
            (pod("a", "x").owned_by("DaemonSet", "idle"), True),
            (pod("a", "x").mirror(), True),
            (pod("a", "kube-system").mirror(), False),
        ],
        ids=["its own", "API group", "UID", "no such DaemonSet", "no desired pods", "mirror pod", "static pod"],
    )
    def test_forged_owner_or_annotation_hides_no_pod(self, made: Any, counts: bool) -> None:
        sets = (daemon_set("agent", "x"), daemon_set("idle", "x").merge(status={"desiredNumberScheduled": 0}))
        known = {each.key: each for each in (one.build() for one in sets)}

        assert bool(node_shares([made.on("n").build()], AMOUNTS, known)) is counts

    def test_only_named_nodes_count(self) -> None:
        built = [node("n1"), node("n2"), pod("a", "x").on("n1").cpu("1"), pod("b", "x").on("n2").cpu("1")]

        shares = NamespaceShares(Snapshot([each.build() for each in built]), ["n1", "gone"], 1)

        assert (shares.used("x"), shares.allowed("x"), shares.allowed("y")) == (1.0, 0, 1)


WISHES = (
    lambda each: each.anti_affinity(HOSTNAME),
    lambda each: each.anti_affinity(ZONE),
    lambda each: each.spread(ZONE),
    lambda each: each.host_port(80),
    lambda each: each.node_selector({ZONE: "a"}),
    lambda each: each.priority(-5),
    lambda each: each.cpu("50m"),
    lambda each: each.cpu("9000"),
)


@st.composite
def hostile(draw: st.DrawFn) -> list[Any]:
    """Up to 60 pods of a tenant in several classes, older than those of other namespaces."""
    made: list[Any] = []
    for number in range(draw(st.integers(1, 3))):
        preferences = draw(st.lists(st.sampled_from(WISHES), max_size=2))
        namespace, count = draw(st.sampled_from(("aaa", "tenant"))), draw(st.integers(1, 20))
        pods = pending(namespace, count, created=EARLY, prefix=f"c{number}")
        for each in pods:
            for preference in preferences:
                preference(each)
        made += pods
    return made


@given(hostile(), st.integers(2, 8), st.sampled_from(("", "maxNodesTotal", "maxNodesPerNamespace")))
def test_other_namespaces_get_their_share_regardless_of_a_tenants_requests(
    tenant: list[Any], room: int, limit: str
) -> None:
    owners = [group(name, most=room if not limit else 50).node_labels({ZONE: name}) for name in ("a", "b")]
    spec: dict[str, Any] = {"resourceLimits": {limit: room}} if limit else {}

    made = planned(*owners, *tenant, *pending("bank", 2), **spec)
    alone = planned(*owners, *pending("bank", 2), **spec)

    namespaces = {each.manifest()["metadata"]["namespace"] for each in tenant} | {"bank"}
    total = 2 * room if not limit else room
    assert helped(alone)["bank"] == 2
    assert helped(made)["bank"] >= min(2, total // len(namespaces))
    if limit == "maxNodesTotal":
        assert len(made.nodes) <= room
    if limit == "maxNodesPerNamespace":
        whole = [{pod.namespace for pod in each.pods} for each in made.nodes]
        assert len(made.nodes) <= room * len(namespaces)
        assert all(whole.count({namespace}) <= room for namespace in namespaces)

"""Each filter on two nodes: the first passes or fails as the case says, with kube-scheduler's own words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import HOSTNAME, ZONE, expression, namespace, node, pod, selector
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.wire.projection.pod import RESTART_ALL
from trimtab.placement.filters.pods import InterPodAffinity
from trimtab.placement.placer import Placer

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"
NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
NODE_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
PORTS = "node(s) didn't have free ports for the requested pod ports"
TAINT = "node(s) had untolerated taint(s)"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NOT_LABELLED = {"matchExpressions": [expression("team", "DoesNotExist")]}
FEATURES = "node(s) didn't match Pod's required features"
CORDON = "node(s) were unschedulable"


def judged(things: list[Any], candidate: Any) -> dict[str, tuple[str, ...]]:
    """The reasons node by node; none where the pod fits."""
    placer = Placer(Snapshot([item.build() for item in things]))
    return {verdict.node: verdict.reasons for verdict in placer.node_verdicts(candidate.build())}


def in_zones() -> list[Any]:
    return [node("n1").zone("a"), node("n2").zone("a"), node("n3").zone("b")]


def app(name: str) -> Any:
    return pod(name).labels(app=name)


def restarting(action: str = "RestartAllContainers") -> Any:
    rules = [{"action": action, "exitCodes": {"operator": "In", "values": [42]}}]
    return pod("p").container("second", restartPolicy="Never", restartPolicyRules=rules)


CASES: list[Any] = [
    pytest.param(node("n1"), pod("p"), (), id="an empty node"),
    # NodeUnschedulable
    pytest.param(node("n1").merge(spec={"unschedulable": True}), pod("p"), (CORDON,), id="cordoned"),
    pytest.param(
        node("n1").cordoned(), pod("p").tolerates("node.kubernetes.io/unschedulable"), (), id="cordon tolerated"
    ),
    # TaintToleration
    pytest.param(node("n1").taint("a"), pod("p"), (TAINT,), id="tainted NoSchedule"),
    pytest.param(node("n1").taint("a", effect="NoExecute"), pod("p"), (TAINT,), id="tainted NoExecute"),
    pytest.param(node("n1").taint("a", effect="PreferNoSchedule"), pod("p"), (), id="tainted PreferNoSchedule"),
    pytest.param(node("n1").taint("a", "x"), pod("p").tolerates("a", "x"), (), id="tolerated by value"),
    pytest.param(node("n1").taint("a", "x"), pod("p").tolerates("a", "y"), (TAINT,), id="another value"),
    pytest.param(node("n1").taint("a"), pod("p").tolerates("a", effect="NoExecute"), (TAINT,), id="another effect"),
    pytest.param(node("n1").taint("a").taint("b"), pod("p").tolerates("a"), (TAINT,), id="one of two tolerated"),
    pytest.param(node("n1").taint("a").taint("b"), pod("p").tolerates(), (), id="all tolerated at once"),
    pytest.param(
        node("n1").taint("a", effect="NoExecute"), pod("p").tolerates("a", seconds=5), (), id="tolerated for a time"
    ),
    # NodeDeclaredFeatures
    pytest.param(node("n1"), restarting(), (FEATURES,), id="no feature declared"),
    pytest.param(node("n1").merge(status={"declaredFeatures": ["A"]}), restarting(), (FEATURES,), id="another feature"),
    pytest.param(node("n1").merge(status={"declaredFeatures": [RESTART_ALL, "A"]}), restarting(), (), id="declared"),
    pytest.param(node("n1"), restarting("Restart"), (), id="a rule that needs no feature"),
    # NodeAffinity
    pytest.param(node("n1"), pod("p").node_selector(disk="ssd"), (NODE_AFFINITY,), id="selector fails"),
    pytest.param(node("n1").labels(disk="ssd"), pod("p").node_selector(disk="ssd"), (), id="selector holds"),
    pytest.param(
        node("n1").labels(disk="ssd"),
        pod("p").node_selector(disk="ssd").node_affinity(expression("cpu", "Exists")),
        (NODE_AFFINITY,),
        id="selector holds and affinity fails",
    ),
    pytest.param(
        node("n1").labels(disk="ssd"),
        pod("p").node_affinity(expression("cpu", "Exists")).node_affinity(expression("disk", "In", "ssd")),
        (),
        id="one of two terms holds",
    ),
    pytest.param(
        node("n1").labels(gen="7"), pod("p").node_affinity(expression("gen", "Gt", "6")), (), id="greater than"
    ),
    pytest.param(
        node("n1"),
        pod("p").node_affinity(fields=(expression("metadata.name", "In", "n9"),)),
        (NAMED,),
        id="another name",
    ),
    pytest.param(
        node("n1").cordoned(),
        pod("p").node_affinity(fields=(expression("metadata.name", "In", "n9"),)).cpu("99"),
        (NAMED,),
        id="another name, before all that is wrong with the node",
    ),
    pytest.param(
        node("n1"),
        pod("p").node_affinity(expression("disk", "Exists"), fields=(expression("metadata.name", "In", "n1"),)),
        (NODE_AFFINITY,),
        id="the name holds and a label fails",
    ),
    pytest.param(
        node("n1"),
        pod("p")
        .node_affinity(expression("disk", "Exists"))
        .node_affinity(fields=(expression("metadata.name", "In", "n9"),)),
        (NODE_AFFINITY,),
        id="one term of two leaves other nodes open",
    ),
    pytest.param(
        node("n1"),
        pod("p").node_affinity(fields=(expression("metadata.name", "NotIn", "n1"),)),
        (NODE_AFFINITY,),
        id="any name but this",
    ),
    pytest.param(
        node("n1"),
        pod("p").node_affinity(
            fields=(expression("metadata.name", "In", "n1"), expression("metadata.name", "In", "n2"))
        ),
        ("pod affinity terms conflict",),
        id="two names at once",
    ),
    pytest.param(
        node("n1"),
        pod("p").merge(spec={"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}}),
        (NODE_AFFINITY,),
        id="required without terms matches nothing",
    ),
    pytest.param(
        node("n1"), pod("p").prefers_nodes(5, expression("disk", "Exists")), (), id="preferences don't filter"
    ),
    # NodeResourcesFit
    pytest.param(node("n1"), pod("p").cpu("4").memory("16Gi"), (), id="exactly what there is"),
    pytest.param(node("n1"), pod("p").cpu("4001m"), ("Insufficient cpu",), id="too much cpu"),
    pytest.param(
        node("n1"), pod("p").cpu("5").memory("17Gi"), ("Insufficient cpu", "Insufficient memory"), id="all are named"
    ),
    pytest.param(node("n1").allocatable(pods=0), pod("p"), ("Too many pods",), id="no pod more"),
    pytest.param(
        node("n1").allocatable({"x/b": 1, "x/a": 1, "pods": 0}),
        pod("p").requests({"x/b": "2", "x/a": "2", "ephemeral-storage": "1Gi"}).memory("17Gi").cpu("5"),
        (
            "Too many pods",
            "Insufficient cpu",
            "Insufficient memory",
            "Insufficient ephemeral-storage",
            "Insufficient x/a",
            "Insufficient x/b",
        ),
        id="in kube-scheduler's order, the rest by name",
    ),
    pytest.param(
        node("n1"),
        pod("p").requests({"example.com/gpu": "1"}),
        ("Insufficient example.com/gpu",),
        id="no such resource",
    ),
    pytest.param(
        node("n1"), pod("p").requests({"ephemeral-storage": "1Gi"}), ("Insufficient ephemeral-storage",), id="storage"
    ),
    # NodeName
    pytest.param(
        node("n1"), pod("p").on("n2"), ("node(s) didn't match the requested node name",), id="bound for another node"
    ),
]


@pytest.mark.parametrize(("first", "candidate", "reasons"), CASES)
def test_node_filters(first, candidate, reasons):
    assert judged([first], candidate) == {"n1": reasons}


@pytest.mark.parametrize(
    ("things", "candidate", "failing"),
    [
        # NodeResourcesFit
        pytest.param(
            [node("n1"), pod("a").on("n1").cpu("3")], pod("p").cpu("2"), {"n1": "Insufficient cpu"}, id="cpu taken"
        ),
        pytest.param(
            [node("n1"), pod("a").on("n1").cpu("3").phase("Succeeded")],
            pod("p").cpu("2"),
            {},
            id="taken by one that ended",
        ),
        pytest.param(
            [node("n1"), pod("a").on("n1").cpu("3").deleted()],
            pod("p").cpu("2"),
            {"n1": "Insufficient cpu"},
            id="taken by one that is going",
        ),
        pytest.param(
            [node("n1"), pod("a").on("n1").cpu("5")],
            pod("p").memory("1Gi"),
            {},
            id="overcommitted in what is not asked for",
        ),
        # NodePorts
        pytest.param(
            [node("n1"), node("n2"), pod("a").on("n1").host_port(80)],
            pod("p").host_port(80),
            {"n1": PORTS},
            id="host port taken",
        ),
        pytest.param(
            [node("n1"), pod("a").on("n1").host_port(80)], pod("p").host_port(80, "UDP"), {}, id="another protocol"
        ),
        pytest.param(
            [node("n1"), pod("a").on("n1").host_port(80, ip="10.0.0.1")],
            pod("p").host_port(80, ip="10.0.0.2"),
            {},
            id="another address",
        ),
        pytest.param(
            [node("n1"), pod("a").on("n1").host_port(80, ip="10.0.0.1")],
            pod("p").host_port(80),
            {"n1": PORTS},
            id="all addresses include the one taken",
        ),
        pytest.param(
            [node("n1"), pod("a").on("n1").host_port(80)],
            pod("p").host_port(80, ip="10.0.0.1"),
            {"n1": PORTS},
            id="all addresses are taken",
        ),
        # InterPodAffinity: own affinity
        pytest.param(
            [*in_zones(), app("a").on("n1")],
            pod("p").affinity(ZONE, labelSelector=selector(app="a")),
            {"n3": AFFINITY},
            id="affinity by zone",
        ),
        pytest.param(
            [*in_zones(), app("a").on("n1")],
            pod("p").affinity(HOSTNAME, labelSelector=selector(app="a")),
            {"n2": AFFINITY, "n3": AFFINITY},
            id="affinity by host",
        ),
        pytest.param(
            in_zones(),
            pod("p").affinity(ZONE, labelSelector=selector(app="a")),
            {"n1": AFFINITY, "n2": AFFINITY, "n3": AFFINITY},
            id="affinity that matches no pod",
        ),
        pytest.param(in_zones(), app("a").affinity(ZONE), {}, id="the first of a series may go anywhere"),
        pytest.param(
            [*in_zones(), node("n4")],
            app("a").affinity(ZONE),
            {"n4": AFFINITY},
            id="but not where the label is missing",
        ),
        pytest.param(
            [*in_zones(), app("a").on("n3"), app("b").on("n1")],
            pod("p").affinity(ZONE, labelSelector=selector(app="a")).affinity(ZONE, labelSelector=selector(app="b")),
            {"n1": AFFINITY, "n2": AFFINITY, "n3": AFFINITY},
            id="all terms must pick one and the same pod",
        ),
        # InterPodAffinity: own anti-affinity
        pytest.param(
            [*in_zones(), app("a").on("n1")],
            pod("p").anti_affinity(ZONE, labelSelector=selector(app="a")),
            {"n1": ANTI_AFFINITY, "n2": ANTI_AFFINITY},
            id="anti-affinity by zone",
        ),
        pytest.param(
            [node("n1"), app("a").on("n1")],
            pod("p").anti_affinity(ZONE, labelSelector=selector(app="a")),
            {},
            id="nodes without the label are apart from all",
        ),
        pytest.param(
            [node("n1"), pod("a", "blog").labels(app="a").on("n1")],
            pod("p").anti_affinity(labelSelector=selector(app="a")),
            {},
            id="another namespace's pods don't count",
        ),
        pytest.param(
            [node("n1"), pod("a", "blog").labels(app="a").on("n1")],
            pod("p").anti_affinity(labelSelector=selector(app="a"), namespaces=["blog"]),
            {"n1": ANTI_AFFINITY},
            id="unless it is named",
        ),
        pytest.param(
            [node("n1"), pod("a", "blog").labels(app="a").on("n1")],
            pod("p").anti_affinity(labelSelector=selector(app="a"), namespaceSelector={}),
            {"n1": ANTI_AFFINITY},
            id="or all are selected",
        ),
        pytest.param(
            [node("n1"), namespace("blog").labels(team="x"), pod("a", "blog").labels(app="a").on("n1")],
            pod("p").anti_affinity(labelSelector=selector(app="a"), namespaceSelector=selector(team="y")),
            {},
            id="another namespace is selected",
        ),
        pytest.param(
            # a slip of kube-scheduler's, which the differential test has found
            [node("n1"), namespace("blog").labels(team="x"), pod("a", "blog").labels(app="a").on("n1")],
            pod("p").anti_affinity(labelSelector=selector(app="a"), namespaceSelector=NOT_LABELLED),
            {"n1": ANTI_AFFINITY},
            id="a selector that no labels at all satisfy selects every namespace",
        ),
        pytest.param(
            [
                node("n1"),
                namespace("blog").labels(team="x"),
                pod("a", "blog").labels(app="a").on("n1"),
                node("n2"),
            ],
            pod("p").affinity(labelSelector=selector(app="a"), namespaceSelector=NOT_LABELLED),
            {"n2": AFFINITY},
            id="also for affinity",
        ),
        pytest.param(
            [
                node("n1"),
                namespace("blog").labels(team="x"),
                pod("a").anti_affinity(labelSelector=selector(app="p"), namespaceSelector=NOT_LABELLED).on("n1"),
            ],
            pod("p", "blog").labels(app="p"),
            {},
            id="but on pods that are there it selects what it says",
        ),
        # InterPodAffinity: existing pods' anti-affinity
        pytest.param(
            [*in_zones(), app("a").anti_affinity(ZONE, labelSelector=selector(app="p")).on("n1")],
            app("p"),
            {"n1": EXISTING, "n2": EXISTING},
            id="a pod that is there minds",
        ),
        pytest.param(
            [*in_zones(), app("a").anti_affinity(ZONE, labelSelector=selector(app="p"), preferred=9).on("n1")],
            app("p"),
            {},
            id="preferences don't filter",
        ),
        pytest.param(
            [*in_zones(), app("a").anti_affinity(ZONE, labelSelector=selector(app="p")).on("n1").phase("Failed")],
            app("p"),
            {},
            id="a pod that has ended does not mind",
        ),
        # order
        pytest.param(
            [node("n1").taint("x"), pod("a").on("n1").cpu("4")],
            pod("p").cpu("1").node_selector(disk="ssd"),
            {"n1": TAINT},
            id="the first filter in kube-scheduler's order is told",
        ),
    ],
)
def test_pod_filters(things, candidate, failing):
    found = judged(things, candidate)
    assert {name: reasons for name, reasons in found.items() if reasons} == {
        name: (reason,) for name, reason in failing.items()
    }


def test_pod_that_names_its_node_fits_there_only():
    found = judged([node("n1"), node("n2"), node("n3").cordoned()], pod("p").on("n1"))
    named = "node(s) didn't match the requested node name"
    assert found == {"n1": (), "n2": (named,), "n3": (CORDON,)}
    assert judged([node("n2")], pod("p").on("removed")) == {"n2": (named,)}


def test_missing_resources_are_named_for_pods_with_many_resources():
    """As many as a pod may have are more than the bits of an integer, so rows are compared instead."""
    names = [f"example.com/r{number:02}" for number in range(64)]
    plenty = dict.fromkeys(names, "2")
    capacity = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    nodes = [
        node("all").merge(status={"allocatable": capacity | plenty}),
        node("two").merge(status={"allocatable": capacity | plenty | {names[3]: "1", names[63]: "0"}}),
        node("none").merge(status={"allocatable": capacity}),
    ]
    found = judged(nodes, pod("p").requests(dict.fromkeys(names, "2")))
    assert found["all"] == ()
    assert sorted(found["two"]) == [f"Insufficient {names[3]}", f"Insufficient {names[63]}"]
    assert sorted(found["none"]) == [f"Insufficient {name}" for name in names]


@pytest.mark.parametrize("limit", ["_MANY", "_MANY_COUNTERS", "_MAX_REJECTED"])
def test_anti_affinity_in_many_domains_rejects_the_same_nodes(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def rejected(candidate: Any) -> list[str]:
        return [name for name, reasons in judged(things, candidate).items() if reasons]

    apart = selector(app="p")
    things = [*(node(f"n{number}").zone(f"z{number % 3}") for number in range(6))]
    things += [app(f"a{number}").anti_affinity(labelSelector=apart).on(f"n{number}") for number in (0, 1)]
    things += [app("z").anti_affinity(ZONE, labelSelector=apart).on("n2"), app("p").on("n3")]
    candidates = [app("p"), app("p").anti_affinity(labelSelector=selector(app="a0")), app("other"), app("z")]
    assert [rejected(each) for each in candidates] == [["n0", "n1", "n2", "n5"]] * 2 + [[], []]
    monkeypatch.setattr("trimtab.placement.filters.pods._MANY_COUNTERS", 0)
    monkeypatch.setattr(f"trimtab.placement.filters.pods.{limit}", 0)
    assert [rejected(each) for each in candidates] == [["n0", "n1", "n2", "n5"]] * 2 + [[], []]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["a", "b"]), st.integers(0, 2)), max_size=12),
    st.lists(st.integers(0, 4), max_size=3),
)
def test_cached_rejections_of_many_terms_equal_fresh_ones(
    changes: list[tuple[int, str, int]], removed_nodes: list[int]
) -> None:
    nodes = [node(f"n{number}").zone(f"z{number % 2}") for number in range(5)]
    snapshot = Snapshot([each.build() for each in nodes])
    candidates = [pod("x").labels(app=app).build() for app in ("a", "b", "c")]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("trimtab.placement.filters.pods._MANY_COUNTERS", 1)
        cached = InterPodAffinity(snapshot)
        for number, (on, app, carrier) in enumerate(changes):
            builder = pod(f"p{carrier}").labels(app=app).on(f"n{on}")
            for key in (HOSTNAME, ZONE)[: 1 + carrier % 2]:
                builder.anti_affinity(key, labelSelector=selector(app="ab"[carrier % 2]))
            snapshot.put(builder.build())
            if number == len(changes) // 2:
                for place in removed_nodes:
                    snapshot.put(nodes[place].zone("z2").build())
            found = [cached.passing(each) for each in candidates]
            patched.setattr("trimtab.placement.filters.pods._MANY_COUNTERS", 1000)
            expected = [InterPodAffinity(snapshot).passing(each) for each in candidates]
            patched.setattr("trimtab.placement.filters.pods._MANY_COUNTERS", 1)
            for one, other in zip(found, expected, strict=True):
                assert (one is None) == (other is None)
                assert one is None or one.tolist() == other.tolist()

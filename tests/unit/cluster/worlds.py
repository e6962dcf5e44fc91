"""Small clusters for hypothesis: few names, labels and sizes, so that rules and objects meet often."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.terms import affinity_terms, anti_affinity_terms
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import (
    Affinity,
    HostPort,
    KubeObject,
    LabelSelector,
    Namespace,
    Node,
    NodeAffinity,
    NodeCondition,
    NodeSelector,
    NodeSelectorTerm,
    OwnerReference,
    Pod,
    PodAffinityTerm,
    PodDisruptionBudget,
    PodSpec,
    PreferredNodeTerm,
    Taint,
    Toleration,
)
from trimtab.kube.objects.selector import LabelRequirement

HOSTNAME = "kubernetes.io/hostname"
ZONE = "zone"
DISK = "disk"
GPU = "example.com/gpu"
NODE_NAMES = tuple(f"n{number}" for number in range(1, 6))
NAMESPACES = ("shop", "blog")
APPS = ("a", "b", "c")
TAINT = Taint(key="reserved", effect="NoSchedule")


def sometimes(strategy: st.SearchStrategy[Any], default: Any, *, one_in: int = 3) -> st.SearchStrategy[Any]:
    """The default most of the time: rules that always apply leave nothing to place."""
    return st.integers(1, one_in).flatmap(lambda number: strategy if number == 1 else st.just(default))


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    """A node of that name, in one of two zones, with one of two disks; now and then tainted, cordoned, not ready."""
    labels = {HOSTNAME: name, DISK: draw(st.sampled_from(["ssd", "hdd"]))}
    zone = draw(st.sampled_from(["x", "y", None]))
    if zone:
        labels[ZONE] = zone
    amounts = {
        "cpu": draw(st.sampled_from([1000, 2000, 4000])),
        "memory": 4 << 30,
        "pods": draw(st.sampled_from([4, 8])),
    }
    if draw(st.booleans()):
        amounts[GPU] = 2
    ready = draw(sometimes(st.just("False"), "True", one_in=8))
    return Node(
        name=name,
        labels=Labels(labels),
        unschedulable=draw(sometimes(st.just(True), False, one_in=6)),
        taints=draw(sometimes(st.just((TAINT,)), (), one_in=5)),
        allocatable=ResourceList(amounts),
        conditions=(NodeCondition("Ready", ready),),
    )


apps = st.sampled_from(APPS)
namespaces = st.sampled_from(NAMESPACES)


@st.composite
def terms(draw: st.DrawFn) -> PodAffinityTerm:
    """A pod affinity term over the apps."""
    if draw(st.booleans()):
        selector = LabelSelector(Labels({"app": draw(apps)}))
    else:
        values = tuple(draw(st.lists(apps, min_size=1, max_size=2)))
        operator = draw(st.sampled_from(["In", "NotIn"]))
        selector = LabelSelector(match_expressions=(LabelRequirement("app", operator, values),))
    return PodAffinityTerm(
        topology_key=draw(st.sampled_from([HOSTNAME, ZONE])),
        selector=selector,
        namespaces=draw(sometimes(st.just(("blog",)), ())),
        namespace_selector=draw(sometimes(st.just(LabelSelector(Labels({"team": "x"}))), None)),
    )


@st.composite
def specs(draw: st.DrawFn) -> PodSpec:
    """A spec with some of everything that filters read."""
    requests = {"cpu": draw(st.sampled_from([0, 100, 250, 500, 1000])), "memory": draw(st.sampled_from([0, 1 << 30]))}
    if draw(sometimes(st.just(True), False, one_in=6)):
        requests[GPU] = 1
    on_ssd = NodeSelectorTerm((LabelRequirement(DISK, "In", ("ssd",)),))
    requests = {name: amount for name, amount in requests.items() if amount}
    return PodSpec(
        requests=ResourceList(requests),
        qos="Burstable" if requests else "BestEffort",
        host_ports=draw(sometimes(st.just((HostPort(80),)), (), one_in=6)),
        node_selector=draw(sometimes(st.just(Labels({DISK: "ssd"})), Labels(), one_in=5)),
        affinity=Affinity(
            node=NodeAffinity(
                required=draw(sometimes(st.just(NodeSelector((on_ssd,))), None, one_in=6)),
                preferred=draw(sometimes(st.just((PreferredNodeTerm(10, on_ssd),)), (), one_in=4)),
            ),
            pod_required=draw(sometimes(terms().map(lambda term: (term,)), (), one_in=8)),
            anti_required=draw(sometimes(st.lists(terms(), max_size=2).map(tuple), (), one_in=4)),
        ),
        tolerations=draw(sometimes(st.just((Toleration(operator="Exists"),)), (), one_in=4)),
        priority=draw(st.sampled_from([None, 0, 10])),
    )


@st.composite
def pods(draw: st.DrawFn, name: str, spec: PodSpec | None = None, on: Iterable[str] = NODE_NAMES) -> Pod:
    """A pod of that name: on a node most of the time, in one of three apps, owned by the app's ReplicaSet."""
    app = draw(apps)
    namespace = draw(namespaces)
    return Pod(
        namespace=namespace,
        name=name,
        uid=f"uid-{namespace}-{name}",
        labels=Labels({"app": app}),
        owners=draw(sometimes(st.just(()), (OwnerReference("ReplicaSet", app, controller=True),), one_in=10)),
        created=draw(st.sampled_from([None, 1000.0, 2000.0])),
        deleted=draw(sometimes(st.just(3000.0), None, one_in=10)),
        node=draw(sometimes(st.just(""), draw(st.sampled_from(sorted(on))), one_in=8)),
        spec=draw(specs()) if spec is None else spec,
        phase=draw(sometimes(st.just("Succeeded"), "Running", one_in=12)),
        ready=True,
        started=0.0,
    )


@st.composite
def budgets(draw: st.DrawFn, app: str, namespace: str) -> PodDisruptionBudget:
    """A budget for an app's pods."""
    allowed = draw(st.integers(0, 2))
    selector = LabelSelector(Labels({"app": app}))
    return PodDisruptionBudget(namespace, app, selector=selector, disruptions_allowed=allowed, current_healthy=5)


@st.composite
def worlds(draw: st.DrawFn, *, most_pods: int = 14) -> list[KubeObject]:
    """Nodes, namespaces, pods of a few shared specs, and now and then a budget."""
    number = draw(st.integers(1, len(NODE_NAMES)))
    objects: list[KubeObject] = [draw(nodes(name)) for name in NODE_NAMES[:number]]
    objects.append(Namespace("blog", labels=Labels({"team": draw(st.sampled_from(["x", "y"]))})))
    shared = draw(st.lists(specs(), min_size=1, max_size=4))
    names = [f"p{index:02}" for index in range(draw(st.integers(0, most_pods)))]
    objects += [draw(pods(name, draw(st.sampled_from(shared)), NODE_NAMES[:number])) for name in names]
    if draw(sometimes(st.just(True), False)):
        objects.append(draw(budgets(draw(apps), draw(namespaces))))
    return objects


def fingerprint(snapshot: Snapshot) -> dict[str, object]:
    """Everything that planners read of a snapshot, in a form that does not know in which order objects came."""
    table = snapshot.nodes
    columns = {
        name: {
            resource: (int(table.allocatable[slot, column]), int(table.requested[slot, column]))
            for column, resource in enumerate(table.axis.names)
            if table.allocatable[slot, column] or table.requested[slot, column]
        }
        for name, slot in sorted(table.slot_of.items())
    }
    return {
        "columns": columns,
        "nodes": {name: table.get(name) for name in sorted(table.slot_of)},
        "order": [table.node(slot).name for slot in table.order().tolist()],
        "pods": dict(sorted(snapshot.pods.items())),
        "on": {name: snapshot.pods_on(name) for name in sorted(table.slot_of)},
        "owners": {owner: snapshot.owned_by(owner) for owner in snapshot.owners()},
        "budgets": dict(sorted(snapshot.budgets.items())),
        "namespaces": dict(sorted(snapshot.namespaces.items())),
        "ports": {
            name: sorted(
                port.port for port in (HostPort(80), HostPort(81)) if slot in set(snapshot.ports.conflicts((port,)))
            )
            for name, slot in sorted(table.slot_of.items())
        },
        "anti-affinity": snapshot.any_anti_affinity,
        "affinity": affinity_counts(snapshot),
    }


def affinity_counts(snapshot: Snapshot) -> dict[object, object]:
    """For every pod: how many pods its terms pick and how many terms pick it, node by node."""
    index, counts = snapshot.affinity, {}
    slots = sorted(snapshot.nodes.slot_of.items())
    for key, pod in sorted(snapshot.pods.items()):
        for term in {*anti_affinity_terms(pod), *affinity_terms(pod)}:
            by_slot = index.matching((term,), term.topology_key).by_slot()
            counts[key, term] = [int(by_slot[slot]) for _, slot in slots]
        against = [counter.by_slot() for counter in index.carriers_against(pod)]
        counts[key] = [sum(int(by_slot[slot]) for by_slot in against) for _, slot in slots]
    return counts

"""PodTopologySpread: how pods are counted per domain, which nodes pass, and how the others are scored."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import HOSTNAME, ZONE, expression, node, pod, selector
from tests.unit.cluster.worlds import APPS, NODE_NAMES, Maker, makers
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import (
    KubeObject,
    LabelRequirement,
    LabelSelector,
    Node,
    OwnerReference,
    Pod,
    PodSpec,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
    TopologySpread,
)
from trimtab.kube.rules.selectors import matches_labels
from trimtab.kube.rules.taints import find_untolerated_taint
from trimtab.placement import topology_spread
from trimtab.placement.filters.pods import UNEVEN, UNLABELLED
from trimtab.placement.filters.pods import PodTopologySpread as Filter
from trimtab.placement.node_masks import matches_required
from trimtab.placement.scores.pods import PodTopologySpread as Score
from trimtab.placement.topology_spread import global_minimum, skews, stated

REVISION = "pod-template-hash"


def reasons(snapshot: Snapshot, candidate: Pod) -> dict[str, str]:
    """Node by node, the reason for which the filter refuses it, empty where it passes."""
    rule, slots = Filter(snapshot), snapshot.nodes.order()
    passing = rule.passing(candidate)
    if passing is None:
        return {snapshot.nodes.node(int(slot)).name: "" for slot in slots}
    found = {snapshot.nodes.node(int(slot)).name: "" for slot in slots if passing[slot]}
    for texts, failed in rule.failures(candidate, slots[~passing[slots]]):
        for slot in failed.tolist():
            name = snapshot.nodes.node(slot).name
            assert name not in found, "a node is told once"
            [found[name]] = texts
    return found


def points(snapshot: Snapshot, candidate: Pod, among: set[str] | None = None) -> dict[str, int]:
    """The score of each node to choose from."""
    names = set(snapshot.nodes.slot_of) if among is None else among
    mask = np.zeros(snapshot.nodes.capacity, dtype=np.bool_)
    mask[[snapshot.nodes.slot_of[name] for name in names]] = True
    found = Score(snapshot).scores(candidate, mask)
    if isinstance(found, int):
        return dict.fromkeys(names, found)
    return {name: int(found[snapshot.nodes.slot_of[name]]) for name in names}


def world(*things: Any) -> Snapshot:
    return Snapshot([item.build() if hasattr(item, "build") else item for item in things])


def zones(*names: str) -> list[Any]:
    """A node in each zone: n1, n2 and so on."""
    return [node(f"n{number}").zone(name) for number, name in enumerate(names, 1)]


def webs(*places: str) -> list[Any]:
    return [pod(f"web-{number}").labels(app="web").on(place) for number, place in enumerate(places)]


def web(name: str = "new", **labels: str) -> Any:
    return pod(name).labels(app="web", **labels)


FAILING: list[Any] = [
    pytest.param([*zones("a", "b"), *webs("n1")], web(), "", id="no constraint"),
    pytest.param([*zones("a", "b"), *webs("n1")], web().spread(when="ScheduleAnyway"), "", id="a soft constraint"),
    pytest.param([*zones("a", "b"), *webs("n1")], web().spread(), "n1", id="one pod more in a zone"),
    pytest.param([*zones("a", "b"), *webs("n1")], web().spread(max_skew=2), "", id="as far as maxSkew allows"),
    pytest.param([*zones("a", "a", "b"), *webs("n1")], web().spread(), "n1 n2", id="a zone of two nodes"),
    pytest.param([*zones("a", "a", "b"), *webs("n1")], web().spread(HOSTNAME), "n1", id="hosts"),
    pytest.param([*zones("a", "b"), *webs("n1", "n2")], web().spread(), "", id="even"),
    pytest.param(
        [*zones("a", "b"), pod("x").labels(app="db").on("n1")], web().spread(), "", id="other pods do not count"
    ),
    pytest.param(
        [*zones("a", "b"), pod("x", "blog").labels(app="web").on("n1")],
        web().spread(),
        "",
        id="nor another namespace's",
    ),
    pytest.param([*zones("a", "b"), web("x").on("n1").deleted()], web().spread(), "", id="nor those being deleted"),
    pytest.param(
        [*zones("a", "b"), web("x").on("n1").phase("Failed")], web().spread(), "", id="nor those at their end"
    ),
    pytest.param(
        [*zones("a", "b"), *webs("n1", "n1")],
        pod("new").labels(app="db").spread(labelSelector=selector(app="web")),
        "n1",
        id="a pod that is not picked itself is held to what is there",
    ),
    pytest.param(
        [*zones("a", "b"), *webs("n1")],
        pod("new").labels(app="db").spread(labelSelector=selector(app="web")),
        "",
        id="and adds nothing",
    ),
    pytest.param(
        [*zones("a", "b"), *webs("n1", "n1")], web().spread(labelSelector={}), "", id="an empty selector counts no pod"
    ),
    pytest.param(
        [*zones("a", "b"), *webs("n1", "n1")], web().spread(labelSelector=None), "", id="a nil selector selects no pods"
    ),
    pytest.param(
        [*zones("a", "b"), *webs("n1", "n1")],
        web().spread(labelSelector=None, matchLabelKeys=["app"]),
        "",
        id="a nil selector selects no pods with matchLabelKeys either",
    ),
    pytest.param(
        [*zones("a", "b"), *webs("n1", "n1")],
        web().spread(labelSelector={}, matchLabelKeys=["app"]),
        "n1",
        id="matchLabelKeys makes something of an empty selector",
    ),
    pytest.param(
        [*zones("a", "b"), web("x").labels({REVISION: "1"}).on("n1")],
        web().labels({REVISION: "2"}).spread(labelSelector=selector(app="web"), matchLabelKeys=[REVISION]),
        "",
        id="matchLabelKeys leaves the other revision out",
    ),
    pytest.param(
        [*zones("a", "b"), web("x").labels({REVISION: "2"}).on("n1")],
        web()
        .labels({REVISION: "2"})
        .spread(
            labelSelector={**selector(app="web"), "matchExpressions": [expression(REVISION, "In", "2")]},
            matchLabelKeys=[REVISION, "absent"],
        ),
        "n1",
        id="matchLabelKeys that the API server merged already",
    ),
    # minDomains
    pytest.param([*zones("a", "b"), *webs("n1", "n2")], web().spread(minDomains=2), "", id="domains enough"),
    pytest.param([*zones("a", "b"), *webs("n1", "n2")], web().spread(minDomains=3), "n1 n2", id="too few domains"),
    pytest.param(
        [*zones("a", "b"), *webs("n1", "n2")], web().spread(minDomains=3, max_skew=2), "", id="too few, but some room"
    ),
    # which nodes count
    pytest.param(
        [*zones("a", "b", "c"), *webs("n1", "n2")],
        web().spread().node_affinity(expression(ZONE, "In", "a", "b")),
        "",
        id="a node that the pod's affinity excludes is no domain",
    ),
    pytest.param(
        [*zones("a", "b", "c"), *webs("n1", "n2")],
        web().spread(nodeAffinityPolicy="Ignore").node_affinity(expression(ZONE, "In", "a", "b")),
        "n1 n2",
        id="unless nodeAffinityPolicy is Ignore",
    ),
    pytest.param(
        [*zones("a", "b"), node("n3").zone("c").taint("gone"), *webs("n1", "n2")],
        web().spread(),
        "n1 n2",
        id="a tainted node is a domain",
    ),
    pytest.param(
        [*zones("a", "b"), node("n3").zone("c").taint("gone"), *webs("n1", "n2")],
        web().spread(nodeTaintsPolicy="Honor"),
        "",
        id="unless nodeTaintsPolicy is Honor",
    ),
    pytest.param(
        [*zones("a", "b"), node("n3").zone("c").taint("gone"), *webs("n1", "n2")],
        web().spread(nodeTaintsPolicy="Honor").tolerates("gone"),
        "n1 n2",
        id="and the pod does not tolerate it",
    ),
    pytest.param(
        [*zones("a", "b"), node("n3").zone("c").taint("gone", effect="PreferNoSchedule"), *webs("n1", "n2")],
        web().spread(nodeTaintsPolicy="Honor"),
        "n1 n2",
        id="a soft taint is none",
    ),
    pytest.param(
        [*zones("a", "b", "b"), *webs("n1", "n1", "n3", "n3")],
        web().spread().node_selector({HOSTNAME: "n2"}),
        "",
        id="pods on nodes that do not count are not counted",
    ),
    pytest.param(
        [*zones("a", "b"), *webs("n1", "n1")],
        web().spread(max_skew=1, minDomains=2).node_selector(disk="ssd"),
        "",
        id="no node counts",
    ),
    # several constraints
    pytest.param(
        [*zones("a", "a", "b"), *webs("n1", "n3")],
        web().spread().spread(HOSTNAME),
        "n1 n3",
        id="both must hold",
    ),
    pytest.param(
        [*zones("a", "b"), node("n3").zone("c").labels({HOSTNAME: ""}), *webs("n1", "n2")],
        web().spread().spread(HOSTNAME),
        "n1 n2",
        id="an empty label value is a value",
    ),
]


@pytest.mark.parametrize(("things", "candidate", "failing"), FAILING)
def test_max_skew_limits_domains(things: list[Any], candidate: Any, failing: str) -> None:
    found = reasons(world(*things), candidate.build())
    assert {name for name, reason in found.items() if reason} == set(failing.split())
    assert set(found.values()) <= {"", UNEVEN}


def test_first_failing_constraint_gives_the_reason() -> None:
    objects = [*zones("a", "b"), node("bare"), node("far").labels({ZONE: "a", HOSTNAME: ""}), *webs("n1")]
    snapshot = world(*objects, node("rackless").zone("a"))
    assert reasons(snapshot, web().spread().build()) == {
        "bare": UNLABELLED,
        "far": UNEVEN,
        "n1": UNEVEN,
        "n2": "",
        "rackless": UNEVEN,
    }
    assert set(reasons(snapshot, web().spread().spread("rack").build()).values()) == {UNLABELLED}
    racks = [node("n3").zone("b").labels(rack="1"), node("n4").zone("a").labels(rack="2")]
    racked = world(*zones("a", "b"), *racks, *webs("n3"))
    assert reasons(racked, web().spread().spread("rack").build()) == {
        "n1": UNLABELLED,
        "n2": UNEVEN,
        "n3": UNEVEN,
        "n4": "",
    }
    assert reasons(racked, web().spread("rack").spread().build())["n2"] == UNLABELLED


def test_domain_without_included_nodes_counts_as_empty() -> None:
    snapshot = world(*zones("a", "b", "c"), *webs("n1", "n2", "n3"))
    candidate = web().spread().node_affinity(expression(ZONE, "In", "a")).build()
    assert reasons(snapshot, candidate) == {"n1": "", "n2": "", "n3": ""}


def test_filter_affects_pods_with_hard_constraints_only() -> None:
    rule = Filter(world(*zones("a")))
    assert rule.concerns(web().spread().build())
    assert not rule.concerns(web().spread(when="ScheduleAnyway").build())
    assert not rule.concerns(web().build())
    assert rule.refusal(web().spread().build()) is None
    assert rule.passing(web().spread(when="ScheduleAnyway").build()) is None


def test_invalid_min_domains_without_eligible_domains_pass_every_node() -> None:
    snapshot = world(*zones("a", "b"), *webs("n1", "n1"))
    candidate = web().spread(minDomains=0).node_selector(disk="ssd").build()
    assert set(reasons(snapshot, candidate).values()) == {""}


def test_skew_is_measured_from_the_smallest_domain() -> None:
    counts = np.array([3, 1, 2])
    assert global_minimum(counts) == 1
    assert global_minimum(counts, 3) == 1
    assert global_minimum(counts, 4) == 0
    assert global_minimum(counts[:0]) == 0
    assert global_minimum(counts[:0], 0) == 2**31 - 1
    assert skews(counts, 1).tolist() == [2, 0, 1]
    assert skews(counts, 1, own=1).tolist() == [3, 1, 2]


def test_constraints_are_read_like_the_scheduler() -> None:
    candidate = web().labels({REVISION: "2"}).spread(matchLabelKeys=[REVISION], nodeTaintsPolicy="Honor").build()
    [read] = stated(candidate, "DoNotSchedule")
    assert read.selector == LabelSelector(Labels({"app": "web", REVISION: "2"}))
    assert (read.min_domains, read.honors_affinity, read.honors_taints) == (1, True, True)


def test_counts_follow_moves_and_node_changes() -> None:
    snapshot = world(*zones("a", "b"), *webs("n1"))
    rule, candidate = Filter(snapshot), web().spread().build()

    def passing() -> set[str]:
        mask = rule.passing(candidate)
        assert mask is not None
        return {name for name, slot in snapshot.nodes.slot_of.items() if mask[slot]}

    assert passing() == {"n2"}
    with snapshot.fork():
        snapshot.move(snapshot.pods["shop/web-0"], "n2")
        assert passing() == {"n1"}
        snapshot.put(node("n3").zone("c").build())
        assert passing() == {"n1", "n3"}
        snapshot.put(node("n2").zone("c").build())
        assert passing() == {"n1"}
    assert passing() == {"n2"}


# --- scores --------------------------------------------------------------------------------------------------------


def soft(key: str = ZONE, **fields: Any) -> Any:
    return web().spread(key, when="ScheduleAnyway", **fields)


SCORED: list[Any] = [
    pytest.param(zones("a", "b"), web().spread(), None, {"n1": 0, "n2": 0}, id="hard constraints do not count"),
    pytest.param(zones("a", "b"), web(), None, {"n1": 0, "n2": 0}, id="nothing picks the pod"),
    pytest.param(zones("a", "b"), soft(), None, {"n1": 100, "n2": 100}, id="no pods at all"),
    pytest.param([*zones("a", "b"), *webs("n1")], soft(), None, {"n1": 0, "n2": 100}, id="one pod"),
    pytest.param([*zones("a", "b"), *webs("n1", "n1", "n2")], soft(), None, {"n1": 33, "n2": 100}, id="two and one"),
    pytest.param(
        [*zones("a", "b"), *webs("n1", "n1", "n2")], soft(max_skew=5), None, {"n1": 71, "n2": 100}, id="watered down"
    ),
    pytest.param(
        [*zones("a", "b"), node("bare"), *webs("n1")], soft(), None, {"n1": 0, "n2": 100, "bare": 0}, id="no label"
    ),
    pytest.param([node("bare")], soft(), None, {"bare": 0}, id="no node with the label"),
    pytest.param([*zones("a", "b"), *webs("n1")], soft(labelSelector={}), None, {"n1": 100, "n2": 100}, id="all"),
    pytest.param(
        [*zones("a", "a", "b"), *webs("n2")], soft(), {"n1", "n3"}, {"n1": 0, "n3": 100}, id="pods elsewhere count"
    ),
    pytest.param(
        [*zones("a", "a", "b"), *webs("n2", "n3")],
        soft().node_selector({HOSTNAME: "n1"}),
        None,
        {"n1": 100, "n2": 100, "n3": 100},
        id="but not on nodes that the pod's selector excludes",
    ),
    pytest.param(
        [*zones("a", "a", "b"), *webs("n2")],
        soft(HOSTNAME).node_selector({HOSTNAME: "n1"}),
        None,
        {"n1": 100, "n2": 0, "n3": 100},
        id="hosts count whatever the policies",
    ),
]


@pytest.mark.parametrize(("things", "candidate", "among", "expected"), SCORED)
def test_domains_with_fewer_pods_score_higher(
    things: list[Any], candidate: Any, among: set[str] | None, expected: dict[str, int]
) -> None:
    assert points(world(*things), candidate.build(), among) == expected


def test_zone_weight_depends_on_the_number_of_candidate_zones() -> None:
    snapshot = world(*zones("a", "b", "c", "c"), *webs("n1", "n1", "n2"))
    weight = math.log(3 + 2)
    assert (round(2 * weight), round(weight)) == (3, 2)
    assert points(snapshot, soft().build()) == {"n1": 0, "n2": 33, "n3": 100, "n4": 100}
    assert points(snapshot, soft().build(), {"n1", "n2"}) == {"n1": 33, "n2": 100}


SERVICE = Service("shop", "web", selector=Labels({"app": "web"}))
REPLICAS = ReplicaSet("shop", "web-1", selector=LabelSelector(Labels({"app": "web", "rev": "1"})))
ODD = LabelSelector(match_expressions=(LabelRequirement("app", "Near", ("web",)),))

DEDUCED: list[Any] = [
    pytest.param([SERVICE], web(), "web old", id="a service"),
    pytest.param([SERVICE], web().owned_by("DaemonSet", "web-1"), "web old", id="an owner of another kind"),
    pytest.param([msgspec.structs.replace(SERVICE, namespace="blog")], web(), "", id="a service elsewhere"),
    pytest.param([Service("shop", "web")], web(), "", id="a service without a selector"),
    pytest.param([Service("shop", "web", selector=Labels())], web(), "", id="an empty selector asks for nothing"),
    pytest.param([Service("shop", "web", selector=Labels(app="db"))], web(), "", id="a service for others"),
    pytest.param(
        [SERVICE, Service("shop", "rev", selector=Labels(rev="1"))], web(rev="1"), "web", id="two services, joined"
    ),
    pytest.param([REPLICAS], web(rev="1").owned_by("ReplicaSet", "web-1"), "web", id="its ReplicaSet"),
    pytest.param([REPLICAS], web(rev="1"), "", id="a ReplicaSet that is not its own"),
    pytest.param([], web(rev="1").owned_by("ReplicaSet", "web-1"), "", id="a ReplicaSet that is not there"),
    pytest.param(
        [REPLICAS],
        web(rev="1").owned_by("ReplicaSet", "web-1", api_version="apps/v1beta1"),
        "",
        id="of another version",
    ),
    pytest.param(
        [REPLICAS, SERVICE], web(rev="1").owned_by("ReplicaSet", "web-1"), "web", id="a service and its ReplicaSet"
    ),
    pytest.param(
        [StatefulSet("shop", "web", selector=LabelSelector(Labels(app="web")))],
        web().owned_by("StatefulSet", "web"),
        "web old",
        id="its StatefulSet",
    ),
    pytest.param(
        [StatefulSet("shop", "web", selector=ODD), SERVICE],
        web().owned_by("StatefulSet", "web"),
        "web old",
        id="a selector that cannot be read is left out",
    ),
    pytest.param(
        [ReplicationController("shop", "web", selector=Labels(app="web"))],
        web().owned_by("ReplicationController", "web"),
        "web old",
        id="its ReplicationController",
    ),
    pytest.param(
        [SERVICE, ReplicaSet("shop", "db", selector=LabelSelector(Labels(app="db")))],
        web().owned_by("ReplicaSet", "db"),
        "none",
        id="a service and an owner that contradict each other select no pods",
    ),
    pytest.param(
        [SERVICE, ReplicationController("shop", "db", selector=Labels(app="db"))],
        web().owned_by("ReplicationController", "db"),
        "db",
        id="but a ReplicationController overrules the service",
    ),
]


@pytest.mark.parametrize(("picking", "candidate", "picked"), DEDUCED)
def test_pods_without_constraints_use_the_default_selector(
    picking: list[KubeObject], candidate: Any, picked: str
) -> None:
    names = ("db", "old", "web")
    nodes = [node(name).zone(name) for name in names]
    there = [
        pod("p-web").labels(app="web", rev="1").on("web"),
        pod("p-old").labels(app="web", rev="0").on("old"),
        pod("p-db").labels(app="db", rev="2").on("db"),
    ]
    found = points(world(*nodes, *there, *picking), candidate.build())
    if not picked:
        assert found == dict.fromkeys(names, 0)
    else:
        assert {name for name, score in found.items() if score < 100} == set(picked.split()) - {"none"}


def test_default_selector_is_updated_for_a_new_service() -> None:
    snapshot = world(*zones("a", "b"), *webs("n1"))
    score, mask = Score(snapshot), snapshot.nodes.used
    assert score.scores(web().build(), mask) == 0
    snapshot.put(SERVICE)
    found = score.scores(web().build(), mask)
    assert not isinstance(found, int)
    assert found[snapshot.nodes.slot_of["n2"]] == 100
    snapshot.remove(SERVICE)
    assert score.scores(web().build(), mask) == 0


def test_default_constraints_spread_nodes_without_zone_by_host() -> None:
    nodes = [*zones("a", "a"), node("bare"), node("blank").zone("")]
    snapshot = world(*nodes, *webs("n1", "bare", "bare"), SERVICE)
    hosts, domains = math.log(4 + 2), math.log(2 + 2)  # without the label and with an empty one is one domain
    raw = {
        "n1": hosts + 2 + domains + 4,
        "n2": 2 + domains + 4,
        "bare": 2 * hosts + 2,
        "blank": 2 + 2 * domains + 4,
    }
    assert points(snapshot, web().build()) == normalized(raw)


def normalized(raw: dict[str, float]) -> dict[str, int]:
    whole = {name: math.floor(value + 0.5) for name, value in raw.items()}
    most, fewest = max(whole.values()), min(whole.values())
    return {name: 100 * (most + fewest - value) // most if most else 100 for name, value in whole.items()}


# --- against the rules, node by node -------------------------------------------------------------------------------


class SpreadMaker(Maker):
    """Adds to the worlds what spreading reads: zones of the standard label, revisions, constraints, services."""

    def node(self, name: str) -> Node:
        made = super().node(name)
        labels = dict(made.labels)
        zone = self.pick("a", "b", "", None)
        if zone is not None:
            labels["topology.kubernetes.io/zone"] = zone
        if self.one_in(6):
            del labels[HOSTNAME]
        return msgspec.structs.replace(made, labels=Labels(labels))

    def constraint(self) -> TopologySpread:
        app, revision = Labels(app=self.pick("a", "a", "b")), LabelRequirement("rev", "In", (self.pick("1", "2"),))
        return TopologySpread(
            max_skew=self.pick(1, 1, 2, 3),
            topology_key=self.pick(HOSTNAME, "zone", "topology.kubernetes.io/zone", "disk", "disk"),
            when_unsatisfiable=self.pick("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"),
            selector=self.pick(*[LabelSelector(app)] * 4, LabelSelector(app, (revision,)), LabelSelector(), None),
            min_domains=self.pick(None, None, 1, 2, 3),
            node_affinity_policy=self.pick("", "Honor", "Ignore"),
            node_taints_policy=self.pick("", "Honor", "Ignore"),
            match_label_keys=self.pick((), (), ("rev",), ("rev", "absent")),
        )

    def spec(self) -> PodSpec:
        number = self.pick(0, 1, 1, 2, 3)
        return msgspec.structs.replace(super().spec(), topology_spread=tuple(self.constraint() for _ in range(number)))

    def pod(self, name: str, spec: PodSpec | None = None, on: tuple[str, ...] = NODE_NAMES) -> Pod:
        made = super().pod(name, spec, on)
        owner = self.pick("a", "a", "a", "b", "c")  # most pods are of one app, or domains would hardly differ
        labels = Labels(app=owner, rev=self.pick("1", "2"))
        kind = self.pick("ReplicaSet", "StatefulSet", "ReplicationController", "Job")
        version = "v1" if kind == "ReplicationController" else "apps/v1"
        reference = OwnerReference(kind, owner, api_version=version, controller=True)
        return msgspec.structs.replace(
            made,
            namespace=self.pick("shop", "shop", "shop", "blog"),
            labels=labels,
            owners=(reference,) if made.owners else (),
            deleted=5.0 if self.one_in(6) else None,
        )

    def picking(self) -> list[KubeObject]:
        """Services and owners, some of them, some odd."""
        found: list[KubeObject] = []
        for app in APPS:
            labels = self.pick(Labels(app=app), Labels(app=app, rev="1"), Labels(rev="2"), Labels(), None)
            namespace = self.pick("shop", "blog")
            selector = None if labels is None else LabelSelector(labels)
            kinds: list[KubeObject] = [
                Service(namespace, app, selector=labels),
                ReplicationController(namespace, app, selector=labels),
                ReplicaSet(namespace, app, selector=selector),
                StatefulSet(namespace, app, selector=selector),
            ]
            found += [kind for kind in kinds if self.one_in(2)]
        return found


def picks(constraint: TopologySpread, own: Labels, labels: Labels) -> bool:
    return matches_labels(constraint.selector, labels) and all(
        labels.get(key) == own[key] for key in constraint.match_label_keys if key in own
    )


def picked_on(snapshot: Snapshot, there: Node, candidate: Pod, constraint: TopologySpread) -> int:
    """The pods on one node that a constraint of the candidate counts."""
    own = candidate.labels
    if constraint.selector == LabelSelector() and not any(key in own for key in constraint.match_label_keys):
        return 0
    return sum(
        not other.terminal
        and other.deleted is None
        and other.namespace == candidate.namespace
        and picks(constraint, own, other.labels)
        for other in snapshot.pods_on(there.name)
    )


def counts(there: Node, candidate: Pod, constraint: TopologySpread) -> bool:
    """Whether the policies of a constraint let a node count."""
    spec = candidate.spec
    if constraint.node_affinity_policy != "Ignore" and not matches_required(spec, there):
        return False
    return constraint.node_taints_policy != "Honor" or find_untolerated_taint(there.taints, spec.tolerations) is None


def expected_reasons(snapshot: Snapshot, candidate: Pod) -> dict[str, str]:
    """What the scheduler's PreFilter and Filter say, one node after the other."""
    constraints = [each for each in candidate.spec.topology_spread if each.when_unsatisfiable == "DoNotSchedule"]
    nodes = [snapshot.nodes.node(int(slot)) for slot in snapshot.nodes.order()]
    complete = [there for there in nodes if all(each.topology_key in there.labels for each in constraints)]
    totals: list[dict[str, int]] = []
    for each in constraints:
        domains: dict[str, int] = {}
        for there in complete:
            if counts(there, candidate, each):
                value = there.labels[each.topology_key]
                domains[value] = domains.get(value, 0) + picked_on(snapshot, there, candidate, each)
        totals.append(domains)

    def reason(there: Node) -> str:
        for each, domains in zip(constraints, totals, strict=True):
            value = there.labels.get(each.topology_key)
            if value is None:
                return UNLABELLED
            smallest = 0 if len(domains) < (each.min_domains or 1) else min(domains.values())
            own = picks(each, candidate.labels, candidate.labels)
            if domains.get(value, 0) + own - smallest > each.max_skew:
                return UNEVEN
        return ""

    return {there.name: reason(there) for there in nodes}


def default_selector(objects: list[KubeObject], candidate: Pod) -> list[LabelSelector]:
    """The selectors that must all match, as the scheduler deduces them; none where nothing is asked for."""
    labels: dict[str, str] = {}
    others: list[LabelSelector] = []
    here = [each for each in objects if getattr(each, "namespace", None) == candidate.namespace]
    for each in here:
        if (
            isinstance(each, Service)
            and each.selector is not None
            and each.selector.items() <= candidate.labels.items()
        ):
            labels |= each.selector
    controller = candidate.controller
    for each in here:
        if controller is None or type(each).__name__ != controller.kind or each.name != controller.name:
            continue
        if isinstance(each, ReplicationController):
            labels |= each.selector or {}
        if isinstance(each, ReplicaSet | StatefulSet) and each.selector is not None:
            others.append(each.selector)
    found = [LabelSelector(Labels(labels)), *others]
    return [each for each in found if each != LabelSelector()]


def expected_points(snapshot: Snapshot, objects: list[KubeObject], candidate: Pod, names: set[str]) -> dict[str, int]:
    """What PreScore, Score and NormalizeScore say, one node after the other."""
    given_ = candidate.spec.topology_spread
    constraints = [each for each in given_ if each.when_unsatisfiable == "ScheduleAnyway"]
    if not given_:
        deduced = default_selector(objects, candidate)
        labels: dict[str, str] = {}
        requested: list[LabelRequirement] = []
        for each in deduced:
            labels |= each.match_labels
            requested += [LabelRequirement(key, "In", (value,)) for key, value in each.match_labels.items()]
            requested += each.match_expressions
        if deduced:
            joined = LabelSelector(match_expressions=tuple(requested))
            constraints = [
                TopologySpread(3, HOSTNAME, "ScheduleAnyway", joined),
                TopologySpread(5, "topology.kubernetes.io/zone", "ScheduleAnyway", joined),
            ]
    if not constraints:
        return dict.fromkeys(names, 0)
    nodes = [snapshot.nodes.node(int(slot)) for slot in snapshot.nodes.order()]
    complete = [there for there in nodes if all(each.topology_key in there.labels for each in constraints)]
    counting = complete if given_ else nodes
    scored = [there for there in counting if there.name in names]
    raw = dict.fromkeys((there.name for there in scored), 0.0)
    for each in constraints:
        key = each.topology_key
        values = {there.labels.get(key, "") for there in scored}
        weight = math.log((len(scored) if key == HOSTNAME else len(values)) + 2)
        for there in scored:
            if key not in there.labels:
                continue
            around = [
                other
                for other in counting
                if other.labels.get(key, "") == there.labels[key] and counts(other, candidate, each)
            ]
            around = [there] if key == HOSTNAME else around
            number = sum(picked_on(snapshot, other, candidate, each) for other in around)
            raw[there.name] += number * weight + (each.max_skew - 1)
    return {**dict.fromkeys(names, 0), **(normalized(raw) if raw else {})}


@given(makers, st.integers(1, len(NODE_NAMES)), st.integers(0, 40))
def test_filter_and_score_equal_per_node_evaluation(seeded: Maker, number: int, size: int) -> None:
    make = SpreadMaker(seeded.pick(*range(2**16)))
    names = NODE_NAMES[:number]
    picking = make.picking()
    shared = [make.spec() for _ in range(3)]
    pods = [make.pod(f"p{index:02}", make.pick(*shared), names) for index in range(size)]
    snapshot = Snapshot([*(make.node(name) for name in names), *pods, *picking])
    candidates = [msgspec.structs.replace(make.pod(f"new{index}", spec), node="") for index, spec in enumerate(shared)]
    rule, score = Filter(snapshot), Score(snapshot)
    for _ in range(3):
        for candidate in candidates:
            assert reasons(snapshot, candidate) == expected_reasons(snapshot, candidate)
            passing = rule.passing(candidate)
            if passing is not None:
                expected = {name for name, reason in expected_reasons(snapshot, candidate).items() if not reason}
                assert {name for name, slot in snapshot.nodes.slot_of.items() if passing[slot]} == expected
            among = {name for name in names if make.one_in(2)} or set(names)
            mask = np.zeros(snapshot.nodes.capacity, dtype=np.bool_)
            mask[[snapshot.nodes.slot_of[name] for name in among]] = True
            found = score.scores(candidate, mask)
            recorded = {
                name: found if isinstance(found, int) else int(found[snapshot.nodes.slot_of[name]]) for name in among
            }
            assert recorded == expected_points(snapshot, picking, candidate, among)
        snapshot.put(make.pod("p00", make.pick(*shared), names))
        snapshot.put(make.node(make.pick(*names)))


def test_dense_and_sparse_counts_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = world(*zones("a", "a", "b"), *webs("n1", "n1", "n2", "n3"), SERVICE)
    hard, plain = web().spread().spread(HOSTNAME).build(), web().build()
    sparse = reasons(snapshot, hard), points(snapshot, plain), points(snapshot, soft().build())
    monkeypatch.setattr(topology_spread, "_SPARSE", 0)
    assert (reasons(snapshot, hard), points(snapshot, plain), points(snapshot, soft().build())) == sparse


def test_least_recently_used_arrays_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology_spread, "_SPARSE", 0)
    monkeypatch.setattr(topology_spread, "_MAX_DENSE", 2)
    monkeypatch.setattr(topology_spread, "_MAX_INCLUSIONS", 2)
    apps = [f"app-{number}" for number in range(5)]
    snapshot = world(*zones("a", "b"), *[pod(app).labels(app=app).on("n1") for app in apps])
    rule = Filter(snapshot)
    for app in [*apps, *apps]:
        candidate = pod("new").labels(app=app).spread().node_selector({HOSTNAME: app}).node_selector({ZONE: "a"})
        assert rule.passing(candidate.build()) is not None
        assert {
            name for name, reason in reasons(snapshot, pod("new").labels(app=app).spread().build()).items() if reason
        } == {"n1"}
    tables = topology_spread.tables_of(snapshot.nodes)
    counters = [snapshot.affinity.staying("shop", LabelSelector(Labels(app=app))) for app in apps]
    assert sum(counter._dense is not None for counter in counters) == 2
    assert len(tables._domains) == 2

"""Scores of nodes: taints, preferred labels, images, and affinity to other pods."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import HOSTNAME, ZONE, expression, namespace, node, pod, selector, service
from tests.unit.cluster.worlds import Maker, makers, worlds
from tests.unit.placement.scoring import built, points
from trimtab.cluster.affinity import as_incoming, bind
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import ResourceList
from trimtab.kube.objects import Container, Node, Pod, PodSpec, Service, Volume
from trimtab.placement.scores import images as image_scores
from trimtab.placement.scores.images import ImageLocality, images_of, normalized_name
from trimtab.placement.scores.nodes import NodeAffinity, TaintToleration
from trimtab.placement.scores.pods import InterPodAffinity
from trimtab.placement.service_selectors import SelectorsOfPods

SOFT = "PreferNoSchedule"


def tainted(name: str, *keys: str, effect: str = SOFT) -> Any:
    made = node(name)
    for key in keys:
        made.taint(key, "x", effect=effect)
    return made


ONE_TO_THREE = [tainted("n1", "a"), tainted("n2", "a", "b"), tainted("n3", "a", "b", "c")]
TAINT_CASES: list[Any] = [
    pytest.param([node("n1"), node("n2")], pod(), "", [100, 100], id="without taints all are equal"),
    pytest.param([tainted("n1", "a"), tainted("n2", "a", "b"), node("n3")], pod(), "", [50, 0, 100], id="half as many"),
    pytest.param(ONE_TO_THREE, pod(), "", [67, 34, 0], id="rounded down before it is turned round"),
    pytest.param(ONE_TO_THREE, pod(), "n1 n2", [50, 0], id="the worst of those to choose from is 0"),
    pytest.param(ONE_TO_THREE, pod(), "n3", [0], id="a node alone"),
    pytest.param([tainted("n1", "a"), tainted("n2", "b")], pod().tolerates("a"), "", [100, 0], id="tolerated"),
    pytest.param(ONE_TO_THREE, pod().tolerates("a", effect=SOFT), "", [100, 50, 0], id="tolerated with this effect"),
    pytest.param(
        ONE_TO_THREE, pod().tolerates("a", effect="NoSchedule"), "", [67, 34, 0], id="tolerated with another effect"
    ),
    pytest.param(ONE_TO_THREE, pod().tolerates("a", "y"), "", [67, 34, 0], id="tolerated with another value"),
    pytest.param(ONE_TO_THREE, pod().tolerates(), "", [100, 100, 100], id="all tolerated"),
    pytest.param(
        [tainted("n1", "a", effect="NoSchedule"), tainted("n2", "b")], pod(), "", [100, 0], id="hard taints don't count"
    ),
    pytest.param(
        [tainted("n1", "a"), node("n2").taint("a", "x", SOFT).taint("a", "y", SOFT)],
        pod(),
        "",
        [50, 0],
        id="two values",
    ),
]


@pytest.mark.parametrize(("nodes", "candidate", "among", "expected"), TAINT_CASES)
def test_fewer_untolerated_soft_taints_score_higher(nodes, candidate, among, expected):
    snapshot = built(nodes)
    assert list(points(TaintToleration(snapshot), snapshot, candidate, among).values()) == expected


def test_new_taint_changes_the_score():
    snapshot = built([node("n1"), node("n2")])
    score = TaintToleration(snapshot)
    assert points(score, snapshot, pod()) == {"n1": 100, "n2": 100}
    snapshot.put(tainted("n2", "a").build())
    assert points(score, snapshot, pod()) == {"n1": 100, "n2": 0}
    snapshot.remove(snapshot.nodes.get("n2"))
    assert points(score, snapshot, pod()) == {"n1": 100}


NODES = [
    node("n1").labels(disk="ssd", gen="7"),
    node("n2").labels(disk="hdd", gen="8"),
    node("n3").labels(disk="ssd", gen="9"),
    node("n4"),
]
SSD = expression("disk", "In", "ssd")
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def preferring(weight: int, **term: Any) -> Any:
    return pod().merge(spec={"affinity": {"nodeAffinity": {PREFERRED: [{"weight": weight, "preference": term}]}}})


LABEL_CASES: list[Any] = [
    pytest.param(pod(), "", [0, 0, 0, 0], id="no preference"),
    pytest.param(pod().prefers_nodes(5, SSD), "", [100, 0, 100, 0], id="the weight of one preference is nothing"),
    pytest.param(
        pod().prefers_nodes(10, SSD).prefers_nodes(30, expression("gen", "Gt", "7")),
        "",
        [25, 75, 100, 0],
        id="weights add",
    ),
    pytest.param(
        pod().prefers_nodes(1, SSD).prefers_nodes(2, expression("gen", "Gt", "8")),
        "",
        [33, 0, 100, 0],
        id="rounded down",
    ),
    pytest.param(
        pod().prefers_nodes(1, SSD).prefers_nodes(2, expression("gen", "Gt", "8")),
        "n1 n2",
        [100, 0],
        id="the best of those to choose from is 100",
    ),
    pytest.param(pod().prefers_nodes(5, SSD), "n2 n4", [0, 0], id="no node meets it"),
    pytest.param(pod().prefers_nodes(5, SSD, expression("gen", "Lt", "8")), "", [100, 0, 0, 0], id="both or nothing"),
    pytest.param(
        pod().prefers_nodes(5, expression("disk", "NotIn", "ssd")), "", [0, 100, 0, 100], id="absent is not in"
    ),
    pytest.param(preferring(5), "", [0, 0, 0, 0], id="an empty term"),
    pytest.param(
        preferring(5, matchFields=[expression("metadata.name", "In", "n4")]), "", [0, 0, 0, 100], id="by the name"
    ),
    pytest.param(
        pod().prefers_nodes(9, expression("gen", "Gt", "x")).prefers_nodes(1, SSD),
        "",
        [100, 0, 100, 0],
        id="what cannot be evaluated",
    ),
    pytest.param(
        pod().node_selector(disk="ssd").node_affinity(SSD), "", [0, 0, 0, 0], id="what is required says nothing"
    ),
]


@pytest.mark.parametrize(("candidate", "among", "expected"), LABEL_CASES)
def test_preferences_count_by_their_weights(candidate, among, expected):
    snapshot = built(NODES)
    assert list(points(NodeAffinity(snapshot), snapshot, candidate, among).values()) == expected


def test_changed_label_changes_the_score():
    snapshot = built(NODES)
    score, candidate = NodeAffinity(snapshot), pod().prefers_nodes(5, SSD)
    points(score, snapshot, candidate)
    snapshot.put(node("n1").labels(disk="hdd").build())
    snapshot.put(node("n2").labels(disk="ssd").build())
    assert points(score, snapshot, candidate) == {"n1": 0, "n2": 100, "n3": 100, "n4": 0}


MIB = 1 << 20


def holding(name: str, **sizes: int) -> Node:
    """A node with images of so many MiB, all tagged 1."""
    images = ResourceList({f"{image}:1": size * MIB for image, size in sizes.items()})
    return msgspec.structs.replace(node(name).build(), images=images)


def everywhere(**sizes: int) -> list[Node]:
    return [holding(name, **sizes) for name in ("n1", "n2")]


def running(*images: str) -> Any:
    made = pod().image(f"{images[0]}:1")
    for number, image in enumerate(images[1:]):
        made.container(f"more-{number}", image=f"{image}:1")
    return made


OF_FOUR = [holding("n1", web=500), holding("n2"), holding("n3"), holding("n4")]
IMAGE_CASES: list[Any] = [
    pytest.param([holding("n1"), holding("n2")], running("web"), [0, 0], id="no node has it"),
    # 100 * (500 - 23) / (1000 - 23) = 48.8
    pytest.param(everywhere(web=500), running("web"), [48, 48], id="everybody has it"),
    # half of the nodes: 100 * (250 - 23) / 977 = 23.2
    pytest.param([holding("n1", web=500), holding("n2")], running("web"), [23, 0], id="one of two has it"),
    # a quarter: 100 * (125 - 23) / 977 = 10.4
    pytest.param(OF_FOUR, running("web"), [10, 0, 0, 0], id="one of four has it"),
    pytest.param(everywhere(web=23), running("web"), [0, 0], id="too small to count"),
    pytest.param(everywhere(web=33), running("web"), [1, 1], id="large enough to count"),  # 1000 / 977 = 1.02
    pytest.param(everywhere(web=1000), running("web"), [100, 100], id="as large as counts"),
    pytest.param(everywhere(web=4000), running("web"), [100, 100], id="larger than counts"),
    # two containers: 100 * (500 + 300 - 23) / (2000 - 23) = 39.3
    pytest.param(everywhere(web=500, log=300), running("web", "log"), [39, 39], id="two containers"),
    # 100 * (500 - 23) / 1977 = 24.1 and 100 * (150 - 23) / 1977 = 6.4
    pytest.param(
        [holding("n1", web=500, log=300), holding("n2", web=500)],
        running("web", "log"),
        [31, 24],  # n1: 100 * (500 + 150 - 23) / 1977 = 31.7
        id="one image of two",
    ),
    pytest.param(
        everywhere(web=500), running("web", "web"), [49, 49], id="the same image twice"
    ),  # 97700 / 1977 = 49.4
    pytest.param(
        everywhere(web=500, log=300),
        running("web").init_container("first", image="log:1"),
        [39, 39],
        id="an init container counts as one",
    ),
    # an image volume adds to the sum, and not to what the sum is measured by: 100 * (500 + 300 - 23) / 977 = 79.5
    pytest.param(
        everywhere(web=500, log=300), running("web").volume("image", reference="log:1"), [79, 79], id="an image volume"
    ),
    # which of two sizes: n1's, as it is the first by name: 100 * (500 - 23) / 977 = 48.8
    pytest.param([holding("n2", web=100), holding("n1", web=500)], running("web"), [48, 48], id="sizes differ"),
    pytest.param([holding("n1", web=100), holding("n2", web=500)], running("web"), [7, 7], id="and differ"),
    pytest.param(everywhere(latest=500), pod().image("latest:2"), [0, 0], id="another tag"),
]


@pytest.mark.parametrize(("nodes", "candidate", "expected"), IMAGE_CASES)
def test_images_count_by_size_and_spread(nodes, candidate, expected):
    snapshot = built(nodes)
    assert list(points(ImageLocality(snapshot), snapshot, candidate).values()) == expected


def test_full_caches_of_scores_are_emptied(monkeypatch):
    monkeypatch.setattr(image_scores, "_KEPT", 1)
    snapshot = built(everywhere(web=500, log=300))
    score = ImageLocality(snapshot)
    found = [list(points(score, snapshot, running(each)).values()) for each in ("web", "log", "web", "none")]
    assert found == [[48, 48], [28, 28], [48, 48], [0, 0]]


def test_full_cache_of_selectors_is_emptied(monkeypatch):
    monkeypatch.setattr(SelectorsOfPods, "_MOST", 1)
    selectors = SelectorsOfPods(built([service("a").selecting(app="a"), service("b").selecting(app="b")]), (Service,))
    found = [len(selectors.of(pod().labels(app=each).build())) for each in ("a", "b", "a", "c")]
    assert found == [1, 1, 1, 0]


def test_image_score_is_independent_of_candidates():
    snapshot = built(OF_FOUR)
    assert points(ImageLocality(snapshot), snapshot, running("web"), "n1 n2") == {"n1": 10, "n2": 0}


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("app", "app:latest"),
        ("app:1", "app:1"),
        ("registry.example:5000/app", "registry.example:5000/app:latest"),
        ("registry.example:5000/app:1", "registry.example:5000/app:1"),
        ("app@sha256:00ff", "app@sha256:00ff"),
        ("", ":latest"),
    ],
)
def test_image_name_without_tag_means_latest(image, name):
    assert normalized_name(image) == name


def test_other_volume_kinds_are_not_images():
    spec = PodSpec(
        containers=(Container("a", "web:1"),),
        volumes=(Volume("hostPath", disk=("log:1",)), Volume("image"), Volume("image", disk=("log",))),
    )
    assert images_of(spec) == (("log:latest", "web:1"), 1)


holdings = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 2000))
changes = st.lists(st.tuples(st.sampled_from(["n1", "n2", "n3"]), st.none() | holdings), max_size=8)


@given(changes)
def test_updated_image_index_equals_a_new_one(made):
    snapshot = built([holding("n0", a=700)])
    kept = ImageLocality(snapshot)
    candidates = [running("a"), running("a", "b", "c")]
    for name, images in made:
        if images is not None:
            snapshot.put(holding(name, **images))
        elif snapshot.nodes.get(name) is not None:
            snapshot.remove(snapshot.nodes.get(name))
        again = Snapshot([snapshot.nodes.get(name) for name in sorted(snapshot.nodes.slot_of, reverse=True)])
        for candidate in candidates:
            assert points(kept, snapshot, candidate) == points(ImageLocality(again), again, candidate)


WEB = {"labelSelector": selector(app="web")}


def in_zones() -> list[Any]:
    """Two nodes in zone a, one in zone b, one in none."""
    return [node("n1").zone("a"), node("n2").zone("a"), node("n3").zone("b"), node("n4")]


def app(name: str, on: str, *, ns: str = "shop", kind: str = "web") -> Any:
    return pod(name, ns).labels(app=kind).on(on)


def hosts(*numbers: int) -> list[Any]:
    """So many web pods on n1, n2 and so on."""
    return [app(f"w{host}-{each}", f"n{host}") for host, number in enumerate(numbers, 1) for each in range(number)]


NEAR_WEB = pod("p").affinity(ZONE, preferred=10, **WEB)
BY_HOST = pod("p").affinity(HOSTNAME, preferred=3, **WEB)
AFFINITY_CASES: list[Any] = [
    pytest.param([], pod("p"), "", [0, 0, 0, 0], id="no preference at all"),
    pytest.param(hosts(1), NEAR_WEB, "", [100, 100, 0, 0], id="near a pod that it likes"),
    pytest.param(hosts(1), pod("p").anti_affinity(ZONE, preferred=10, **WEB), "", [0, 0, 100, 100], id="not near"),
    pytest.param(hosts(0, 0, 0, 1), NEAR_WEB, "", [0, 0, 0, 0], id="no zone, no neighbours"),
    pytest.param(hosts(0, 1, 3), BY_HOST, "", [0, 33, 100, 0], id="rounded down"),
    pytest.param(hosts(0, 29, 100), BY_HOST, "", [0, 28, 100, 0], id="29 of 100 is 28, as in floating point"),
    pytest.param(hosts(1, 3, 5), BY_HOST, "n1 n2 n3", [0, 50, 100], id="between lowest and highest"),
    pytest.param(hosts(2, 2, 2), BY_HOST, "n1 n2 n3", [0, 0, 0], id="all alike"),
    pytest.param(hosts(2, 2, 9), BY_HOST, "n1 n2", [0, 0], id="alike where it may go"),
    pytest.param(
        hosts(1, 0, 1),
        pod("p").affinity(ZONE, preferred=5, **WEB).anti_affinity(ZONE, preferred=5, **WEB),
        "",
        [0, 0, 0, 0],
        id="for and against",
    ),
    pytest.param(
        [app("w", "n1"), app("d", "n2", kind="db")],
        pod("p")
        .affinity(ZONE, preferred=4, **WEB)
        .anti_affinity(HOSTNAME, preferred=1, labelSelector=selector(app="db")),
        "",
        [100, 75, 0, 0],
        id="two terms by two topologies",
    ),
    pytest.param(
        hosts(1), pod("p", "blog").affinity(ZONE, preferred=10, **WEB), "", [0, 0, 0, 0], id="another namespace"
    ),
    pytest.param(
        hosts(1),
        pod("p", "blog").affinity(ZONE, preferred=10, namespaces=["shop"], **WEB),
        "",
        [100, 100, 0, 0],
        id="a namespace named",
    ),
    pytest.param(
        hosts(1),
        pod("p").affinity(ZONE, preferred=10, namespaceSelector={"matchLabels": {"team": "x"}}, **WEB),
        "",
        [0, 0, 0, 0],
        id="a namespace not selected",
    ),
    pytest.param(
        hosts(1),
        pod("p").affinity(
            ZONE, preferred=10, namespaceSelector={"matchExpressions": [expression("team", "NotIn", "y")]}, **WEB
        ),
        "",
        [100, 100, 0, 0],
        id="a selector that no labels satisfy selects every namespace",
    ),
    # what the pods there state
    pytest.param(
        [app("w", "n1").affinity(ZONE, preferred=7, labelSelector=selector(app="api"))],
        pod("p").labels(app="api"),
        "",
        [100, 100, 0, 0],
        id="liked by a pod there",
    ),
    pytest.param(
        [app("w", "n1").anti_affinity(ZONE, preferred=7, labelSelector=selector(app="api"))],
        pod("p").labels(app="api"),
        "",
        [0, 0, 100, 100],
        id="disliked by a pod there",
    ),
    pytest.param(
        [app("w", "n1").affinity(ZONE, preferred=7, labelSelector=selector(app="api"))],
        pod("p").labels(app="db"),
        "",
        [0, 0, 0, 0],
        id="another one is liked",
    ),
    pytest.param(
        [app("w", "n1").affinity(HOSTNAME, **WEB), app("v", "n3").affinity(HOSTNAME, preferred=4)],
        pod("p").labels(app="web"),
        "",
        [25, 0, 100, 0],
        id="what a pod there requires weighs 1",
    ),
    pytest.param(
        [app("w", "n1").anti_affinity(HOSTNAME, **WEB)],
        pod("p").labels(app="web"),
        "",
        [0, 0, 0, 0],
        id="required anti-affinity is no matter of scores",
    ),
    pytest.param(
        [app("w", "n1")],
        pod("p").affinity(HOSTNAME, **WEB),
        "",
        [0, 0, 0, 0],
        id="what the pod itself requires neither",
    ),
    pytest.param(
        [
            app("w", "n1").affinity(
                ZONE, preferred=7, namespaceSelector={"matchExpressions": [expression("team", "Exists")]}
            )
        ],
        pod("p", "blog").labels(app="web"),
        "",
        [100, 100, 0, 0],
        id="a namespace whose labels a pod there selects",
    ),
    pytest.param([app("w", "n1").deleted()], NEAR_WEB, "", [100, 100, 0, 0], id="a pod that is leaving still counts"),
    pytest.param([app("w", "n1").phase("Succeeded")], NEAR_WEB, "", [0, 0, 0, 0], id="a pod that has ended does not"),
    pytest.param([app("w", "n9")], NEAR_WEB, "", [0, 0, 0, 0], id="a node that is gone"),
]


@pytest.mark.parametrize(("there", "candidate", "among", "expected"), AFFINITY_CASES)
def test_preferences_count_by_weight_and_number(there, candidate, among, expected):
    snapshot = built([*in_zones(), namespace("shop").labels(team="y"), namespace("blog").labels(team="x"), *there])
    assert list(points(InterPodAffinity(snapshot), snapshot, candidate, among).values()) == expected


def test_pod_without_affinity_does_not_build_the_affinity_index():
    snapshot = built([*in_zones(), *hosts(2, 1)])
    assert InterPodAffinity(snapshot).scores(pod("p").build(), snapshot.nodes.used) == 0
    assert snapshot._accounting._affinity is None


def test_moved_pod_changes_the_score():
    snapshot = built([*in_zones(), *hosts(1)])
    score = InterPodAffinity(snapshot)
    assert points(score, snapshot, NEAR_WEB) == {"n1": 100, "n2": 100, "n3": 0, "n4": 0}
    with snapshot.fork():
        snapshot.move(snapshot.pods["shop/w1-0"], "n3")
        assert points(score, snapshot, NEAR_WEB) == {"n1": 0, "n2": 0, "n3": 100, "n4": 0}
    assert points(score, snapshot, NEAR_WEB) == {"n1": 100, "n2": 100, "n3": 0, "n4": 0}


def raw(snapshot: Snapshot, candidate: Pod, host: Node) -> int:
    """The sum for one node, pod by pod and term by term, as the plugin is written."""
    total = 0
    for other in snapshot.pods.values():
        there = snapshot.nodes.get(other.node) if other.node else None
        if there is None or other.terminal:
            continue
        mine, theirs = candidate.spec.affinity, other.spec.affinity
        recorded = [
            (as_incoming(bind(each.term, candidate.namespace)), each.weight, other) for each in mine.pod_preferred
        ]
        recorded += [
            (as_incoming(bind(each.term, candidate.namespace)), -each.weight, other) for each in mine.anti_preferred
        ]
        recorded += [(bind(term, other.namespace), 1, candidate) for term in theirs.pod_required]
        recorded += [(bind(each.term, other.namespace), each.weight, candidate) for each in theirs.pod_preferred]
        recorded += [(bind(each.term, other.namespace), -each.weight, candidate) for each in theirs.anti_preferred]
        for term, weight, picked in recorded:
            value = there.labels.get(term.topology_key)
            labels = snapshot.namespace_labels(picked.namespace)
            if value is not None and host.labels.get(term.topology_key) == value:
                total += weight * term.matches(picked.namespace, picked.labels, labels)
    return total


def expected(snapshot: Snapshot, candidate: Pod, names: list[str]) -> dict[str, int]:
    return scaled({name: raw(snapshot, candidate, snapshot.nodes.get(name)) for name in names})


def scaled(sums: dict[str, int]) -> dict[str, int]:
    low, high = min(sums.values()), max(sums.values())
    return {
        name: int(100.0 * (float(each - low) / float(high - low))) if high > low else 0 for name, each in sums.items()
    }


@given(worlds(), makers.map(lambda make: Maker.pod(make, "candidate", None, ("",))), st.data())
def test_scores_equal_per_pod_evaluation(world, candidate, data):
    snapshot = Snapshot(world)
    score = InterPodAffinity(snapshot)
    names = sorted(data.draw(st.sets(st.sampled_from(sorted(snapshot.nodes.slot_of)), min_size=1)))
    for _ in range(3):
        assert points(score, snapshot, candidate, " ".join(names)) == expected(snapshot, candidate, names)
        if not snapshot.pods:
            break
        moving = snapshot.pods[data.draw(st.sampled_from(sorted(snapshot.pods)))]
        snapshot.move(moving, data.draw(st.sampled_from(sorted(snapshot.nodes.slot_of))))


def test_dense_counters_follow_pod_and_node_changes():
    """From some hundreds of domains on, counters keep arrays; they must follow every change."""
    chance = np.random.default_rng(4)
    snapshot = built([node(f"n{number:03}") for number in range(300)])
    for number in range(300):
        snapshot.put(app(f"w{number}", f"n{number:03}").build())
    score, candidate = InterPodAffinity(snapshot), BY_HOST.build()
    for step in range(30):
        names = sorted(snapshot.nodes.slot_of)
        assert points(score, snapshot, candidate) == scaled({name: len(snapshot.pods_on(name)) for name in names})
        if step % 5 == 4:
            snapshot.put(node(f"m{step}").build())
            snapshot.put(app(f"v{step}", f"m{step}").build())
        if step % 7 == 6:
            snapshot.remove(snapshot.nodes.get(names[int(chance.integers(len(names)))]))
        keys = sorted(snapshot.pods)
        moving = snapshot.pods[keys[int(chance.integers(len(keys)))]]
        if step % 2:
            snapshot.remove(moving)
        else:
            snapshot.move(moving, names[int(chance.integers(5))])

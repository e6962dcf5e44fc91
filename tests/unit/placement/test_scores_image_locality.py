"""ImageLocality's score: images that are on the node already."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import node, pod
from tests.unit.placement.scoring import built, points
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import ResourceList
from trimtab.kube.objects import Container, Node, PodSpec, Volume
from trimtab.placement.scores.image_locality import ImageLocality, images_of, normalized_name

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
CASES: list[Any] = [
    pytest.param([holding("n1"), holding("n2")], running("web"), [0, 0], id="nobody has it"),
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


@pytest.mark.parametrize(("nodes", "candidate", "expected"), CASES)
def test_images_count_by_size_and_spread(nodes, candidate, expected):
    snapshot = built(nodes)
    assert list(points(ImageLocality(snapshot), snapshot, candidate).values()) == expected


def test_what_is_compared_does_not_depend_on_the_nodes_to_choose_from():
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
def test_a_name_without_a_tag_is_the_latest(image, name):
    assert normalized_name(image) == name


def test_volumes_of_other_kinds_are_no_images():
    spec = PodSpec(
        containers=(Container("a", "web:1"),),
        volumes=(Volume("hostPath", disk=("log:1",)), Volume("image"), Volume("image", disk=("log",))),
    )
    assert images_of(spec) == (("log:latest", "web:1"), 1)


holdings = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 2000))
changes = st.lists(st.tuples(st.sampled_from(["n1", "n2", "n3"]), st.none() | holdings), max_size=8)


@given(changes)
def test_nodes_that_come_change_and_go_leave_what_a_new_reading_finds(made):
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

"""Placing equal pods at once gives the same result as placing them one by one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import HOSTNAME, ZONE, node, pod, replica_set
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement.equal_pods import EqualPodPlacer
from trimtab.placement.placer import Placer


def cluster(sizes: list[tuple[int, int]], running: list[int], *, owned: bool) -> Snapshot:
    """Nodes of (cores, zone), each with running pods of the same owner."""
    objects: list[Any] = [
        node(f"n{number}").allocatable(cpu=cores).zone(f"z{zone}") for number, (cores, zone) in enumerate(sizes)
    ]
    for number, count in enumerate(running[: len(sizes)]):
        objects += [_web(f"run-{number}-{each}").on(f"n{number}") for each in range(count)]
    if owned:
        objects.append(replica_set("web").selecting(app="web"))
    return Snapshot(each.build() for each in objects)


def _web(name: str) -> Any:
    return pod(name).cpu("500m").memory("1Gi").labels(app="web").owned_by("ReplicaSet", "web")


def equal_pods(count: int, template: Any) -> list[Pod]:
    first = template.build()
    return [replace(first, name=f"p{number:03}", uid=f"p{number}") for number in range(count)]


_SIZES = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(sizes=_SIZES, running=st.lists(st.integers(0, 2), min_size=6, max_size=6), count=st.integers(1, 25))
def test_as_many_pods_per_node_as_one_by_one(sizes: list[tuple[int, int]], running: list[int], count: int) -> None:
    pods = equal_pods(count, _web("p"))
    one, all_at_once = cluster(sizes, running, owned=False), cluster(sizes, running, owned=False)
    expected = [each.pod.node for each in Placer(one).place(pods)]

    found = EqualPodPlacer(Placer(all_at_once)).place(pods)

    assert sorted(each.node for each in found.placed) == sorted(filter(None, expected))
    assert len(found.placed) + len(found.left) == count


@settings(max_examples=60, deadline=None)
@given(sizes=_SIZES, running=st.lists(st.integers(0, 2), min_size=6, max_size=6), count=st.integers(1, 25))
def test_default_spreading_places_as_many_pods(sizes: list[tuple[int, int]], running: list[int], count: int) -> None:
    pods = equal_pods(count, _web("p"))
    one, all_at_once = cluster(sizes, running, owned=True), cluster(sizes, running, owned=True)
    expected = [each.pod.node for each in Placer(one).place(pods)]

    found = EqualPodPlacer(Placer(all_at_once)).place(pods)

    assert len(found.placed) == len([each for each in expected if each])


@pytest.mark.parametrize(
    "template",
    [
        _web("p").anti_affinity(),
        _web("p").anti_affinity(ZONE),
        _web("p").spread(ZONE),
        _web("p").spread(HOSTNAME, when="ScheduleAnyway"),
        _web("p").host_port(80),
        _web("p").affinity(ZONE, preferred=10),
    ],
)
def test_pods_that_depend_on_each_other_are_placed_one_by_one(template: Any) -> None:
    sizes = [(4, 0), (4, 0), (2, 1), (4, 2)]
    pods = equal_pods(6, template)
    one, all_at_once = (cluster(sizes, [0] * 4, owned=False) for _ in range(2))
    expected = [each.pod.node for each in Placer(one).place(pods)]

    found = EqualPodPlacer(Placer(all_at_once)).place(pods)

    assert [each.node for each in found.placed] == [each for each in expected if each]


def test_pods_are_spread_evenly_over_the_zones_of_many_nodes() -> None:
    sizes = [(4, number % 3) for number in range(150)]
    pods = equal_pods(31, _web("p"))
    snapshot = cluster(sizes, [2, 2], owned=True)

    found = EqualPodPlacer(Placer(snapshot)).place(pods)

    zones = Counter(
        int(each.node[1:]) % 3 for each in [*found.placed, *snapshot.pods_on("n0"), *snapshot.pods_on("n1")]
    )
    assert sum(zones.values()) == 35
    assert max(zones.values()) - min(zones.values()) <= 1
    assert len({each.node for each in found.placed}) == 31

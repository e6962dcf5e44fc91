"""A placer that is kept forgets deleted pods, and keeps what is expensive to compute for the others."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tests.builders import HOSTNAME, ZONE, expression, node, pod, selector
from trimtab.cluster import affinity
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Pod, Service
from trimtab.placement import topology_spread
from trimtab.placement.filters import nodes, pods
from trimtab.placement.placer import Placer
from trimtab.placement.registry import DEFAULT, Profile
from trimtab.placement.scores import legacy
from trimtab.placement.topology_spread import tables_of

PROFILE = Profile(
    (*DEFAULT.filters, partial(nodes.NodeResourcesFit, ignored=["example.com/ignored"])),
    (*DEFAULT.scores, legacy.SelectorSpreadPriority),
)


def cluster(*further: Any) -> Snapshot:
    service = Service("shop", "web", selector=Labels({"app": "web"}))
    named = (node(name).zone(name).image("registry.example/web", size=10**9) for name in ("n1", "n2"))
    return Snapshot([*(each.build() for each in (*named, *further)), service])


def judge(placer: Placer, pod: Pod) -> None:
    placer.feasible(pod)
    placer.scorer.totals(pod, placer.snapshot.nodes.used)


def references(values: list[Any]) -> list[int]:
    return [sys.getrefcount(each) for each in values]


@pytest.mark.parametrize("spreads", [False, True])
def test_labels_of_deleted_pods_are_not_kept(spreads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deleted pods share the spec of a pod that exists."""
    monkeypatch.setattr(pods, "_MANY_COUNTERS", 1)
    monkeypatch.setattr(affinity, "_SPARE_SIZE", 0)
    web = pod("web").labels(app="web").image("registry.example/web")
    template = (web.spread(ZONE) if spreads else web).build()
    snapshot = cluster(pod("db").anti_affinity(HOSTNAME, labelSelector=selector(app="web")).on("n1"))
    snapshot.put(template)
    placer = Placer(snapshot, PROFILE)
    labels = [Labels({"app": "web", "number": str(number)}) for number in range(20)]
    for each in labels:
        judge(placer, replace(template, name="gone", labels=each))
    del each
    kept = references(labels)

    snapshot.forget_removed()

    unused = [Labels({"number": str(number)}) for number in range(20)]
    assert max(kept) > references(labels)[0]
    assert references(labels) == references(unused)


def test_specs_of_deleted_pods_are_not_kept_and_others_are() -> None:
    snapshot = cluster()
    placer = Placer(snapshot, PROFILE)

    def unique(number: int) -> Pod:
        made = pod(f"web-{number}").labels(app="web").image("registry.example/web").cpu(f"{1 + number}m")
        made = made.requests({"example.com/ignored": "1"}).affinity(preferred=1, labelSelector=selector(app="web"))
        made = made.node_selector({HOSTNAME: f"n{number}"}).prefers_nodes(1, expression(HOSTNAME, "In", f"n{number}"))
        return made.tolerates(f"t{number}").spread(ZONE).build()

    staying, *gone = map(unique, range(9))
    snapshot.put(staying)
    specs = [each.spec for each in gone]
    parts = [part for each in specs for part in (each.tolerations, each.node_selector, each.affinity.node.preferred)]
    before = references([*specs, *parts])
    for each in (staying, *gone):
        judge(placer, each)
    [images] = [score for score in placer.scorer.scores if score.name == "ImageLocality"]
    del each, gone

    snapshot.forget_removed()

    specs_without_pods = [number - 1 for number in before[: len(specs)]]
    assert references([*specs, *parts]) == [*specs_without_pods, *before[len(specs) :]]
    assert placer._asked.keys() == images._asked.keys() == {id(staying.spec)}


def test_templates_share_domains_after_memory_is_reclaimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology_spread, "_SPARSE", 0)
    snapshot = cluster(pod("db").labels(app="web").on("n1"))
    placer = Placer(snapshot)
    early, late = (pod(name).labels(app="web").cpu(cpu).spread(ZONE).build() for name, cpu in (("a", "1"), ("b", "2")))
    snapshot.put(early)
    snapshot.put(late)
    judge(placer, early)
    tables = tables_of(snapshot.nodes)

    snapshot.forget_removed()
    assert not tables._dense

    judge(placer, early)
    judge(placer, late)
    assert len(tables._domains) == 1


@pytest.mark.parametrize("registered", [True, False])
def test_pods_are_counted_after_unread_counters_are_dropped(registered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by callers that keep counters and get no notice when the index drops them."""
    monkeypatch.setattr(affinity, "_SPARE_SIZE", 0)
    snapshot = cluster()
    placer = Placer(snapshot, PROFILE)
    spreading = pod("web-1").labels(app="web").spread(ZONE).build()
    preferring = pod("web-2").labels(app="web").affinity(preferred=1, labelSelector=selector(app="web")).build()
    for each in (spreading, preferring):
        snapshot.put(each)
        judge(placer, each)
    if not registered:
        snapshot.nodes.caches.clear()
    snapshot.forget_removed()

    snapshot.forget_removed()

    assert not snapshot.affinity._staying
    for number in range(2):
        snapshot.put(pod(f"db-{number}").labels(app="web").on("n1").build())
    for each in (spreading, preferring):
        new, among = Placer(snapshot, PROFILE), placer.feasible(each)
        assert among.tolist() == new.feasible(each).tolist()
        assert placer.scorer.totals(each, among).tolist() == new.scorer.totals(each, among).tolist()

"""A placer that is reused through changes judges, scores and explains as a new one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cluster.worlds import CLAIMS, NODE_NAMES, ZONE, Maker, worlds
from trimtab.cluster import affinity, node_table, object_store
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import ResourceList
from trimtab.kube.objects import KubeObject, Node, NodeCondition, Pod
from trimtab.placement import (
    feasibility,
    interface,
    node_masks,
    slot_cache,
    topology_spread,
    volume_matching,
    volume_topology,
)
from trimtab.placement.filters import legacy
from trimtab.placement.filters import pods as pod_filters
from trimtab.placement.placer import Placer
from trimtab.placement.registry import DEFAULT, Profile
from trimtab.placement.scores import images
from trimtab.placement.scores import nodes as node_scores
from trimtab.placement.scores import pods as pod_scores

MANY = (*NODE_NAMES, *(f"more-{number}" for number in range(64)))
SMALL = {
    (slot_cache, "_MAX_KEYS"): 2,
    (node_table, "_LOG"): 9,
    (node_table, "_SPARE"): -8,
    (object_store, "_LOG"): 7,
    (affinity, "_SPARE"): 2,
    (affinity, "_SPARE_SIZE"): 0,
    (affinity, "_SPARE_COUNTERS"): -8,
    (affinity, "_ROUNDS"): 2,
    (node_table, "_MANY"): 2,
    (topology_spread, "_MAX_KEYS"): 3,
    (topology_spread, "_MAX_INCLUSIONS"): 2,
    (topology_spread, "_MAX_DENSE"): 2,
    (topology_spread, "_SPARSE"): 1,
    (node_masks, "_MAX_MASKS"): 3,
    (interface, "_MAX_VERDICTS"): 2,
    (feasibility, "_MAX_MASKS"): 2,
    (feasibility, "_MAX_SPECS"): 2,
    (node_scores, "_MAX_KEPT"): 2,
    (images, "_KEPT"): 2,
    (pod_filters, "_MANY_COUNTERS"): 1,
    (pod_filters, "_FEW_SLOTS"): 2,
    (images, "_SPECS"): 2,
    (pod_scores, "_SPECS"): 2,
    (volume_matching, "_MAX_ANSWERS"): 2,
    (volume_topology, "_MAX_KEPT"): 2,
}
"""Bounds so small that everything that is kept is thrown out, and every log cut, within a few steps."""

LEGACY = Profile(
    (
        *DEFAULT.filters,
        legacy.CheckNodeCondition,
        partial(legacy.NodeLabelPresence, labels=[ZONE], presence=True),
        partial(legacy.ServiceAffinity, labels=[ZONE]),
    ),
    DEFAULT.scores,
)


@pytest.fixture(autouse=True, scope="module", params=["as they are", "small"])
def bounds(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), value in SMALL.items() if request.param == "small" else ():
            assert hasattr(module, name)
            patch.setattr(module, name, value)
        yield


class Change:
    """A random change of a kept snapshot, by itself, in a mark, or by placing pods."""

    def __init__(self, make: Maker, snapshot: Snapshot, profile: Profile = DEFAULT) -> None:
        self.make = make
        self.snapshot = snapshot
        self.profile = profile
        self.placer = Placer(snapshot, profile)
        self.specs = [make.spec() for _ in range(4)]
        self.marks: list[int] = []

    def pending(self, name: str) -> Pod:
        made = self.make.pod(name, self.make.pick(*self.specs))
        return msgspec.structs.replace(made, node="", deleted=None, phase="Pending")

    def node(self) -> Node:
        made = self.make.node(self.make.pick(*NODE_NAMES, *MANY[-2:]))
        if made.name in self.snapshot.nodes.slot_of and self.make.one_in(2):  # nothing but a condition changes
            status = self.make.pick("True", "False")
            return msgspec.structs.replace(
                self.snapshot.nodes.get(made.name), conditions=(NodeCondition("Ready", status),)
            )
        if self.make.one_in(4):  # the columns widen in the middle
            extended = {f"example.com/r{self.make.pick(*range(20))}": 1}
            return msgspec.structs.replace(made, allocatable=ResourceList({**made.allocatable, **extended}))
        return made

    def step(self) -> None:
        make, snapshot = self.make, self.snapshot
        number = make.pick(*range(12))
        if number < 3:
            snapshot.put(self.node())
        elif number < 4:
            snapshot.remove(self.node())
        elif number < 7:
            snapshot.put(make.pod(make.pick("a", "b", "c"), make.pick(*self.specs)))
        elif number < 8:
            snapshot.remove(make.pod(make.pick("a", "b", "c")))
        elif number < 9:
            claim = make.pick(*CLAIMS)
            snapshot.put(make.pick(make.claim(claim), make.volume(claim), make.namespace(), *make.owners()))
        elif number < 10:
            self.marks.append(snapshot.mark())
        elif number < 11 and self.marks:
            (snapshot.undo if make.one_in(2) else snapshot.commit)(self.marks.pop())
        else:
            self.placer.place([self.pending(f"new-{index}") for index in range(3)])


def everything(snapshot: Snapshot) -> list[KubeObject]:
    found: list[KubeObject] = [snapshot.nodes.node(slot) for slot in snapshot.nodes.order().tolist()]
    return [*found, *snapshot.pods.values(), *snapshot.objects.all_objects()]


def judged(by: Placer, pod: Pod) -> dict[str, object]:
    """All that a placer says of a pod, by the names of nodes."""
    table = by.snapshot.nodes
    order = table.order()

    def names(mask: np.ndarray) -> list[str]:
        return [table.node(slot).name for slot in order[mask[order]].tolist()]

    fits = by.feasible(pod)
    for slots in (order, order[::-2]):
        assert by.feasible_among(pod, slots).tolist() == slots[fits[slots]].tolist()
    points = by.scorer.breakdown(pod, fits) if fits.any() else {}
    return {
        "verdicts": by.node_verdicts(pod),
        "why not": by.unschedulable_message(pod),
        "fits": names(fits),
        "suited": names(by.eligible(pod)),
        "neighbourly": names(by.passing_pod_filters(pod)),
        "best": [table.node(slot).name for slot in by.scorer.best(pod, fits).tolist()],
        "points": {name: column[order].tolist() for name, column in points.items()},
    }


def compare(change: Change) -> None:
    fresh = Placer(Snapshot(everything(change.snapshot)), change.profile)
    for name in ("new-a", "new-b"):
        pod = change.pending(name)
        assert judged(change.placer, pod) == judged(fresh, pod)


@pytest.mark.parametrize("profile", [DEFAULT, LEGACY], ids=["default", "legacy"])
@given(world=worlds(), seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 12))
def test_reused_placer_equals_a_new_one(profile, world, seed, steps):
    snapshot = Snapshot(world)
    change = Change(Maker(seed), snapshot, profile)
    for number in range(steps):
        change.step()
        if number % 2 == 1 and not change.marks:
            snapshot.forget_removed()
        if number % 3 == 0:
            compare(change)
    while change.marks:
        snapshot.undo(change.marks.pop())
    compare(change)


@pytest.mark.parametrize("seed", range(4))
def test_reused_placer_works_after_the_node_table_grows(seed):
    """Arrays over slots have room for 64 nodes to begin with, then for 128."""
    make = Maker(seed)
    snapshot = Snapshot([make.namespace(), *make.storage(), *make.owners()])
    change = Change(make, snapshot)
    for number, name in enumerate(MANY):
        with snapshot.fork():
            change.placer.place([change.pending("passing")])
        snapshot.put(make.node(name))
        snapshot.put(make.pod(f"p{number}", make.pick(*change.specs), (name,)))
        if number % 16 == 0 or number >= len(MANY) - 7:
            compare(change)
    for _ in range(12):
        change.step()
    compare(change)

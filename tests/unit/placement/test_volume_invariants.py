"""Volume verdicts on all nodes at once, against the scheduler's steps node by node, while the cluster changes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import examples
from tests.unit.placement.volume_worlds import (
    GIB,
    HOST,
    ZONE,
    affinity,
    bound,
    bound_claim,
    claim,
    csi_node,
    dynamic,
    node,
    reasons,
    using,
    volume,
    waiting,
)
from trimtab.cluster import object_store
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import (
    CSINode,
    KubeObject,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
    VolumeAttachment,
)
from trimtab.kube.rules.selectors import matches_node_selector
from trimtab.placement.filters.volumes import REASONS, NodeVolumeLimits, VolumeBinding
from trimtab.placement.volume_binding import AFFINITY, BINDING, MISSING, reserve_volumes

TEXTS = dict(REASONS)
NAMES = tuple("abcde")
VOLUMES = (*NAMES, "f", "g", "h", "i")
PLACES = (None, affinity(ZONE, "a"), affinity(ZONE, "a", "b"), affinity(HOST, "n1"), affinity(HOST, "n2"))


def find(snapshot: Snapshot, pod: Pod, there: Node) -> set[int]:
    """``FindPodVolumes`` on one node, step by step, without storage capacity."""
    claims = [snapshot.objects.of(PersistentVolumeClaim)[f"default/{each.claim}"] for each in pod.spec.volumes]
    volumes = snapshot.objects.of(PersistentVolume)
    found: set[int] = set()
    for each in claims:
        if each.bind_completed:
            persistent = volumes.get(each.volume)
            if persistent is None:
                found.add(MISSING)
                break
            if not reaches(persistent, there):
                found.add(AFFINITY)
                break
    delayed = [each for each in claims if not each.bind_completed]
    if any(each.selected_node not in (None, there.name) for each in delayed):
        return found | {BINDING}
    to_make = [each for each in delayed if each.selected_node is not None]
    taken: set[str] = set()
    for each in sorted((each for each in delayed if each.selected_node is None), key=lambda each: each.request or 0):
        chosen = match(list(volumes.values()), each, there, taken)
        if chosen is None:
            to_make.append(each)
        else:
            taken.add(chosen.name)
    for each in to_make:
        provisioner = snapshot.objects.of(StorageClass)[each.storage_class or ""].provisioner
        if provisioner == "kubernetes.io/no-provisioner":
            return found | {BINDING}
    return found


def match(
    volumes: list[PersistentVolume], each: PersistentVolumeClaim, there: Node, taken: set[str]
) -> PersistentVolume | None:
    """``FindMatchingVolume``; of equal volumes the first by name."""
    smallest = None
    for persistent in sorted(volumes, key=lambda persistent: persistent.name):
        ours = persistent.claim == each.key and persistent.claim_uid in ("", each.uid)
        if (
            persistent.storage_class != each.storage_class
            or persistent.name in taken
            or (persistent.claim and not ours)
        ):
            continue
        if persistent.capacity < (each.request or 0):
            continue
        if ours:
            return persistent if reaches(persistent, there) else None
        if persistent.phase != "Available" or not reaches(persistent, there):
            continue
        if not set(each.access_modes) <= set(persistent.access_modes):
            continue
        if smallest is None or persistent.capacity < smallest.capacity:
            smallest = persistent
    return smallest


def reaches(persistent: PersistentVolume, there: Node) -> bool:
    return matches_node_selector(persistent.node_affinity, there.labels, "")


def full(snapshot: Snapshot, pod: Pod, there: Node) -> bool:
    """``CSILimits.Filter`` on one node, counted from nothing."""
    csi = snapshot.objects.of(CSINode).get(there.name)
    limits = {driver.name: driver.limit for driver in csi.drivers if driver.limit is not None} if csi else {}
    wanted = attachable(snapshot, pod)
    held = {each for other in snapshot.pods_on(there.name) for each in attachable(snapshot, other)}
    left = {
        (each.attacher, persistent.handle)
        for each in snapshot.objects.of(VolumeAttachment).values()
        if each.node == there.name
        and (persistent := snapshot.objects.of(PersistentVolume).get(each.volume)) is not None
        and persistent.source == "csi"
    }
    for driver, limit in limits.items():
        new = sum(each[0] == driver for each in wanted - held)
        if new and new + sum(each[0] == driver for each in held | left) > limit:
            return True
    return False


def attachable(snapshot: Snapshot, pod: Pod) -> set[tuple[str, str]]:
    found = set()
    for each in pod.spec.volumes:
        held = snapshot.objects.of(PersistentVolumeClaim).get(f"default/{each.claim}")
        if held is None:
            continue
        persistent = snapshot.objects.of(PersistentVolume).get(held.volume)
        storage_class = snapshot.objects.of(StorageClass).get(held.storage_class or "")
        if persistent is not None:
            if persistent.source == "csi":
                found.add((persistent.driver, persistent.handle))
        elif storage_class is not None:
            found.add((storage_class.provisioner, f"claim of {held.key}"))
    return found


def anything(seed: random.Random) -> KubeObject:
    """One object of few that there can be, so that changes replace each other."""
    name = seed.choice(NAMES)
    made: list[Any] = [
        lambda: any_volume(seed, seed.choice(VOLUMES)),
        lambda: bound(name, node_affinity=seed.choice(PLACES), source=seed.choice(("csi", "csi", "nfs"))),
        lambda: bound_claim(name),
        lambda: claim(
            name,
            request=seed.choice((3, 5, 7)) * GIB,
            storage_class=seed.choice(("wait", "make")),
            access_modes=seed.choice((("ReadWriteOnce",), ("ReadWriteMany",))),
            selected_node=seed.choice((None, None, None, "n1")),
        ),
        lambda: using(*seed.sample(NAMES, 2), name=f"other-{name}", on=seed.choice(("n1", "n2", "n3"))),
        lambda: csi_node(seed.choice(("n1", "n2")), disk=seed.choice((None, 1, 2, 3))),
        lambda: VolumeAttachment(
            name=f"at-{name}", attacher="disk.example.com", node=seed.choice(("n1", "n2")), volume=seed.choice(NAMES)
        ),
        lambda: node(seed.choice(("n1", "n2", "n3", "n4")), zone=seed.choice(("a", "b"))),
    ]
    item: KubeObject = seed.choice(made)()
    return item


def any_volume(seed: random.Random, name: str) -> PersistentVolume:
    return volume(
        name,
        capacity=seed.choice((4, 6, 8)) * GIB,
        node_affinity=seed.choice(PLACES),
        storage_class=seed.choice(("wait", "make")),
        access_modes=seed.choice((("ReadWriteOnce",), ("ReadWriteOnce", "ReadWriteMany"))),
        phase=seed.choice(("Available", "Available", "Available", "Released")),
        claim=seed.choice(("", "", "", "default/c")),
        claim_uid=seed.choice(("", "uid-c", "uid-x")),
    )


def check(snapshot: Snapshot, pod: Pod) -> None:
    recorded = reasons(VolumeBinding, snapshot, pod)
    limited = reasons(NodeVolumeLimits, snapshot, pod)
    for name in sorted(snapshot.nodes.slot_of):
        there = snapshot.nodes.get(name)
        assert there is not None
        expected = tuple(TEXTS[bit] for bit in sorted(find(snapshot, pod, there)))
        assert recorded.get(name, ()) == expected, name
        assert (name in limited) is full(snapshot, pod, there), name


@pytest.mark.parametrize("log", [pytest.param(65_536, id="log-kept"), pytest.param(2, id="log-cut-all-the-time")])
@settings(max_examples=examples(100), deadline=None)
@given(number=st.integers(0, 2**32))
def test_zone_mask_equals_per_node_evaluation(number: int, log: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_store, "_LOG", log)
        _change_and_check(random.Random(number))


def _change_and_check(seed: random.Random) -> None:
    claims = [claim(name, storage_class=seed.choice(("wait", "make"))) for name in NAMES]
    volumes = [any_volume(seed, name) for name in VOLUMES]
    nodes = [node("n1", zone="a"), node("n2", zone="b")]
    snapshot = Snapshot([*nodes, waiting("wait"), dynamic("make"), *claims, *volumes])
    pod = using(*seed.sample(NAMES, seed.choice((1, 2, 3))))
    for _ in range(25):
        step = seed.random()
        mark = snapshot.mark()
        item = anything(seed)
        if step < 0.7:
            snapshot.put(item)
        elif not isinstance(item, PersistentVolumeClaim):
            snapshot.remove(item)
        if step > 0.5:
            on = seed.choice(sorted(snapshot.nodes.slot_of) or ["n1"])
            if on in snapshot.nodes.slot_of:
                reserve_volumes(snapshot, pod, on)
                snapshot.move(using(*seed.sample(NAMES, 1), name="reserved"), on)
        check(snapshot, pod)
        if step > 0.8:
            snapshot.undo(mark)
            check(snapshot, pod)
        else:
            snapshot.commit(mark)
        pod = using(*seed.sample(NAMES, seed.choice((1, 2, 3))))

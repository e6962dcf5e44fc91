"""Places on nodes that are there, or on their way: what fits there asks for no node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.plan import Kept
from trimtab.autoscaling.scale_up.told import kept
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer


class Found(Struct, frozen=True):
    """Pods that need no new node.

    Attributes:
        reserved: as they are in the picture now, with their nodes, by ``namespace/name``.
        kept: the same as a plan tells it, in the same order.
        left: the pods by class for which there is no place.
    """

    reserved: tuple[Pod, ...]
    kept: tuple[Kept, ...]
    left: list[list[Pod]]


def places_there(placer: Placer, groups: Sequence[list[Pod]], coming: Mapping[str, str]) -> Found:
    """Find and reserve places, the most important pods first.

    A pod that the scheduler has nominated for a node has its place there: others are being evicted for it. Of a class
    one pod that finds none stands for all that come after it. Classes that want to be near others are asked again as
    long as others find a place.

    Args:
        placer: on the picture with upcoming nodes.
        groups: pods by class (:func:`~trimtab.autoscaling.scale_up.classes.alike`).
        coming: the groups' ids by the names of nodes that are on their way.
    """
    made: list[tuple[Pod, Kept]] = []
    rest: list[list[Pod]] = []
    for group in groups:
        rest.append([])
        for pod in group:
            if pod.nominated_node and pod.nominated_node in placer.snapshot.nodes.slot_of:
                placer.snapshot.move(pod, pod.nominated_node)
                message = f"the scheduler makes room for the pod on {pod.nominated_node}"
                told = kept(pod, reasons.NOMINATED, message, node=pod.nominated_node)
                made.append((replace(pod, node=pod.nominated_node), told))
            else:
                rest[-1].append(pod)
    while True:
        before = len(made)
        _round(placer, rest, coming, made)
        near = any(group and group[0].spec.affinity.pod_required for group in rest)
        if len(made) == before or not near:
            break
    made.sort(key=lambda each: each[0].key)
    return Found(tuple(pod for pod, _ in made), tuple(told for _, told in made), [group for group in rest if group])


def _round(placer: Placer, groups: list[list[Pod]], coming: Mapping[str, str], made: list[tuple[Pod, Kept]]) -> None:
    """Ask once for every class, pods in order of their importance over all classes."""
    if not placer.snapshot.nodes.slot_of:
        return
    order = sorted(
        ((-pod.priority, pod.key, number) for number, group in enumerate(groups) for pod in group[:1]),
    )
    for _, _, number in order:
        group = groups[number]
        placed = 0
        for pod in group:
            slot = placer.choose(pod, placer.feasible(pod))
            if slot is None:
                break
            there = placer.reserve(pod, slot)
            made.append((there, _told(there, coming)))
            placed += 1
        del group[:placed]


def _told(pod: Pod, coming: Mapping[str, str]) -> Kept:
    group = coming.get(pod.node)
    if group is None:
        return kept(pod, reasons.FITS_ON_NODE, f"{pod.node} takes the pod", node=pod.node)
    return kept(pod, reasons.FITS_ON_UPCOMING_NODE, f"a node that {group} is getting takes the pod")

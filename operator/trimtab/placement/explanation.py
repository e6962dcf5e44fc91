"""The document of ``trimtab explain pod -o json``: feasible nodes, scores, reasons and remedies."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

import numpy as np

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement.feasibility import Diagnosis
from trimtab.placement.placer import Placer
from trimtab.placement.registry import DEFAULT, MOST_ALLOCATED, Profile
from trimtab.placement.remedies.interface import Protection, unprotected
from trimtab.placement.remedies.search import RemedyPlan, find_remedy_plans

PROFILES: Final[dict[str, Profile]] = {"LeastAllocated": DEFAULT, "MostAllocated": MOST_ALLOCATED}
"""The default profile with each ``scoringStrategy`` of NodeResourcesFit."""

ALTERNATIVES: Final = 2
"""Number of alternatives to the cheapest change. Each alternative avoids the remedies that the previous ones used."""

Document = dict[str, Any]


def explanation(placer: Placer, pod: Pod, protection: Protection = unprotected) -> Document:
    """Explain where a pod fits and why. A bound pod is evaluated as if it were pending.

    The document has

    - ``pod``, and ``node``, its current node (nil for a pending pod);
    - ``fits``, the feasible nodes, and ``likely``, the feasible nodes with the highest score, from which the scheduler
      selects one at random;
    - ``message``, kube-scheduler's message;
    - ``remedy``, the cheapest change that would make the pod fit, with more expensive ``alternatives``; nil if the pod
      fits or no known change helps (:meth:`~trimtab.placement.remedies.search.RemedyPlan.document`);
    - ``nodes``, all nodes by name, each with ``node``, ``fits``, ``reasons`` and, if feasible, ``score``: its ``total``
      and the weighted score of each plugin.

    Args:
        placer: a placer on the snapshot. It may be reused for several explanations, because the snapshot is unchanged
            afterwards.
        pod: a pod of the snapshot.
        protection: returns why a pod cannot be evicted now. Evicting such pods is the last choice.
    """
    with placer.snapshot.fork():
        pending = placer.unbind(pod)
        diagnosis = placer.diagnose(pending)
        fits = _fits(placer.snapshot, diagnosis)
        order = placer.snapshot.nodes.order()
        at = placer.snapshot.nodes.at
        names = [node.name for slot in order.tolist() if (node := at[slot]) is not None]
        name_of = dict(zip(order.tolist(), names, strict=True))
        nowhere = diagnosis.nodes and not fits.any()
        plans = list(islice(find_remedy_plans(placer, pending, protection), 1 + ALTERNATIVES)) if nowhere else []
        return {
            "pod": pod.key,
            "node": pod.node or None,
            "fits": [name_of[slot] for slot in order[fits[order]].tolist()],
            "likely": [name_of[slot] for slot in placer.scorer.best(pending, fits).tolist()],
            "message": diagnosis.message(),
            "remedy": _remedy(plans),
            "nodes": _nodes(placer, pending, diagnosis, fits, order, names),
        }


def _remedy(plans: list[RemedyPlan]) -> Document | None:
    if not plans:
        return None
    return {**plans[0].document(), "alternatives": [plan.document() for plan in plans[1:]]}


def _fits(snapshot: Snapshot, diagnosis: Diagnosis) -> BoolArray:
    """Return the slots of the feasible nodes, which are those without a failure: bool, shape (capacity,)."""
    fits: BoolArray = np.zeros_like(snapshot.nodes.used) if diagnosis.refusal else snapshot.nodes.used.copy()
    for _, slots in diagnosis.failures:
        fits[slots] = False
    return fits


def _nodes(
    placer: Placer, pod: Pod, diagnosis: Diagnosis, fits: BoolArray, order: IntArray, names: list[str]
) -> list[Document]:
    # The index of each slot's group of reasons; nodes with equal reasons share one list.
    refusal = [[diagnosis.refusal]] if diagnosis.refusal else []
    reasons: list[list[Any]] = [[], *refusal, *(list(texts) for texts, _ in diagnosis.failures)]
    group = np.zeros(len(fits), dtype=np.int64)
    if refusal:
        group[:] = 1
    for number, (_, slots) in enumerate(diagnosis.failures, start=1):
        group[slots] = number
    scores = _scores(placer, pod, fits, order)
    found: list[Document] = []
    for name, number, score in zip(names, group[order].tolist(), scores, strict=True):
        if number:
            found.append({"node": name, "fits": False, "reasons": reasons[number]})
        else:
            found.append({"node": name, "fits": True, "reasons": [], "score": score})
    return found


def _scores(placer: Placer, pod: Pod, fits: BoolArray, order: IntArray) -> list[dict[str, int] | None]:
    """Return the ``total`` and the weighted score of each plugin for every node, ordered by node name.

    The entry is ``None`` for nodes that are not feasible.
    """
    if not fits.any():
        return [None] * len(order)
    points = placer.scorer.breakdown(pod, fits)
    keys = ("total", *points)
    columns = [placer.scorer.totals(pod, fits), *points.values()]
    rows = zip(*(column[order].tolist() for column in columns), strict=True)
    return [dict(zip(keys, row, strict=True)) for row in rows]

"""Where a pod fits, where it would go, where it does not fit and why, and what would have to change.

The document that ``trimtab explain pod -o json`` prints. At 5,000 nodes all is computed on columns; what is made node
by node is the document itself.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

import numpy as np

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement.judgement import Judgement
from trimtab.placement.placer import Placer
from trimtab.placement.registry import DEFAULT, MOST_ALLOCATED, Profile
from trimtab.placement.remedies.search import Cure
from trimtab.placement.remedies.search import cures as cures_of

PROFILES: Final[dict[str, Profile]] = {"LeastAllocated": DEFAULT, "MostAllocated": MOST_ALLOCATED}
"""The default profile by the ``scoringStrategy`` of its NodeResourcesFit."""

ALTERNATIVES: Final = 2
"""So many other changes are told beside the cheapest, each without the kinds of remedies of those before."""

Document = dict[str, Any]


def explanation(placer: Placer, pod: Pod) -> Document:
    """Explain a pod of the placer's snapshot; one that is on a node is judged as if it were not there yet.

    The document has

    - ``pod``, and ``node``, where it is now, nil for a pending one;
    - ``fits``, the nodes that take it, and ``likely``, those of them with the best score: the scheduler draws one;
    - ``message``, kube-scheduler's sentence;
    - ``remedy``, the cheapest change that would make it fit, nil where it fits and where nothing that is known helps
      (:meth:`~trimtab.placement.remedies.search.Cure.document`), with ``alternatives`` that cost more;
    - ``nodes``, all by name, each with ``node``, ``fits``, ``reasons`` and, where it fits, ``score``: its ``total`` and
      each score's weighted points.

    Args:
        placer: keep it for several explanations on one snapshot; the snapshot is left as it was.
        pod: of the snapshot.
    """
    with placer.snapshot.fork():
        pending = placer.lift(pod)
        judgement = placer.judge(pending)
        fits = _fits(placer.snapshot, judgement)
        order = placer.snapshot.nodes.order()
        at = placer.snapshot.nodes.at
        names = [node.name for slot in order.tolist() if (node := at[slot]) is not None]
        name_of = dict(zip(order.tolist(), names, strict=True))
        nowhere = judgement.nodes and not fits.any()
        cures = list(islice(cures_of(placer, pending), 1 + ALTERNATIVES)) if nowhere else []
        return {
            "pod": pod.key,
            "node": pod.node or None,
            "fits": [name_of[slot] for slot in order[fits[order]].tolist()],
            "likely": [name_of[slot] for slot in placer.scorer.best(pending, fits).tolist()],
            "message": judgement.sentence(),
            "remedy": _remedy(cures),
            "nodes": _nodes(placer, pending, judgement, fits, order, names),
        }


def _remedy(cures: list[Cure]) -> Document | None:
    if not cures:
        return None
    return {**cures[0].document(), "alternatives": [cure.document() for cure in cures[1:]]}


def _fits(snapshot: Snapshot, judgement: Judgement) -> BoolArray:
    """The slots that take the pod, from the reasons of those that do not."""
    fits: BoolArray = np.zeros_like(snapshot.nodes.used) if judgement.refusal else snapshot.nodes.used.copy()
    for _, slots in judgement.failures:
        fits[slots] = False
    return fits


def _nodes(
    placer: Placer, pod: Pod, judgement: Judgement, fits: BoolArray, order: IntArray, names: list[str]
) -> list[Document]:
    # Which group of reasons each slot has; nodes with the same reasons share one list.
    refusal = [[judgement.refusal]] if judgement.refusal else []
    reasons: list[list[Any]] = [[], *refusal, *(list(texts) for texts, _ in judgement.failures)]
    group = np.zeros(len(fits), dtype=np.int64)
    if refusal:
        group[:] = 1
    for number, (_, slots) in enumerate(judgement.failures, start=1):
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
    """Per node in the order of names: ``total``, then each score's weighted points; nothing where it does not fit."""
    if not fits.any():
        return [None] * len(order)
    points = placer.scorer.breakdown(pod, fits)
    keys = ("total", *points)
    columns = [placer.scorer.totals(pod, fits), *points.values()]
    rows = zip(*(column[order].tolist() for column in columns), strict=True)
    return [dict(zip(keys, row, strict=True)) for row in rows]

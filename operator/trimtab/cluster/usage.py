"""What nodes and pods really use, as a frozen value beside the picture: measured elsewhere, judged by planners."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.kube.rules.quantity import QuantityError, resource_amount

Use = Mapping[str, int]
"""Millicores of ``cpu`` and bytes of ``memory``, or parts of :data:`WHOLE` of what a query calls full."""

WHOLE: Final = 1_000_000
"""A share of 1, as an integer: sums of shares must not depend on their order."""

MEASURED: Final = ("cpu", "memory")
"""What metrics.k8s.io measures; of everything else only the requests are known."""

LARGEST: Final = 2**50
"""Millicores or bytes above which a measurement is none: no machine has a petabyte, and sums must stay within int64."""

HALF_LIFE: Final = 120.0
"""Seconds after which an earlier measurement counts half of what it did (:func:`smooth`)."""


class Usage(Struct, frozen=True):
    """Measured use.

    Attributes:
        taken: when it was read, seconds since the epoch.
        nodes: by the node's name; a node that is missing was not measured.
        pods: the same by ``namespace/name``; a pod that is missing is taken to use what it requests.
        problem: what kept all or some of it from being read; empty where nothing did.
        remarks: why single nodes are missing, where somebody said something of them, by name.
    """

    taken: float = 0.0
    nodes: Mapping[str, Use] = {}
    pods: Mapping[str, Use] = {}
    problem: str = ""
    remarks: Mapping[str, str] = {}


def usage_of(manifests: Iterable[Mapping[str, Any]], *, taken: float, problem: str = "") -> Usage:
    """What NodeMetrics and PodMetrics of metrics.k8s.io say.

    An object that cannot be read counts as missing, as does one that lacks cpu or memory: half of the truth would make
    a busy node look idle. So does a pod of which not every container says both, and whatever is above :data:`LARGEST`.

    Args:
        manifests: the objects, each with its ``kind``.
        taken: seconds since the epoch.
        problem: what could not be read.
    """
    nodes: dict[str, Use] = {}
    pods: dict[str, Use] = {}
    for manifest in manifests:
        try:
            if manifest.get("kind") == "NodeMetrics":
                nodes[str(manifest["metadata"]["name"])] = _amounts(manifest["usage"])
            elif manifest.get("kind") == "PodMetrics":
                metadata = manifest["metadata"]
                pods[f"{metadata['namespace']}/{metadata['name']}"] = _sum(manifest["containers"])
        except (KeyError, TypeError, AttributeError, QuantityError):
            continue
    return Usage(taken=taken, nodes=nodes, pods=pods, problem=problem)


def smooth(before: Usage | None, now: Usage) -> Usage:
    """The measurement, with what was measured before still counted in.

    An exponentially weighted mean by time: what was read :data:`HALF_LIFE` seconds ago weighs as much as what is read
    now, so that a short peak moves no pods and a lasting change does after some minutes, however often one looks.
    What is measured for the first time counts as it is, and what is no longer measured is forgotten.
    """
    if before is None:
        return now
    old = 0.5 ** (max(0.0, now.taken - before.taken) / HALF_LIFE) / 2
    return Usage(
        taken=now.taken,
        nodes=_blend(before.nodes, now.nodes, old),
        pods=_blend(before.pods, now.pods, old),
        problem=now.problem,
        remarks=now.remarks,
    )


def matched(usage: Usage, names: Container[str]) -> Usage:
    """The measurement, with the problem told where nodes were measured and none of them is one of those in the picture.

    A query that names nodes by their addresses gives an answer like any other; it is only of no use.
    """
    if usage.problem or not usage.nodes or any(name in names for name in usage.nodes):
        return usage
    told = f"of {len(usage.nodes)} names that were measured none is a node's, {min(usage.nodes)} for one"
    return replace(usage, problem=told)


def _blend(before: Mapping[str, Use], now: Mapping[str, Use], old: float) -> Mapping[str, Use]:
    return {
        name: {key: math.ceil(old * before[name][key] + (1 - old) * value) for key, value in amounts.items()}
        if name in before
        else amounts
        for name, amounts in now.items()
    }


def _amounts(usage: Mapping[str, Any]) -> Use:
    found = {name: resource_amount(name, usage[name]) for name in MEASURED}
    if min(found.values()) < 0:
        raise KeyError(usage)  # nobody uses less than nothing: not measured
    return _believed(found)


def _sum(containers: Iterable[Mapping[str, Any]]) -> Use:
    each = [_amounts(container["usage"]) for container in containers]
    if not each:
        raise KeyError("containers")
    return _believed({name: sum(amounts[name] for amounts in each) for name in MEASURED})


def _believed(found: Use) -> Use:
    if max(found.values()) > LARGEST:
        raise KeyError(LARGEST)
    return found

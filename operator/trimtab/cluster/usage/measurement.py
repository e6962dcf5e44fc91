"""The measured usage of nodes and pods as an immutable value, and functions that read it from metrics.k8s.io."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.kube.api import Api, ApiError, NotFound, Unreachable
from trimtab.kube.resources import NODE_METRICS, POD_METRICS, Resource
from trimtab.kube.rules.quantity import QuantityError, resource_amount

UsageAmounts = Mapping[str, int]
"""Usage by resource name: millicores of ``cpu``, bytes of ``memory``, or a share from Prometheus times
:data:`FULL_SHARE`.
"""

FULL_SHARE: Final = 1_000_000
"""The integer that represents a share of 100 %.

Shares are integers, because sums of floats depend on the order of addition.
"""

MEASURED: Final = ("cpu", "memory")
"""The resources that metrics.k8s.io reports. The usage of other resources is unknown."""

LARGEST: Final = 2**50
"""Millicores or bytes above which a measurement is discarded as implausible. No machine has a petabyte of memory, and
sums must fit into int64."""

HALF_LIFE: Final = 120.0
"""Seconds in which the weight of a previous measurement is halved (:func:`smooth`)."""


class Usage(Struct, frozen=True):
    """The measured usage of nodes and pods.

    Attributes:
        taken: the time of the measurement, in seconds since the epoch.
        nodes: the usage by node name. Nodes without a measurement are omitted.
        pods: the usage by ``namespace/name``. An omitted pod is assumed to use what it requests.
        problem: why some or all of the usage could not be read, or ``""``.
        remarks: why certain nodes have no measurement, by node name, if the reason is known.
    """

    taken: float = 0.0
    nodes: Mapping[str, UsageAmounts] = {}
    pods: Mapping[str, UsageAmounts] = {}
    problem: str = ""
    remarks: Mapping[str, str] = {}


def usage_of(manifests: Iterable[Mapping[str, Any]], *, taken: float, problem: str = "") -> Usage:
    """Return the usage that NodeMetrics and PodMetrics objects (metrics.k8s.io) report.

    Invalid objects and objects without cpu or memory are skipped, because a partial measurement would make a busy node
    look idle. A pod is also skipped if cpu or memory is missing for any of its containers. Objects with values above
    :data:`LARGEST` are skipped as well.

    Args:
        manifests: the objects, each with its ``kind``.
        taken: the time at which the objects were read, in seconds since the epoch.
        problem: the ``problem`` of the result.
    """
    nodes: dict[str, UsageAmounts] = {}
    pods: dict[str, UsageAmounts] = {}
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
    """Return the current measurement smoothed with the previous one.

    The result is an exponentially weighted mean over time. The weight of the previous value is one half, and is halved
    again for every :data:`HALF_LIFE` seconds between the measurements. So a short peak causes no evictions, and a
    lasting change takes effect after some minutes, regardless of the interval between measurements. A value that was
    not measured before is used unchanged, and values that are no longer measured are dropped.
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


def check_node_names(usage: Usage, names: Container[str]) -> Usage:
    """Return the measurement, with ``problem`` set if none of the measured node names is a node of the cluster.

    This happens, for example, if a query identifies nodes by their address.
    """
    if usage.problem or not usage.nodes or any(name in names for name in usage.nodes):
        return usage
    problem = f"none of the {len(usage.nodes)} measured names is a node of the cluster, e.g. {min(usage.nodes)}"
    return replace(usage, problem=problem)


def _blend(
    before: Mapping[str, UsageAmounts], now: Mapping[str, UsageAmounts], old: float
) -> Mapping[str, UsageAmounts]:
    return {
        name: {key: math.ceil(old * before[name][key] + (1 - old) * value) for key, value in amounts.items()}
        if name in before
        else amounts
        for name, amounts in now.items()
    }


def _amounts(usage: Mapping[str, Any]) -> UsageAmounts:
    found = {name: resource_amount(name, usage[name]) for name in MEASURED}
    if min(found.values()) < 0:
        raise KeyError(usage)  # a negative usage is invalid
    return _plausible(found)


def _sum(containers: Iterable[Mapping[str, Any]]) -> UsageAmounts:
    each = [_amounts(container["usage"]) for container in containers]
    if not each:
        raise KeyError("containers")
    return _plausible({name: sum(amounts[name] for amounts in each) for name in MEASURED})


def _plausible(found: UsageAmounts) -> UsageAmounts:
    if max(found.values()) > LARGEST:
        raise KeyError(LARGEST)
    return found


TIMEOUT: Final = 60.0
"""Timeout of one list request in seconds. metrics-server supports neither pages nor watches, so all pods are in one
response."""


async def read_usage(api: Api, *, now: float) -> Usage:
    """Read the usage of nodes and pods from metrics.k8s.io.

    Failures are reported in ``problem`` instead of raised, because other strategies of the cycle may not need metrics.
    If the node metrics cannot be read, the usage is empty. If only the pod metrics cannot be read, pods are assumed to
    use what they request.

    Args:
        api: the API server.
        now: the current time in seconds since the epoch.
    """
    found: list[Mapping[str, Any]] = []
    for resource in (NODE_METRICS, POD_METRICS):
        try:
            answer = await api.request("GET", resource.path(), timeout=TIMEOUT)
        except NotFound:
            return usage_of(found, taken=now, problem=f"{resource.name} is not served: is metrics-server installed?")
        except (ApiError, Unreachable) as error:
            return usage_of(found, taken=now, problem=f"{resource.name} cannot be listed: {error}")
        if not isinstance(answer, Mapping) or not isinstance(answer.get("items"), list):
            return usage_of(found, taken=now, problem=f"{resource.name} cannot be listed: the response is not a list")
        found += _items(answer["items"], resource)
    measured = usage_of(found, taken=now)
    return measured if measured.nodes else usage_of((), taken=now, problem=f"{NODE_METRICS.name} has no items")


def _items(items: list[Any], resource: Resource) -> Iterator[Mapping[str, Any]]:
    """Yield the objects with their ``kind``, which the items of a list may lack."""
    return ({**item, "kind": resource.kind} for item in items if isinstance(item, Mapping))

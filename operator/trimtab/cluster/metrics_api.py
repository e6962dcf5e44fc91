"""Reading metrics.k8s.io: one LIST of nodes and one of pods, whatever the size of the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from trimtab.cluster.usage import Usage, usage_of
from trimtab.kube.api import Api, ApiError, NotFound, Unreachable
from trimtab.kube.resources import NODE_METRICS, POD_METRICS, Resource

TIMEOUT: Final = 60.0
"""Seconds for one list. metrics-server knows neither pages nor watches: a large cluster's pods come at once."""


async def read_usage(api: Api, *, now: float) -> Usage:
    """What nodes and pods use, as metrics.k8s.io says it.

    Real use is no reason to end a cycle whose other strategies need none: what cannot be read is told as the value's
    ``problem``. Without its nodes nothing is known; without its pods, pods are taken to use what they request.

    Args:
        api: the API server.
        now: seconds since the epoch.
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
            return usage_of(found, taken=now, problem=f"{resource.name} cannot be listed: the answer is no list")
        found += _items(answer["items"], resource)
    measured = usage_of(found, taken=now)
    return measured if measured.nodes else usage_of((), taken=now, problem=f"{NODE_METRICS.name} has no measurement")


def _items(items: list[Any], resource: Resource) -> Iterator[Mapping[str, Any]]:
    """The objects, which need not say their kind in a list."""
    return ({**item, "kind": resource.kind} for item in items if isinstance(item, Mapping))

"""What a pod asks of a node, its quality of service, its host ports: what kube-scheduler derives from a pod's spec.

The rules are part of the Kubernetes API (k8s.io/component-helpers ``resource.PodRequests``, k8s.io/kubernetes
``qos.ComputePodQOS``, ``defaults.SetDefaults_Pod``; v1.36 each), with the feature gates at their defaults. Defaults
that the API server sets on admission are set here too: a pod read from a file may never have met one, and on an
admitted pod they change nothing.

Amounts are summed after rounding up to millicores and bytes, not before: a pod of many containers that ask for
fractions of a millicore or of a byte may count a unit more than kube-scheduler counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.kube.frozen import NO_RESOURCES, FrozenMap, ResourceList
from trimtab.kube.objects import Container
from trimtab.kube.rules.quantity import MAX_AMOUNT

_QOS_RESOURCES: Final = ("cpu", "memory")
_SIDECAR: Final = "Always"

NONZERO_DEFAULTS: Final[Mapping[str, int]] = {"cpu": 100, "memory": 200 << 20}
"""Millicores and bytes that scores count for a container that states none (kube-scheduler ``schedutil``)."""


class PodLevelResources(Struct, frozen=True, gc=False):
    """``spec.resources`` of a pod; stating it at all changes how the quality of service is computed."""

    requests: ResourceList = NO_RESOURCES
    limits: ResourceList = NO_RESOURCES


def with_default_requests(requests: ResourceList, limits: ResourceList) -> ResourceList:
    """A container's requests, the limit standing in where a resource is limited but not requested."""
    missing = limits.keys() - requests.keys()
    return FrozenMap({**requests, **{name: limits[name] for name in missing}}) if missing else requests


def with_default_pod_level(
    stated: PodLevelResources, containers: Sequence[Container], init_containers: Sequence[Container]
) -> PodLevelResources:
    """Pod-level resources as the API server completes them.

    Huge pages limits come from the containers' limits; then, where any limit is stated, requests of CPU and memory
    come from the containers' requests, and what is still missing from the pod-level limits.
    """
    if not stated.limits and not stated.requests:
        return stated
    limits = dict(stated.limits)
    for name, amount in _aggregate(containers, init_containers, limits=True).items():
        if name.startswith("hugepages-") and name not in stated.requests:
            limits.setdefault(name, amount)
    requests = dict(stated.requests)
    if limits:
        for name, amount in _aggregate(containers, init_containers, limits=False).items():
            if name in _QOS_RESOURCES:
                requests.setdefault(name, amount)
        for name, amount in limits.items():
            if _pod_level(name):
                requests.setdefault(name, amount)
    return PodLevelResources(requests=FrozenMap(requests), limits=FrozenMap(limits))


def effective_requests(
    containers: Sequence[Container],
    init_containers: Sequence[Container] = (),
    *,
    overhead: Mapping[str, int] = NO_RESOURCES,
    pod_level: Mapping[str, int] = NO_RESOURCES,
) -> ResourceList:
    """What kube-scheduler counts for the pod on a node, without the pod itself (``pods``).

    Args:
        containers: with their requests, defaults set.
        init_containers: in their order; those with ``restart_policy`` Always are sidecars and run on.
        overhead: of the runtime class; added last, even onto pod-level requests.
        pod_level: ``spec.resources.requests``; replaces the sum of containers for CPU, memory and huge pages.
    """
    total = _aggregate(containers, init_containers, limits=False)
    for name, amount in pod_level.items():
        if _pod_level(name):
            total[name] = amount
    _add(total, overhead)
    # The API server takes each of the summands, whatever they come to together; amounts end where int64 does.
    return FrozenMap({name: min(amount, MAX_AMOUNT) for name, amount in total.items()}) if total else NO_RESOURCES


def nonzero_requests(
    containers: Sequence[Container],
    init_containers: Sequence[Container] = (),
    *,
    overhead: Mapping[str, int] = NO_RESOURCES,
    pod_level: Mapping[str, int] = NO_RESOURCES,
) -> ResourceList:
    """CPU and memory that scores count for a pod on a node (kube-scheduler ``PodInfo.CalculateResource``).

    Each container that leaves one of them out counts :data:`NONZERO_DEFAULTS` for it; an explicit 0 stays 0. With
    pod-level requests only what neither they nor any container nor the overhead states is filled in.

    Args:
        containers: as for :func:`effective_requests`, as are the other arguments.
        init_containers: in their order.
        overhead: of the runtime class.
        pod_level: ``spec.resources.requests``.

    Returns:
        Amounts with both keys.
    """
    if not any(map(_pod_level, pod_level)):
        return scored_requests(containers, init_containers, overhead=overhead)
    stated = effective_requests(containers, init_containers, overhead=overhead, pod_level=pod_level)
    missing = {name: amount for name, amount in NONZERO_DEFAULTS.items() if name not in stated}
    return _filled(containers, init_containers, missing, overhead=overhead, pod_level=pod_level)


def scored_requests(
    containers: Sequence[Container],
    init_containers: Sequence[Container] = (),
    *,
    overhead: Mapping[str, int] = NO_RESOURCES,
) -> ResourceList:
    """CPU and memory that scores count for a pod that is to be placed (``calculatePodResourceRequest``).

    As :func:`nonzero_requests`, but as if the pod had no pod-level requests: kube-scheduler v1.36 does not tell
    NodeResourcesFit's scorer that there are any (``NewFit`` leaves its ``enablePodLevelResources`` unset).
    """
    return _filled(containers, init_containers, NONZERO_DEFAULTS, overhead=overhead, pod_level=NO_RESOURCES)


def _filled(
    containers: Sequence[Container],
    init_containers: Sequence[Container],
    missing: Mapping[str, int],
    *,
    overhead: Mapping[str, int],
    pod_level: Mapping[str, int],
) -> ResourceList:
    """Effective CPU and memory with every container's missing requests filled in."""
    found = effective_requests(
        [_with_missing(container, missing) for container in containers],
        [_with_missing(container, missing) for container in init_containers],
        overhead=overhead,
        pod_level=pod_level,
    )
    return FrozenMap({name: found.get(name, 0) for name in NONZERO_DEFAULTS})


def _with_missing(container: Container, missing: Mapping[str, int]) -> Container:
    if missing.keys() <= container.requests.keys():
        return container
    return replace(container, requests=FrozenMap({**missing, **container.requests}))


def qos_class(
    containers: Iterable[Container],
    init_containers: Iterable[Container] = (),
    *,
    pod_level: PodLevelResources | None = None,
) -> str:
    """``Guaranteed``, ``Burstable`` or ``BestEffort``; amounts of zero count as not stated."""
    stated: list[Container | PodLevelResources] = [*containers, *init_containers] if pod_level is None else [pod_level]
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    guaranteed = True
    for resources in stated:
        _add(requests, _positive(resources.requests))
        limited = _positive(resources.limits)
        _add(limits, limited)
        if len(limited) < len(_QOS_RESOURCES) and (pod_level is None or resources.limits):
            guaranteed = False
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed and requests == limits else "Burstable"


def _aggregate(
    containers: Sequence[Container], init_containers: Sequence[Container], *, limits: bool
) -> dict[str, int]:
    """The larger of what runs together and of what any step of the initialisation needs, sidecars started before."""
    total: dict[str, int] = {}
    for container in containers:
        _add(total, container.limits if limits else container.requests)
    sidecars: dict[str, int] = {}
    steps: dict[str, int] = {}
    for container in init_containers:
        amounts = container.limits if limits else container.requests
        if container.restart_policy == _SIDECAR:
            _add(total, amounts)
            _add(sidecars, amounts)
            _raise(steps, sidecars)
        else:
            step = dict(amounts)
            _add(step, sidecars)
            _raise(steps, step)
    _raise(total, steps)
    return total


def _pod_level(name: str) -> bool:
    return name in _QOS_RESOURCES or name.startswith("hugepages-")


def _positive(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amounts[name] for name in _QOS_RESOURCES if amounts.get(name, 0) > 0}


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        if name not in total or amount > total[name]:
            total[name] = amount

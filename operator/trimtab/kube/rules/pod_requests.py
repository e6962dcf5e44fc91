"""Computes the effective requests and the QoS class of a pod from its spec, as Kubernetes does.

The rules are those of Kubernetes (k8s.io/component-helpers ``resource.PodRequests``, k8s.io/kubernetes
``qos.ComputePodQOS`` and ``defaults.SetDefaults_Pod``, all v1.36) with default feature gates. The API server's defaults
are applied as well, because a pod from a file may lack them. They do not change an admitted pod.

Amounts are rounded up to millicores and bytes before they are summed. So the result may exceed that of kube-scheduler
by a unit for each container that requests a fraction of a millicore or byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.kube.frozen import NO_RESOURCES, FrozenMap, ResourceList
from trimtab.kube.objects import Container, PodSpec
from trimtab.kube.rules.quantity import MAX_AMOUNT

_QOS_RESOURCES: Final = ("cpu", "memory")
_SIDECAR: Final = "Always"

NONZERO_DEFAULTS: Final[Mapping[str, int]] = {"cpu": 100, "memory": 200 << 20}
"""Millicores and bytes that score plugins assume for a container without requests (kube-scheduler ``schedutil``)."""


class PodLevelResources(Struct, frozen=True, gc=False):
    """``spec.resources`` of a pod. If it is set, even if empty, the QoS class is computed from it."""

    requests: ResourceList = NO_RESOURCES
    limits: ResourceList = NO_RESOURCES


def with_default_requests(requests: ResourceList, limits: ResourceList) -> ResourceList:
    """Return a container's requests, with the limit as default for resources that have a limit but no request."""
    missing = limits.keys() - requests.keys()
    return FrozenMap({**requests, **{name: limits[name] for name in missing}}) if missing else requests


def with_default_pod_level(
    stated: PodLevelResources, containers: Sequence[Container], init_containers: Sequence[Container]
) -> PodLevelResources:
    """Apply the API server's defaults to pod-level resources.

    Limits of huge pages default to the containers' limits. If there is any limit, requests of CPU and memory default to
    the containers' requests, and then to the pod-level limits.
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
    """Return the effective requests of a pod on a node, as in kube-scheduler, excluding the resource ``pods``.

    Args:
        containers: the containers, with default requests applied.
        init_containers: the init containers in order. Those with ``restart_policy`` Always are sidecars.
        overhead: the overhead of the runtime class, which is added to the result (also to pod-level requests).
        pod_level: ``spec.resources.requests``, which replaces the sum of containers for CPU, memory and huge pages.

    Returns:
        Amounts by resource name: millicores, bytes or units.
    """
    total = _aggregate(containers, init_containers, limits=False)
    for name, amount in pod_level.items():
        if _pod_level(name):
            total[name] = amount
    _add(total, overhead)
    # The API server accepts each amount, even if their sum exceeds int64.
    return FrozenMap({name: min(amount, MAX_AMOUNT) for name, amount in total.items()}) if total else NO_RESOURCES


def nonzero_requests(
    containers: Sequence[Container],
    init_containers: Sequence[Container] = (),
    *,
    overhead: Mapping[str, int] = NO_RESOURCES,
    pod_level: Mapping[str, int] = NO_RESOURCES,
) -> ResourceList:
    """Return the CPU and memory requests that score plugins use for a pod on a node (``PodInfo.CalculateResource``).

    For a container without a request, :data:`NONZERO_DEFAULTS` are assumed; an explicit 0 remains 0. If the pod has
    pod-level requests, the defaults apply only to resources that are not requested anywhere: at the pod level, by a
    container, or as overhead.

    Args:
        containers: the containers, with default requests applied.
        init_containers: the init containers in order.
        overhead: the overhead of the runtime class.
        pod_level: ``spec.resources.requests``.

    Returns:
        Millicores of ``cpu`` and bytes of ``memory``; both keys are always present.
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
    """Return the CPU and memory requests with which a pod being placed is scored (``calculatePodResourceRequest``).

    The result is that of :func:`nonzero_requests` without pod-level requests, which the scorer of NodeResourcesFit
    ignores in kube-scheduler v1.36 (``NewFit`` leaves its ``enablePodLevelResources`` unset).
    """
    return _filled(containers, init_containers, NONZERO_DEFAULTS, overhead=overhead, pod_level=NO_RESOURCES)


def with_totals(spec: PodSpec) -> PodSpec:
    """Return the spec with the totals that follow from its containers, its overhead and its pod-level requests."""
    containers, init_containers, overhead = spec.containers, spec.init_containers, spec.overhead
    pod_level = spec.pod_resources
    return replace(
        spec,
        requests=effective_requests(containers, init_containers, overhead=overhead, pod_level=pod_level),
        nonzero_requests=nonzero_requests(containers, init_containers, overhead=overhead, pod_level=pod_level),
        scored_requests=scored_requests(containers, init_containers, overhead=overhead),
    )


def _filled(
    containers: Sequence[Container],
    init_containers: Sequence[Container],
    missing: Mapping[str, int],
    *,
    overhead: Mapping[str, int],
    pod_level: Mapping[str, int],
) -> ResourceList:
    """Return the effective CPU and memory requests, with defaults for the missing requests of each container."""
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
    """Return the QoS class: ``Guaranteed``, ``Burstable`` or ``BestEffort``. Amounts of 0 are treated as absent."""
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
    """Return the aggregated requests (or limits) of all containers, by resource.

    For each resource this is the larger of two amounts: the sum over containers and sidecars, and the maximum over init
    containers, each with the sidecars before it.
    """
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

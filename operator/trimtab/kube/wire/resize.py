"""Pods whose resources are being changed in place.

While a resize is under way, kube-scheduler counts for a container the largest of what the spec wants, what the node
has granted and what runs (component-helpers ``resource.PodRequests`` with ``UseStatusResources``, v1.36); if the node
can never grant it, only the latter two. The kubelet marks such pods with a condition, and only for them the container
statuses are looked at: all others share the spec's own requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from trimtab.kube.frozen import FrozenMap, ResourceList
from trimtab.kube.objects import Container, PodCondition, PodSpec
from trimtab.kube.rules.pod_requests import effective_requests, nonzero_requests
from trimtab.kube.wire import fields

RESIZE_CONDITIONS: Final = frozenset({"PodResizePending", "PodResizeInProgress"})


def with_resized_requests(spec: PodSpec, status: Any, conditions: tuple[PodCondition, ...]) -> PodSpec:
    """The spec with the requests that count while the resize lasts, on the node where the pod is.

    ``scored_requests`` stay: a pod to be placed anew has no status, and NodeResourcesFit's scorer reads none.

    Args:
        spec: the pod's spec; its containers keep the requests that they state.
        status: the pod's status on the wire.
        conditions: the pod's conditions, of which one says whether the resize is infeasible.

    Raises:
        FieldError: where a quantity in the status cannot be read.
    """
    pending = next((condition for condition in conditions if condition.type == "PodResizePending"), None)
    infeasible = pending is not None and pending.reason == "Infeasible"
    running = _in_status(status.container_statuses, "status.containerStatuses")
    running_init = _in_status(status.init_container_statuses, "status.initContainerStatuses")
    pod_level = spec.pod_resources
    if pod_level and status.HasField("resources"):
        actual = _largest(
            fields.resource_list(status.resources.requests, "status.resources.requests"),
            fields.resource_list(status.allocated_resources, "status.allocatedResources"),
        )
        largest = actual if infeasible else _largest(pod_level, actual)
        pod_level = FrozenMap({name: largest.get(name, 0) for name in pod_level})
    containers = [_resized(container, running, infeasible=infeasible) for container in spec.containers]
    init_containers = [
        _resized(container, running_init, infeasible=infeasible) if container.restart_policy == "Always" else container
        for container in spec.init_containers
    ]
    return msgspec.structs.replace(
        spec,
        requests=effective_requests(containers, init_containers, overhead=spec.overhead, pod_level=pod_level),
        nonzero_requests=nonzero_requests(containers, init_containers, overhead=spec.overhead, pod_level=pod_level),
    )


def _in_status(messages: Any, path: str) -> dict[str, ResourceList]:
    """By container, the larger of what runs and what is allocated; only containers whose status has resources."""
    return {
        message.name: _largest(
            fields.resource_list(message.resources.requests, f"{path}[{index}].resources.requests"),
            fields.resource_list(message.allocated_resources, f"{path}[{index}].allocatedResources"),
        )
        for index, message in enumerate(messages)
        if message.HasField("resources")
    }


def _resized(container: Container, running: Mapping[str, ResourceList], *, infeasible: bool) -> Container:
    actual = running.get(container.name)
    if actual is None:
        return container
    requests = actual if infeasible else _largest(container.requests, actual)
    return msgspec.structs.replace(container, requests=requests)


def _largest(one: Mapping[str, int], other: Mapping[str, int]) -> ResourceList:
    return FrozenMap({name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}})

"""Specs of pods (core/v1 ``ValidatePodSpec``, v1.36).

A port's ``hostIP`` may be any text, as the API server does not look at it either.
"""

from __future__ import annotations

from typing import Any, Final

from trimtab.kube.objects import Container
from trimtab.kube.rules.pod_requests import effective_requests, with_default_requests
from trimtab.kube.rules.quantity import format_amount, resource_amount
from trimtab.kube.wire import json
from trimtab.kube.wire.fields import FieldError, keyed, resource_list
from trimtab.kube.wire.validation.checks import (
    INT32,
    INT64,
    Shape,
    between,
    both,
    distinct,
    each,
    given,
    one_of,
    remembered,
    shown,
)
from trimtab.kube.wire.validation.names import DNS_LABEL, LABEL_KEY, SUBDOMAIN, check_labels
from trimtab.kube.wire.validation.resources import CONTAINER_RESOURCES, OVERHEAD, POD_RESOURCES
from trimtab.kube.wire.validation.scheduling import AFFINITY, TOLERATION, TOPOLOGY_SPREAD

PORT: Final = between(1, 65535)
PROTOCOL: Final = one_of("TCP", "UDP", "SCTP")
RESTART_POLICY: Final = one_of("Always", "OnFailure", "Never")
PREEMPTION_POLICY: Final = one_of("PreemptLowerPriority", "Never")


_CONTAINER: Final = Shape(
    json.Container,
    name=DNS_LABEL,
    ports=each(
        Shape(
            json.ContainerPort,
            needs="container_port",
            container_port=PORT,
            host_port=PORT,
            protocol=PROTOCOL,
        )
    ),
    resources=CONTAINER_RESOURCES,
    restart_policy=RESTART_POLICY,
)
_CONTAINERS: Final = remembered(
    both(each(_CONTAINER), distinct(lambda container: container.name or object(), "names", field="name"))
)
_VOLUME: Final = Shape(
    json.Volume,
    name=DNS_LABEL,  # kept of ephemeral volumes only
    persistent_volume_claim=Shape(
        json.PersistentVolumeClaimSource, needs="claim_name", claim_name=given("the name of a claim")
    ),
)


def _host_ports(message: Any) -> None:
    """On the host's network a container's port is the host's."""
    if not message.host_network:
        return
    for number, container in enumerate(message.containers):
        for index, port in enumerate(container.ports):
            if port.host_port not in (0, port.container_port):
                raise FieldError(
                    f"containers[{number}].ports[{index}].hostPort",
                    f"must be the containerPort {port.container_port} where hostNetwork is true, not {port.host_port}",
                )


def _whole_pod(message: Any) -> None:
    """What the whole pod may have covers what its containers ask for (``validatePodResourceConsistency``)."""
    if message.resources is None:
        return
    requests, limits = message.resources.requests, message.resources.limits
    containers = _containers(message.containers)
    together = effective_requests(containers, _containers(message.init_containers))
    for name, text in requests.items():
        if together.get(name, 0) > resource_amount(name, text):
            needed = format_amount(name, together[name])
            raise FieldError(
                keyed("resources.requests", name),
                f"must be at least the {needed} that the containers request together, not {shown(text)}",
            )
    for index, container in enumerate(containers):
        for name, text in limits.items():
            if container.limits.get(name, 0) > resource_amount(name, text):
                raise FieldError(
                    keyed(f"containers[{index}].resources.limits", name),
                    f"must not be above the whole pod's limit of {text}",
                )


def _containers(messages: Any) -> list[Container]:
    """The containers with amounts alone; these have been checked before."""
    found = []
    for message in messages:
        limits = resource_list(message.resources.limits, "")
        requests = with_default_requests(resource_list(message.resources.requests, ""), limits)
        found.append(Container("", requests=requests, limits=limits, restart_policy=message.restart_policy))
    return found


POD_SPEC: Final = Shape(
    json.PodSpec,
    volumes=each(_VOLUME),
    containers=_CONTAINERS,
    init_containers=_CONTAINERS,
    restart_policy=RESTART_POLICY,
    termination_grace_period_seconds=INT64,
    node_selector=check_labels,
    affinity=AFFINITY,
    tolerations=remembered(each(TOLERATION)),
    priority_class_name=SUBDOMAIN,
    priority=INT32,
    preemption_policy=PREEMPTION_POLICY,
    overhead=OVERHEAD,
    topology_spread_constraints=remembered(TOPOLOGY_SPREAD),
    scheduling_gates=each(Shape(json.Named, needs="name", name=LABEL_KEY)),
    resource_claims=both(
        each(Shape(json.Named, needs="name", name=DNS_LABEL)),
        distinct(lambda claim: claim.name, "names", field="name"),
    ),
    resources=POD_RESOURCES,
    also=[_host_ports, _whole_pod],
)
"""All but ``nodeName``, which differs between pods that share the rest."""

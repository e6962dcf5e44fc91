"""Projection of pod specs: done once per distinct spec, so it may take its time."""

from __future__ import annotations

from typing import Any, Final

from trimtab.kube.frozen import NO_RESOURCES, ResourceList
from trimtab.kube.objects import (
    Affinity,
    Container,
    HostPort,
    NodeAffinity,
    PodAffinityTerm,
    PodSpec,
    PreferredNodeTerm,
    Toleration,
    TopologySpread,
    WeightedPodTerm,
)
from trimtab.kube.rules.pod_requests import (
    PodLevelResources,
    effective_requests,
    nonzero_requests,
    qos_class,
    scored_requests,
    with_default_pod_level,
    with_default_requests,
)
from trimtab.kube.wire import fields
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.volume_source import project_volume

_DEFAULT_GRACE_PERIOD: Final = 30
RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
"""The feature that a node has declared where containers may ask for a restart of all of them."""

_NO_AFFINITY: Final = Affinity()


def project_spec(message: Any, interner: Interner) -> PodSpec:
    """Project a pod's spec, ``nodeName`` left out, with the API server's defaults.

    Raises:
        FieldError: where a quantity cannot be read.
    """
    share = interner.share
    containers = share(_containers(message.containers, "spec.containers"))
    init_containers = share(_containers(message.init_containers, "spec.initContainers"))
    overhead = fields.resource_list(message.overhead, "spec.overhead")
    pod_level = _pod_level(message, containers, init_containers)
    pod_requests = pod_level.requests if pod_level else NO_RESOURCES
    return PodSpec(
        containers=containers,
        init_containers=init_containers,
        overhead=share(overhead),
        pod_resources=share(pod_requests),
        requests=share(
            effective_requests(containers, init_containers, overhead=overhead, pod_level=pod_requests),
        ),
        nonzero_requests=share(
            nonzero_requests(containers, init_containers, overhead=overhead, pod_level=pod_requests),
        ),
        scored_requests=share(scored_requests(containers, init_containers, overhead=overhead)),
        qos=qos_class(containers, init_containers, pod_level=pod_level),
        host_ports=share(_host_ports(message)),
        node_selector=fields.labels(message.node_selector, interner),
        affinity=share(_affinity(message.affinity)) if message.HasField("affinity") else _NO_AFFINITY,
        tolerations=share(tuple(_toleration(toleration) for toleration in message.tolerations)),
        topology_spread=share(tuple(_spread(spread) for spread in message.topology_spread_constraints)),
        volumes=share(tuple(volume for volume in map(project_volume, message.volumes) if volume)),
        resource_claims=tuple(claim.name for claim in message.resource_claims),
        required_features=_required_features(message),
        scheduling_gates=tuple(gate.name for gate in message.scheduling_gates),
        priority=message.priority if message.HasField("priority") else None,
        priority_class_name=interner.string(message.priority_class_name),
        preemption_policy=interner.string(message.preemption_policy),
        scheduler_name=interner.string(message.scheduler_name or "default-scheduler"),
        restart_policy=interner.string(message.restart_policy or "Always"),
        host_network=message.host_network,
        termination_grace_period=(
            message.termination_grace_period_seconds
            if message.HasField("termination_grace_period_seconds")
            else _DEFAULT_GRACE_PERIOD
        ),
    )


def _required_features(message: Any) -> tuple[str, ...]:
    """What the pod's node must have declared (component-helpers ``nodedeclaredfeatures``, v1.36).

    One feature alone is asked for by what the API server takes in v1.36 with gates at their defaults.
    """
    rules = (rule for each in (*message.containers, *message.init_containers) for rule in each.restart_policy_rules)
    return (RESTART_ALL,) if any(rule.action == "RestartAllContainers" for rule in rules) else ()


def _containers(messages: Any, path: str) -> tuple[Container, ...]:
    containers = []
    for index, message in enumerate(messages):
        where = f"{path}[{index}].resources"
        requests, limits = _resources(message, where)
        containers.append(
            Container(
                name=message.name,
                image=message.image,
                requests=with_default_requests(requests, limits),
                limits=limits,
                restart_policy=message.restart_policy,
            )
        )
    return tuple(containers)


def _resources(message: Any, path: str) -> tuple[ResourceList, ResourceList]:
    """Requests and limits of a message that may have ``resources``."""
    if not message.HasField("resources"):
        return NO_RESOURCES, NO_RESOURCES
    return (
        fields.resource_list(message.resources.requests, f"{path}.requests"),
        fields.resource_list(message.resources.limits, f"{path}.limits"),
    )


def _pod_level(
    message: Any, containers: tuple[Container, ...], init_containers: tuple[Container, ...]
) -> PodLevelResources | None:
    if not message.HasField("resources"):
        return None
    requests, limits = _resources(message, "spec.resources")
    return with_default_pod_level(PodLevelResources(requests=requests, limits=limits), containers, init_containers)


def _host_ports(message: Any) -> tuple[HostPort, ...]:
    """Ports taken on the node, by sidecars and by containers, each once (kube-scheduler ``GetHostPorts``).

    With ``hostNetwork`` every container port is a host port: the API server says so by default.
    """
    lasting = [container for container in message.init_containers if container.restart_policy == "Always"]
    ports = (
        HostPort(
            port=port.host_port or port.container_port,
            protocol=port.protocol or "TCP",
            ip=port.host_ip or "0.0.0.0",
        )
        for container in (*lasting, *message.containers)
        for port in container.ports
        if port.host_port or (message.host_network and port.container_port)
    )
    return tuple(dict.fromkeys(ports))


def _toleration(message: Any) -> Toleration:
    return Toleration(
        key=message.key,
        operator=message.operator,
        value=message.value,
        effect=message.effect,
        seconds=message.toleration_seconds if message.HasField("toleration_seconds") else None,
    )


def _spread(message: Any) -> TopologySpread:
    return TopologySpread(
        max_skew=message.max_skew,
        topology_key=message.topology_key,
        when_unsatisfiable=message.when_unsatisfiable,
        selector=fields.label_selector(message, "label_selector"),
        min_domains=message.min_domains if message.HasField("min_domains") else None,
        node_affinity_policy=message.node_affinity_policy,
        node_taints_policy=message.node_taints_policy,
        match_label_keys=tuple(message.match_label_keys),
    )


def _affinity(message: Any) -> Affinity:
    pods = message.pod_affinity if message.HasField("pod_affinity") else None
    anti = message.pod_anti_affinity if message.HasField("pod_anti_affinity") else None
    return Affinity(
        node=_node_affinity(message.node_affinity) if message.HasField("node_affinity") else NodeAffinity(),
        pod_required=tuple(map(_pod_term, pods.required)) if pods else (),
        pod_preferred=tuple(map(_weighted_pod_term, pods.preferred)) if pods else (),
        anti_required=tuple(map(_pod_term, anti.required)) if anti else (),
        anti_preferred=tuple(map(_weighted_pod_term, anti.preferred)) if anti else (),
    )


def _node_affinity(message: Any) -> NodeAffinity:
    required = None
    if message.HasField("required"):
        required = fields.node_selector(message.required)
    return NodeAffinity(
        required=required,
        preferred=tuple(
            PreferredNodeTerm(weight=preferred.weight, term=fields.node_selector_term(preferred.preference))
            for preferred in message.preferred
        ),
    )


def _pod_term(message: Any) -> PodAffinityTerm:
    return PodAffinityTerm(
        topology_key=message.topology_key,
        selector=fields.label_selector(message, "label_selector"),
        namespaces=tuple(message.namespaces),
        namespace_selector=fields.label_selector(message, "namespace_selector"),
        match_label_keys=tuple(message.match_label_keys),
        mismatch_label_keys=tuple(message.mismatch_label_keys),
    )


def _weighted_pod_term(message: Any) -> WeightedPodTerm:
    return WeightedPodTerm(weight=message.weight, term=_pod_term(message.pod_affinity_term))

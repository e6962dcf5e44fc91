"""Projects pods, in the same way for protobuf, JSON and YAML.

A large cluster has 150,000 pods. So :func:`project_pod` looks up the parts that pods of one template share (spec,
labels, owners) by a key, and reads the other fields with few look-ups. :func:`project_spec` runs once for each distinct
spec and need not be fast. :mod:`trimtab.kube.wire.projection.fields` explains what a *message* is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from trimtab.kube.frozen import NO_LABELS, NO_RESOURCES, FrozenMap, Labels, ResourceList
from trimtab.kube.objects import (
    Affinity,
    Container,
    ContainerState,
    HostPort,
    NodeAffinity,
    Pod,
    PodAffinityTerm,
    PodCondition,
    PodSpec,
    PreferredNodeTerm,
    Toleration,
    TopologySpread,
    Volume,
    WeightedPodTerm,
)
from trimtab.kube.objects.pod import CONTAINER, EPHEMERAL_CONTAINER, INIT_CONTAINER
from trimtab.kube.rules.pod_requests import (
    PodLevelResources,
    effective_requests,
    nonzero_requests,
    qos_class,
    scored_requests,
    with_default_pod_level,
    with_default_requests,
)
from trimtab.kube.wire import slim_json
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.json_base import Message
from trimtab.kube.wire.limits import (
    LARGE_SPEC,
    MESSAGE_LENGTH,
    bounded_annotations,
    bounded_labels,
    bounded_tolerations,
    metadata_excess,
    size_of,
    spec_excess,
    split_requests,
    term_size,
)
from trimtab.kube.wire.projection import fields
from trimtab.kube.wire.projection.annotations import meaningful

SpecKey = Callable[[Any], bytes]
"""A function that encodes a spec, after it has cleared the fields that differ between pods of one template.

Equal specs give identical bytes.

These fields are ``node_name``, and the names of volumes that are not ephemeral, emptyDir or hostPath.
"""

STANDARD_CONDITIONS: Final = frozenset(
    {"PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"}
)
"""The conditions of a ready pod that are omitted while they are True, as on every healthy pod."""


def project_pod(
    message: Any, interner: Interner, encode_spec: SpecKey, check_spec: Callable[[Any], None] | None = None
) -> Pod:
    """Project a pod.

    Args:
        message: the decoded pod, whose spec is modified.
        interner: shares identical specs and other values.
        encode_spec: returns the key by which equal specs are found.
        check_spec: called with a new spec before it is projected. It raises FieldError if the spec is invalid.

    Raises:
        FieldError: the name is missing, a quantity cannot be parsed, or ``check_spec`` rejects the spec.
    """
    metadata, wire_spec, status = message.metadata, message.spec, message.status
    string = interner.string
    node = string(wire_spec.node_name)  # encode_spec clears it
    spec = shared_spec(wire_spec, interner, encode_spec, check_spec)
    annotations = meaningful(metadata.annotations.items())
    excess = metadata_excess(metadata, interner.limits, annotations)
    if excess:
        spec = interner.share(msgspec.structs.replace(spec, complexity=spec.complexity or excess))
    ready, ready_since, conditions = pod_conditions(status.conditions, interner) if status.conditions else _NOT_READY
    restarts, init_restarts, states = container_statuses(status, interner)
    if conditions or status.qos_class != spec.qos:
        spec = with_status(spec, status, conditions, interner)
    return Pod(
        namespace=string(metadata.namespace or "default"),
        name=fields.required(metadata.name, "metadata.name"),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        labels=pod_labels(metadata.labels, interner),
        annotations=_annotations(annotations, interner),
        owners=fields.owners(metadata.owner_references, interner, most=interner.limits.items),
        created=fields.seconds(metadata, "creation_timestamp"),
        deleted=fields.seconds(metadata, "deletion_timestamp"),
        node=node,
        spec=spec,
        phase=string(status.phase),
        reason=string(status.reason),
        ready=ready,
        ready_since=ready_since,
        started=fields.seconds(status, "start_time"),
        nominated_node=string(status.nominated_node_name),
        restarts=restarts,
        init_restarts=init_restarts,
        conditions=conditions,
        container_states=states,
        generation=metadata.generation,
        node_name_managed=bool(node) and fields.sets_node_name(metadata.managed_fields),
    )


def shared_spec(
    message: Any, interner: Interner, encode_spec: SpecKey, check_spec: Callable[[Any], None] | None = None
) -> PodSpec:
    """Return the spec of a pod or of a template, projected once for all pods of the template.

    The arguments are those of :func:`project_pod`.
    """
    # A digest instead of the bytes, because the pods of DaemonSets and StatefulSets have distinct specs of 0.7 KiB.
    encoded = encode_spec(message)
    key = hashlib.blake2b(encoded, digest_size=16).digest()
    return interner.spec(key, lambda: _new_spec(message, interner, check_spec, len(encoded)))


def _new_spec(message: Any, interner: Interner, check: Callable[[Any], None] | None, size: int) -> PodSpec:
    if check is not None:
        check(message)
    return project_spec(message, interner, size)


def pod_labels(labels: Any, interner: Interner) -> Labels:
    """Return the labels of a pod or its template.

    If they exceed the limit, only the first labels by key are returned.
    """
    most = interner.limits.labels
    return fields.labels(labels if len(labels) <= most else bounded_labels(labels, most), interner)


def _annotations(annotations: dict[str, str], interner: Interner) -> Labels:
    most = interner.limits.annotation_bytes
    if size_of(annotations) > most:
        annotations = bounded_annotations(annotations, most)
    return interner.share(FrozenMap(annotations)) if annotations else NO_LABELS


_Conditions = tuple[bool, float | None, tuple[PodCondition, ...]]
_NOT_READY: Final[_Conditions] = (False, None, ())


def pod_conditions(messages: Any, interner: Interner) -> _Conditions:
    """Return whether the pod is ready, when it became ready (``None`` if it is not), and the conditions to store."""
    ready, since = False, None
    kept, standing = [], []
    for message in messages:
        kind = message.type
        if message.status == "True" and kind in STANDARD_CONDITIONS:
            if kind == "Ready":
                ready, since = True, fields.moment(message.last_transition_time)
            else:
                standing.append(message)
            continue
        kept.append(_pod_condition(message, interner))
    if not ready:
        kept += [_pod_condition(message, interner) for message in standing]
    return ready, since, tuple(kept)


def _pod_condition(message: Any, interner: Interner) -> PodCondition:
    return PodCondition(
        type=interner.string(message.type),
        status=interner.string(message.status),
        reason=interner.string(message.reason),
        message=interner.string(message.message[:MESSAGE_LENGTH]),
        since=fields.moment(message.last_transition_time),
    )


def with_status(spec: PodSpec, status: Any, conditions: tuple[PodCondition, ...], interner: Interner) -> PodSpec:
    """Return the spec, updated with information that only the status contains.

    This is the QoS class, and the requests of a resize in progress.
    """
    if status.qos_class and status.qos_class != spec.qos:
        spec = interner.share(msgspec.structs.replace(spec, qos=interner.string(status.qos_class)))
    if any(condition.type in RESIZE_CONDITIONS for condition in conditions) and not spec.complexity:
        spec = interner.share(with_resized_requests(spec, status, conditions))
    return spec


Statuses = tuple[int, int, tuple[ContainerState, ...]]


def container_statuses(status: Any, interner: Interner) -> Statuses:
    """Return the restart counts of containers and of init containers, and the states of those that are not running.

    For running containers only the sum of restarts is stored. Containers that are not running have few distinct states
    (a completed init container, CrashLoopBackOff), so pods with identical states share them.

    Args:
        status: the pod's decoded status.
        interner: shares the states.
    """
    states: list[ContainerState] = []
    restarts = _read(status.container_statuses, CONTAINER, states)
    init, ephemeral = status.init_container_statuses, status.ephemeral_container_statuses
    init_restarts = _read(init, INIT_CONTAINER, states) if init else 0
    if ephemeral:
        _read(ephemeral, EPHEMERAL_CONTAINER, states)
    return restarts, init_restarts, interner.share(tuple(states[: interner.limits.items])) if states else ()


def _read(messages: Any, kind: str, states: list[ContainerState]) -> int:
    """Return the sum of the restart counts, and append the states of containers that are not running to ``states``."""
    restarts = 0
    for message in messages:
        restarts += message.restart_count
        state = message.state
        if state.HasField("terminated"):
            ended = state.terminated
            states.append(ContainerState(kind, message.name, ended.reason, ended.exit_code))
        elif state.HasField("waiting"):
            states.append(ContainerState(kind, message.name, state.waiting.reason))
    return restarts


_DEFAULT_GRACE_PERIOD: Final = 30
RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
"""The feature that a node must declare for containers with the restart rule RestartAllContainers."""

_NO_AFFINITY: Final = Affinity()

_LONGEST_NAME: Final = 253
"""Maximum length of an object's name."""

_LONGEST_DISK: Final = 1_024
"""Maximum length of the disk identity of an inline volume in a pod beyond the limits."""


_PLAIN_SPEC: Final = fields.same_named_fields(
    PodSpec, slim_json.PodSpec, but=("scheduler_name", "restart_policy", "resource_claims", "scheduling_gates")
)


def project_spec(message: Any, interner: Interner, size: int) -> PodSpec:
    """Project a pod's spec, excluding ``nodeName``, with the API server's defaults applied.

    Args:
        message: the spec.
        interner: shares identical values. If the spec exceeds the interner's limits, only a part of it is projected.
        size: the encoded size of the spec in bytes.

    Raises:
        FieldError: a quantity cannot be parsed.
    """
    excess = spec_excess(message, interner.limits, size)
    if excess:
        return _reduced_spec(message, interner, excess)
    share = interner.share
    containers = share(_containers(message.containers, "spec.containers"))
    init_containers = share(_containers(message.init_containers, "spec.initContainers"))
    overhead = fields.resource_list(message.overhead, "spec.overhead")
    pod_level = _pod_level(message, containers, init_containers)
    pod_requests = pod_level.requests if pod_level else NO_RESOURCES
    return PodSpec(
        **_PLAIN_SPEC(message, interner),
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
        affinity=share(_affinity(message.affinity, interner)) if message.HasField("affinity") else _NO_AFFINITY,
        tolerations=share(tuple(project_toleration(toleration, interner) for toleration in message.tolerations)),
        topology_spread=share(
            tuple(_spread(spread, interner) for spread in message.topology_spread_constraints),
        ),
        volumes=share(tuple(volume for volume in map(project_volume, message.volumes) if volume)),
        resource_claims=tuple(claim.name for claim in message.resource_claims),
        required_features=_required_features(message),
        scheduling_gates=tuple(gate.name for gate in message.scheduling_gates),
        pod_group=_pod_group(message, interner),
        scheduler_name=interner.string(message.scheduler_name or "default-scheduler"),
        restart_policy=interner.string(message.restart_policy or "Always"),
        termination_grace_period=_grace_period(message),
        kibibytes=size >> 10 if size >= LARGE_SPEC else 0,
    )


def _pod_group(message: Any, interner: Interner) -> str:
    return interner.string(message.scheduling_group.pod_group_name) if message.HasField("scheduling_group") else ""


def _reduced_spec(message: Any, interner: Interner, excess: str) -> PodSpec:
    """Project a spec that exceeds the limits, reduced to the part that trimtab needs.

    This part contains the requests and the fields on which evictions depend.
    """
    share, string, limits = interner.share, interner.string, interner.limits
    containers = _containers(message.containers, "spec.containers")
    init_containers = _containers(message.init_containers, "spec.initContainers")
    overhead = fields.resource_list(message.overhead, "spec.overhead")
    pod_level = _pod_level(message, containers, init_containers)
    pod_requests = pod_level.requests if pod_level else NO_RESOURCES
    requests = effective_requests(containers, init_containers, overhead=overhead, pod_level=pod_requests)
    kept, further = split_requests(requests, limits.resource_names)
    volumes = (volume for volume in map(project_volume, message.volumes[: limits.items]) if volume)
    tolerations = tuple(project_toleration(toleration, interner) for toleration in message.tolerations)
    return PodSpec(
        requests=share(kept),
        further_requests=further,
        nonzero_requests=share(
            nonzero_requests(containers, init_containers, overhead=overhead, pod_level=pod_requests),
        ),
        scored_requests=share(scored_requests(containers, init_containers, overhead=overhead)),
        qos=qos_class(containers, init_containers, pod_level=pod_level),
        host_ports=share(_host_ports(message)[: limits.items]),
        affinity=share(Affinity(anti_required=_first_anti_terms(message, interner))),
        tolerations=share(bounded_tolerations(tolerations, limits.tolerations)),
        volumes=share(tuple(each for each in volumes if sum(map(len, each.disk)) <= _LONGEST_DISK)),
        resource_claims=tuple(claim.name for claim in message.resource_claims[: limits.items]),
        scheduling_gates=tuple(gate.name for gate in message.scheduling_gates[: limits.items]),
        pod_group=_pod_group(message, interner),
        priority=message.priority if message.HasField("priority") else None,
        priority_class_name=string(message.priority_class_name),
        preemption_policy=string(message.preemption_policy),
        scheduler_name=string((message.scheduler_name or "default-scheduler")[:_LONGEST_NAME]),
        restart_policy=string(message.restart_policy or "Always"),
        host_network=message.host_network,
        termination_grace_period=_grace_period(message),
        complexity=excess,
    )


def _first_anti_terms(message: Any, interner: Interner) -> tuple[PodAffinityTerm, ...]:
    """Return the first required anti-affinity terms within the limits.

    kube-scheduler evaluates all terms.
    """
    if not message.HasField("affinity") or not message.affinity.HasField("pod_anti_affinity"):
        return ()
    limits, found, values = interner.limits, [], 0
    keys: set[str] = set()
    for each in message.affinity.pod_anti_affinity.required[: limits.affinity_terms]:
        values += term_size(each)
        keys.add(each.topology_key)
        if values > limits.selector_values or len(keys) > limits.topology_keys:
            break
        found.append(_pod_term(each, interner))
    return tuple(found)


def _grace_period(message: Any) -> int:
    if not message.HasField("termination_grace_period_seconds"):
        return _DEFAULT_GRACE_PERIOD
    return int(message.termination_grace_period_seconds)


def _required_features(message: Any) -> tuple[str, ...]:
    """Return the features that the pod's node must declare (component-helpers ``nodedeclaredfeatures``, v1.36).

    With the default feature gates, v1.36 has one such feature.
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
    """Return the requests and limits of a message that may have ``resources``."""
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
    """Return the distinct host ports of sidecars and containers (kube-scheduler ``GetHostPorts``).

    With ``hostNetwork`` every container port is a host port, as the API server's defaults set it.
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


_TOLERATION: Final = fields.same_named_fields(Toleration, slim_json.Toleration)
_SPREAD: Final = fields.same_named_fields(TopologySpread, slim_json.TopologySpreadConstraint)
_POD_TERM: Final = fields.same_named_fields(PodAffinityTerm, slim_json.PodAffinityTerm)


def project_toleration(message: Any, interner: Interner) -> Toleration:
    """Project a toleration of a pod or of a RuntimeClass."""
    seconds = message.toleration_seconds if message.HasField("toleration_seconds") else None
    return Toleration(**_TOLERATION(message, interner), seconds=seconds)


def _spread(message: Any, interner: Interner) -> TopologySpread:
    return TopologySpread(**_SPREAD(message, interner), selector=fields.label_selector(message, "label_selector"))


def _affinity(message: Any, interner: Interner) -> Affinity:
    """Project an affinity. The pods of a DaemonSet share all of it except the required node affinity."""
    pods = message.pod_affinity if message.HasField("pod_affinity") else None
    anti = message.pod_anti_affinity if message.HasField("pod_anti_affinity") else None

    def terms(affinity: Any) -> tuple[PodAffinityTerm, ...]:
        return interner.share(tuple(_pod_term(each, interner) for each in affinity.required)) if affinity else ()

    def weighted(affinity: Any) -> tuple[WeightedPodTerm, ...]:
        if not affinity:
            return ()
        return interner.share(
            tuple(
                WeightedPodTerm(weight=each.weight, term=_pod_term(each.pod_affinity_term, interner))
                for each in affinity.preferred
            )
        )

    return Affinity(
        node=_node_affinity(message.node_affinity, interner) if message.HasField("node_affinity") else NodeAffinity(),
        pod_required=terms(pods),
        pod_preferred=weighted(pods),
        anti_required=terms(anti),
        anti_preferred=weighted(anti),
    )


def _node_affinity(message: Any, interner: Interner) -> NodeAffinity:
    required = None
    if message.HasField("required"):
        required = fields.node_selector(message.required)
    preferred = tuple(
        PreferredNodeTerm(weight=preferred.weight, term=fields.node_selector_term(preferred.preference))
        for preferred in message.preferred
    )
    return NodeAffinity(required=required, preferred=interner.share(preferred))


def _pod_term(message: Any, interner: Interner) -> PodAffinityTerm:
    return PodAffinityTerm(**_POD_TERM(message, interner), selector=fields.label_selector(message, "label_selector"))


def _kinds(source: type[Message]) -> dict[str, str]:
    return {field.name: field.encode_name for field in msgspec.structs.fields(source)}


VOLUME_KINDS: Final = _kinds(slim_json.VolumeSource)
"""The volume sources that are projected: the message's field and the JSON key, which is :attr:`Volume.kind`.

configMap, secret, projected and downwardAPI are omitted, because no rule reads them.
"""

PERSISTENT_KINDS: Final = _kinds(slim_json.PersistentVolumeSource)
"""The sources of a PersistentVolume: the message's field and the JSON key, which is its ``source``."""

Disk = tuple[str, ...]

_MIGRATED: Final[dict[str, Callable[[Any], Disk]]] = {
    "gce_persistent_disk": lambda source: (source.pd_name,),
    "aws_elastic_block_store": lambda source: (source.volume_id,),
    "cinder": lambda source: (source.volume_id,),
    "azure_disk": lambda source: (source.disk_uri, source.kind or "Shared"),  # the API server's default
    "portworx_volume": lambda source: (source.volume_id,),
}
"""The identity of the disk in a volume source that is migrated to a CSI driver, in pods and PersistentVolumes."""

_INLINE: Final[dict[str, Callable[[Any], Disk]]] = {
    **_MIGRATED,
    "iscsi": lambda source: (source.iqn,),
    "rbd": lambda source: (source.pool or "rbd", source.image, *source.monitors),  # the API server's default
}
"""The identity of the disk in an inline volume, including sources that two pods must not share."""


def project_volume(message: Any) -> Volume | None:
    """Project a pod's volume. Return ``None`` for a source that no rule reads."""
    source = message.volume_source
    for field, kind in VOLUME_KINDS.items():
        if source.HasField(field):
            return _volume(field, kind, getattr(source, field), message.name)
    return None


def _volume(field: str, kind: str, source: Any, name: str) -> Volume:
    if field == "persistent_volume_claim":
        return Volume(kind=kind, claim=source.claim_name, read_only=source.read_only)
    if field == "empty_dir":
        return Volume(kind=kind, name=name, medium=source.medium)
    if field in {"ephemeral", "host_path"}:
        return Volume(kind=kind, name=name)
    if field == "image":
        return Volume(kind=kind, disk=(source.reference,))
    disk = _INLINE.get(field)
    return Volume(kind=kind) if disk is None else Volume(kind=kind, read_only=source.read_only, disk=disk(source))


def persistent_source(source: Any) -> tuple[str, Disk]:
    """Return the source of a PersistentVolume and the identity of its disk.

    Both are empty for an unknown source.
    """
    for field, kind in PERSISTENT_KINDS.items():
        if source.HasField(field):
            disk = _MIGRATED.get(field)
            return kind, () if disk is None else disk(getattr(source, field))
    return "", ()


RESIZE_CONDITIONS: Final = frozenset({"PodResizePending", "PodResizeInProgress"})


def with_resized_requests(spec: PodSpec, status: Any, conditions: tuple[PodCondition, ...]) -> PodSpec:
    """Return the spec with the requests that are counted on the pod's node during an in-place resize.

    During a resize kube-scheduler counts for each container the maximum of the desired, the allocated and the actual
    requests (component-helpers ``resource.PodRequests`` with ``UseStatusResources``, v1.36); if the resize is
    infeasible, it counts the maximum of only the latter two. The kubelet sets a condition on pods with a resize in
    progress. Other pods share the requests of the spec. ``scored_requests`` do not change, because a pod that is placed
    on another node has no status there and NodeResourcesFit's scorer reads none.

    Args:
        spec: the pod's spec. The requests of its containers are unchanged.
        status: the pod's decoded status.
        conditions: the pod's conditions, which show whether the resize is infeasible.

    Raises:
        FieldError: a quantity in the status cannot be parsed.
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
    """Return the maximum of actual and allocated requests, by container name.

    Containers without resources in their status are omitted.
    """
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

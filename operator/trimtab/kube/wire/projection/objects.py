"""Projects decoded messages to the values that planners read, with the same projection for protobuf, JSON and YAML.

Each function takes a message (see :mod:`~trimtab.kube.wire.projection.fields`) and an
:class:`~trimtab.kube.wire.intern.Interner`. It raises :class:`~trimtab.kube.wire.projection.fields.FieldError` if the
name is missing or a quantity cannot be parsed. :mod:`~trimtab.kube.wire.projection.pod` projects pods, and
:mod:`~trimtab.kube.wire.projection.machine` projects machines and node groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from trimtab.kube.frozen import NO_LABELS, NO_RESOURCES, FrozenMap, Labels, ResourceList
from trimtab.kube.objects import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    DaemonSet,
    Job,
    KubeObject,
    LabelSelector,
    Lease,
    LimitRange,
    Namespace,
    Node,
    NodeCondition,
    NodeDriver,
    NodeSelector,
    OwnerReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PodDisruptionBudget,
    PodEvictionRequest,
    PodTemplate,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    RuntimeClass,
    Service,
    StatefulSet,
    StorageClass,
    Taint,
    TopologyRequirement,
    VerticalPodAutoscaler,
    VolumeAttachment,
)
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.limits import selector_size
from trimtab.kube.wire.projection import fields, machine
from trimtab.kube.wire.projection.annotations import (
    BIND_COMPLETED,
    MIGRATED_PLUGINS,
    OLDER_STORAGE_CLASS,
    REVISION,
    SELECTED_NODE,
)
from trimtab.kube.wire.projection.pod import (
    SpecKey,
    persistent_source,
    pod_labels,
    project_pod,
    project_toleration,
    shared_spec,
)

Projector = Callable[[Any, Interner], KubeObject]

_METADATA_NAME: Final = "kubernetes.io/metadata.name"

_EVERY_POD: Final = LabelSelector()
"""The selector used for a PodDisruptionBudget whose own selector exceeds the limits. It protects all pods of the
namespace."""

_NOTHING: Final = LabelSelector(FrozenMap({"": ""}))
"""The selector used for a claim whose own selector exceeds the limits. It matches no volume."""


_KUBELET_ADDRESSES: Final = ("InternalIP", "ExternalIP", "Hostname")
"""The types of addresses at which a kubelet may serve, in order of preference."""

MAX_HOST_NAME: Final = 253
"""Maximum length of a host name in DNS. Longer addresses are skipped."""


def project_node(message: Any, interner: Interner) -> Node:
    """Project a node. ``allocatable`` defaults to ``capacity``, as in the API server."""
    spec, status = message.spec, message.status
    capacity = interner.share(fields.resource_list(status.capacity, "status.capacity"))
    allocatable = interner.share(fields.resource_list(status.allocatable, "status.allocatable"))
    return Node(
        **fields.metadata(Node, message, interner),
        unschedulable=spec.unschedulable,
        provider_id=spec.provider_id,
        taints=tuple(
            Taint(
                key=taint.key,
                effect=taint.effect,
                value=taint.value,
                time_added=fields.seconds(taint, "time_added"),
            )
            for taint in spec.taints
        ),
        allocatable=allocatable or capacity,
        capacity=capacity,
        conditions=tuple(
            NodeCondition(
                type=interner.string(condition.type),
                status=interner.string(condition.status),
                reason=interner.string(condition.reason),
                since=fields.seconds(condition, "last_transition_time"),
            )
            for condition in status.conditions
        ),
        images=_images(status.images, interner),
        declared_features=interner.share(tuple(sorted(status.declared_features))),
        heartbeat=next(
            (fields.seconds(each, "last_heartbeat_time") for each in status.conditions if each.type == "Ready"), None
        ),
        addresses=_kubelet_addresses(status.addresses),
        kubelet_port=interner.share(status.daemon_endpoints.kubelet_endpoint.port),
    )


def _kubelet_addresses(messages: Any) -> tuple[str, ...]:
    first: dict[str, str] = {}
    for message in messages:
        if message.type in _KUBELET_ADDRESSES and 0 < len(message.address) <= MAX_HOST_NAME:
            first.setdefault(message.type, message.address)
    return tuple(first[kind] for kind in _KUBELET_ADDRESSES if kind in first)


def _images(messages: Any, interner: Interner) -> ResourceList:
    """Return the image sizes by image name. If a name occurs twice, the first size is used, as in kube-scheduler.

    Most nodes have the same images, so names and sizes are interned, and nodes with equal images share the map.
    """
    images: dict[str, int] = {}
    for message in messages:
        size = interner.share(message.size_bytes)
        for name in message.names:
            images.setdefault(interner.string(name), size)
    return interner.share(FrozenMap(images)) if images else NO_RESOURCES


def project_budget(message: Any, interner: Interner) -> PodDisruptionBudget:
    """Project a PodDisruptionBudget."""
    spec, status = message.spec, message.status
    return PodDisruptionBudget(
        **fields.metadata(PodDisruptionBudget, message, interner),
        selector=fields.bounded_selector(spec, "selector", interner, instead=_EVERY_POD),
        unhealthy_pod_eviction_policy=spec.unhealthy_pod_eviction_policy,
        observed_generation=status.observed_generation,
        disruptions_allowed=status.disruptions_allowed,
        current_healthy=status.current_healthy,
        desired_healthy=status.desired_healthy,
        expected_pods=status.expected_pods,
        disrupted_pods=tuple(sorted(status.disrupted_pods)),
    )


def project_namespace(message: Any, interner: Interner) -> Namespace:
    """Project a namespace, with the label ``kubernetes.io/metadata.name`` that the API server adds."""
    metadata = fields.metadata(Namespace, message, interner)
    labels = FrozenMap({**message.metadata.labels, _METADATA_NAME: metadata["name"]})
    return Namespace(**(metadata | {"labels": labels}))


def project_priority_class(message: Any, interner: Interner) -> PriorityClass:
    """Project a priority class."""
    return PriorityClass(
        **fields.metadata(PriorityClass, message, interner),
        value=message.value,
        global_default=message.global_default,
    )


def project_limit_range(message: Any, interner: Interner) -> LimitRange:
    """Project a LimitRange, with the defaults that the API server sets for a limit that is not stated.

    These are those of k8s.io/kubernetes v1.36 ``SetDefaults_LimitRangeItem``.
    """
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    for number, item in enumerate(message.spec.limits):
        if item.type != "Container":
            continue
        amounts = {
            name: fields.resource_list(getattr(item, name), f"spec.limits[{number}].{name}")
            for name in ("max", "min", "default", "default_request")
        }
        stated = {**amounts["max"], **amounts["default"]}
        limits |= stated
        requests |= {**amounts["min"], **stated, **amounts["default_request"]}
    return LimitRange(
        **fields.metadata(LimitRange, message, interner),
        requests=interner.share(FrozenMap(requests)),
        limits=interner.share(FrozenMap(limits)),
    )


def project_runtime_class(message: Any, interner: Interner) -> RuntimeClass:
    """Project a RuntimeClass."""
    return RuntimeClass(
        **fields.metadata(RuntimeClass, message, interner),
        overhead=fields.resource_list(message.overhead.pod_fixed, "overhead.podFixed"),
        node_selector=fields.labels(message.scheduling.node_selector, interner),
        tolerations=tuple(project_toleration(each, interner) for each in message.scheduling.tolerations),
    )


def project_lease(message: Any, interner: Interner) -> Lease:
    """Project a Lease."""
    spec = message.spec
    return Lease(
        **fields.metadata(Lease, message, interner),
        holder=interner.string(spec.holder_identity),
        duration=spec.lease_duration_seconds,
        renewed=fields.micro_moment(spec.renew_time),
    )


def project_persistent_volume(message: Any, interner: Interner) -> PersistentVolume:
    """Project a PersistentVolume, with the API server's default for the volume mode."""
    spec, annotations = message.spec, message.metadata.annotations
    string, source = interner.string, spec.persistent_volume_source
    kind, disk = persistent_source(source)
    claim = spec.claim_ref if spec.HasField("claim_ref") else None
    return PersistentVolume(
        **fields.metadata(PersistentVolume, message, interner),
        capacity=fields.resource(spec.capacity, "storage", "spec.capacity") or 0,
        access_modes=interner.share(tuple(spec.access_modes)),
        storage_class=string(annotations.get(OLDER_STORAGE_CLASS, spec.storage_class_name)),
        attributes_class=_attributes_class(spec, interner),
        volume_mode=string(spec.volume_mode or "Filesystem"),
        claim=f"{claim.namespace or 'default'}/{claim.name}" if claim is not None else "",
        claim_uid=claim.uid if claim is not None else "",
        node_affinity=_node_affinity(spec, interner),
        source=kind,
        driver=string(source.csi.driver) if kind == "csi" else "",
        handle=source.csi.volume_handle if kind == "csi" else "",
        disk=disk,
        phase=string(message.status.phase or "Pending"),
    )


def _attributes_class(spec: Any, interner: Interner) -> str | None:
    if not spec.HasField("volume_attributes_class_name"):
        return None
    return interner.string(spec.volume_attributes_class_name)


def _node_affinity(spec: Any, interner: Interner) -> NodeSelector | None:
    if not spec.HasField("node_affinity") or not spec.node_affinity.HasField("required"):
        return None
    return interner.share(fields.node_selector(spec.node_affinity.required))


def project_persistent_volume_claim(message: Any, interner: Interner) -> PersistentVolumeClaim:
    """Project a PersistentVolumeClaim, with the API server's default for the volume mode."""
    spec, annotations = message.spec, message.metadata.annotations
    string = interner.string
    storage_class = spec.storage_class_name if spec.HasField("storage_class_name") else None
    if OLDER_STORAGE_CLASS in annotations:
        storage_class = annotations[OLDER_STORAGE_CLASS]
    return PersistentVolumeClaim(
        **fields.metadata(PersistentVolumeClaim, message, interner),
        volume=spec.volume_name,
        bind_completed=BIND_COMPLETED in annotations,
        storage_class=None if storage_class is None else string(storage_class),
        attributes_class=_attributes_class(spec, interner),
        access_modes=interner.share(tuple(spec.access_modes)),
        volume_mode=string(spec.volume_mode or "Filesystem"),
        request=fields.resource(spec.resources.requests, "storage", "spec.resources.requests"),
        selector=fields.bounded_selector(spec, "selector", interner, instead=_NOTHING),
        selected_node=string(annotations[SELECTED_NODE]) if SELECTED_NODE in annotations else None,
        phase=string(message.status.phase or "Pending"),
    )


def project_storage_class(message: Any, interner: Interner) -> StorageClass:
    """Project a StorageClass, with the API server's default for the binding mode."""
    return StorageClass(
        **fields.metadata(StorageClass, message, interner),
        provisioner=interner.string(message.provisioner),
        binding_mode=interner.string(message.volume_binding_mode or "Immediate"),
        allowed_topologies=tuple(
            tuple(
                TopologyRequirement(key=expression.key, values=tuple(expression.values))
                for expression in term.match_label_expressions
            )
            for term in message.allowed_topologies
        ),
    )


def project_csi_node(message: Any, interner: Interner) -> CSINode:
    """Project a CSINode. Its list of drivers is interned, because most nodes have the same drivers."""
    migrated = message.metadata.annotations.get(MIGRATED_PLUGINS, "")
    return CSINode(
        **fields.metadata(CSINode, message, interner),
        drivers=interner.share(tuple(_node_driver(driver) for driver in message.spec.drivers)),
        migrated=interner.share(tuple(migrated.split(","))) if migrated else (),
    )


def _node_driver(message: Any) -> NodeDriver:
    limited = message.HasField("allocatable") and message.allocatable.HasField("count")
    return NodeDriver(name=message.name, limit=message.allocatable.count if limited else None)


def project_csi_driver(message: Any, interner: Interner) -> CSIDriver:
    """Project a CSIDriver."""
    return CSIDriver(
        **fields.metadata(CSIDriver, message, interner),
        storage_capacity=message.spec.storage_capacity,
        required=message.spec.prevent_pod_scheduling_if_missing,
    )


def project_csi_storage_capacity(message: Any, interner: Interner) -> CSIStorageCapacity:
    """Project a CSIStorageCapacity."""
    return CSIStorageCapacity(
        **fields.metadata(CSIStorageCapacity, message, interner),
        storage_class=interner.string(message.storage_class_name),
        node_topology=interner.share(fields.label_selector(message, "node_topology")),
        capacity=fields.quantity(message, "capacity", "capacity"),
        maximum_volume_size=fields.quantity(message, "maximum_volume_size", "maximumVolumeSize"),
    )


def project_volume_attachment(message: Any, interner: Interner) -> VolumeAttachment:
    """Project a VolumeAttachment. ``volume`` is empty for an inline volume, which has no PersistentVolume."""
    spec = message.spec
    return VolumeAttachment(
        **fields.metadata(VolumeAttachment, message, interner),
        attacher=interner.string(spec.attacher),
        node=interner.string(spec.node_name),
        volume=spec.source.persistent_volume_name,
    )


def project_service(message: Any, interner: Interner) -> Service:
    """Project a Service."""
    selector = _map_selector(message.spec.selector, interner)
    return Service(**fields.metadata(Service, message, interner), selector=selector)


def _replication_controller_projector(encode_spec: SpecKey) -> Projector:
    return lambda message, interner: ReplicationController(
        **fields.metadata(ReplicationController, message, interner),
        replicas=_optional(message.spec, "replicas"),
        selector=_map_selector(message.spec.selector, interner),
        template=_present_template(message.spec, interner, encode_spec),
    )


def _replica_set_projector(encode_spec: SpecKey) -> Projector:
    """Create the function that projects a ReplicaSet.

    A large cluster has several ReplicaSets for each Deployment, most of them of previous templates. Their selectors
    differ in the template hash, so keys and values are interned instead of selectors.
    """
    return lambda message, interner: ReplicaSet(
        **fields.metadata(ReplicaSet, message, interner),
        replicas=_optional(message.spec, "replicas"),
        revision=_revision(message.metadata.annotations.get(REVISION, "")),
        selector=_label_selector(message.spec, interner),
        template=_present_template(message.spec, interner, encode_spec),
    )


def _revision(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < _LONGEST_REVISION else 0


_LONGEST_REVISION: Final = 19


def _stateful_set_projector(encode_spec: SpecKey) -> Projector:
    return lambda message, interner: StatefulSet(
        **fields.metadata(StatefulSet, message, interner),
        replicas=_optional(message.spec, "replicas"),
        selector=_label_selector(message.spec, interner),
        template=_present_template(message.spec, interner, encode_spec),
        update_revision=message.status.update_revision,
    )


def _present_template(spec: Any, interner: Interner, encode_spec: SpecKey) -> PodTemplate | None:
    """Return the template of a controller's pods, or ``None`` if it has no containers or needs no pods.

    Most ReplicaSets of a Deployment need none.
    """
    template = spec.template
    if template is None or not template.spec.containers or (spec.HasField("replicas") and not spec.replicas):
        return None
    return _template(template, interner, encode_spec)


def _template(message: Any, interner: Interner, encode_spec: SpecKey) -> PodTemplate:
    node = interner.string(message.spec.node_name)  # encode_spec clears it
    try:
        spec = shared_spec(message.spec, interner, encode_spec)
    except fields.FieldError as error:
        raise fields.FieldError(f"spec.template.{error.path}", error.message) from None
    return interner.share(PodTemplate(pod_labels(message.metadata.labels, interner), spec, node))


def _daemon_set_projector(encode_spec: SpecKey) -> Projector:
    return lambda message, interner: DaemonSet(
        **fields.metadata(DaemonSet, message, interner),
        template=_template(message.spec.template, interner, encode_spec),
        desired=_optional(message.status, "desired_number_scheduled"),
        current=_optional(message.status, "current_number_scheduled"),
    )


def _job_projector(encode_spec: SpecKey) -> Projector:
    """Create the function that projects a Job. Finished Jobs, of which there may be many, create no more pods."""

    def project(message: Any, interner: Interner) -> Job:
        template = message.spec.template
        finished = any(each.type in _FINISHED and each.status == "True" for each in message.status.conditions)
        needed = bool(template.spec.containers) and not finished
        return Job(
            **fields.metadata(Job, message, interner),
            template=_template(template, interner, encode_spec) if needed else None,
        )

    return project


_FINISHED: Final = frozenset({"Complete", "Failed"})


def project_vertical_pod_autoscaler(message: Any, interner: Interner) -> VerticalPodAutoscaler:
    """Project a VerticalPodAutoscaler."""
    target, policy = message.spec.target_ref, message.spec.update_policy
    reference = None if target is None else OwnerReference(target.kind, target.name, api_version=target.api_version)
    return VerticalPodAutoscaler(
        **fields.metadata(VerticalPodAutoscaler, message, interner),
        target_kind="" if reference is None else interner.string(reference.qualified_kind),
        target_name="" if reference is None else reference.name,
        sets_requests=policy is None or policy.update_mode != "Off",
    )


def project_eviction_request(message: Any, interner: Interner) -> PodEvictionRequest:
    """Project an EvictionRequest."""
    pod = message.spec.target.pod
    ended = any(each.type in _ENDED and each.status == "True" for each in message.status.conditions)
    return PodEvictionRequest(
        **fields.metadata(PodEvictionRequest, message, interner),
        pod="" if pod is None else pod.name,
        pod_uid="" if pod is None else pod.uid,
        requester=message.spec.requester,
        active=pod is not None and message.spec.intent == "Eviction" and not ended,
    )


_ENDED: Final = frozenset({"Failed", "TargetEvicted"})


def _optional(message: Any, field: str) -> int | None:
    return getattr(message, field) if message.HasField(field) else None


def _label_selector(spec: Any, interner: Interner) -> LabelSelector | None:
    """Return the selector of an owner, or ``None`` if it exceeds the limits.

    Default spreading then ignores the owner's pods.
    """
    if not spec.HasField("selector") or selector_size(spec.selector) > interner.limits.selector_values:
        return None
    selector = spec.selector
    return LabelSelector(
        match_labels=_labels(selector.match_labels, interner),
        match_expressions=fields.requirements(selector.match_expressions),
    )


def _map_selector(mapping: Mapping[str, str], interner: Interner) -> Labels | None:
    """Return a map selector, or ``None`` if it is empty or exceeds the limits.

    A selector beyond the limits cannot match any pod.
    """
    return _labels(mapping, interner) or None if len(mapping) <= interner.limits.labels else None


def _labels(mapping: Mapping[str, str], interner: Interner) -> Labels:
    string = interner.string
    return FrozenMap({string(key): string(value) for key, value in mapping.items()}) if mapping else NO_LABELS


def projector(kind: str, encode_spec: SpecKey) -> Projector:
    """Return the function that projects a kind.

    Args:
        kind: the name of a type.
        encode_spec: returns the key of a pod spec.

    Raises:
        KeyError: there is no type for the kind.
    """
    if kind == "Pod":
        return lambda message, interner: project_pod(message, interner, encode_spec)
    with_template = _WITH_TEMPLATE.get(kind)
    return _PROJECTORS[kind] if with_template is None else with_template(encode_spec)


_WITH_TEMPLATE: Final[dict[str, Callable[[SpecKey], Projector]]] = {
    "ReplicationController": _replication_controller_projector,
    "ReplicaSet": _replica_set_projector,
    "StatefulSet": _stateful_set_projector,
    "DaemonSet": _daemon_set_projector,
    "Job": _job_projector,
}


_PROJECTORS: Final[dict[str, Projector]] = {
    "Node": project_node,
    "PodDisruptionBudget": project_budget,
    "Namespace": project_namespace,
    "PriorityClass": project_priority_class,
    "LimitRange": project_limit_range,
    "RuntimeClass": project_runtime_class,
    "PersistentVolume": project_persistent_volume,
    "PersistentVolumeClaim": project_persistent_volume_claim,
    "StorageClass": project_storage_class,
    "CSINode": project_csi_node,
    "CSIDriver": project_csi_driver,
    "CSIStorageCapacity": project_csi_storage_capacity,
    "VolumeAttachment": project_volume_attachment,
    "Service": project_service,
    "Lease": project_lease,
    "VerticalPodAutoscaler": project_vertical_pod_autoscaler,
    "PodEvictionRequest": project_eviction_request,
    **machine.PROJECTORS,
}

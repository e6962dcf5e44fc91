"""From a message on the wire to the value that planners read: one projection for protobuf, JSON and YAML.

Every function takes a message (see :mod:`trimtab.kube.wire.fields`) and an :class:`~trimtab.kube.wire.intern.Interner`.
A pod is projected 150,000 times in a large cluster: what is the same in all pods of a template (spec, labels, owners)
is found by a key and not projected again, and the rest is read with as few look-ups as possible.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

import msgspec

from trimtab.kube.frozen import NO_RESOURCES, FrozenMap, ResourceList
from trimtab.kube.objects import (
    KubeObject,
    Lease,
    Namespace,
    Node,
    NodeCondition,
    Pod,
    PodCondition,
    PodDisruptionBudget,
    PodSpec,
    PriorityClass,
    Taint,
)
from trimtab.kube.wire import fields, machine, storage, workload
from trimtab.kube.wire.container_status import container_statuses
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.pod_spec import project_spec
from trimtab.kube.wire.resize import RESIZE_CONDITIONS, with_resized_requests

Key = Callable[[Any], bytes]
"""Gives bytes that are equal for equal specs, and clears of a spec on the wire what is not the template's.

That is ``node_name``, and the names of volumes that are not ephemeral, emptyDir or hostPath.
"""

STANDARD_CONDITIONS: Final = frozenset(
    {"PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"}
)
"""Left out of the conditions of a pod that is ready while they are True, as they are on every healthy pod."""

_METADATA_NAME: Final = "kubernetes.io/metadata.name"


def project_pod(
    message: Any, interner: Interner, encode_spec: Key, check_spec: Callable[[Any], None] | None = None
) -> Pod:
    """Project a pod.

    Args:
        message: the pod; its spec is changed on the way.
        interner: shares the spec and what else recurs.
        encode_spec: the codec's way to tell equal specs; clears what differs between pods of one template.
        check_spec: called with a spec that is new, before it is projected; raises FieldError.

    Raises:
        FieldError: where the name is missing or a quantity cannot be read, or of ``check_spec``.
    """
    metadata, wire_spec, status = message.metadata, message.spec, message.status
    string = interner.string
    node = string(wire_spec.node_name)  # read before the key is made
    # A digest and not the bytes themselves: DaemonSets and StatefulSets make a spec per pod, and 0.7 KiB each add up.
    key = hashlib.blake2b(encode_spec(wire_spec), digest_size=16).digest()
    spec = interner.spec(key, lambda: _new_spec(wire_spec, interner, check_spec))
    ready, ready_since, conditions = pod_conditions(status.conditions, interner) if status.conditions else _NOT_READY
    restarts, init_restarts, states = container_statuses(status, interner)
    if conditions or status.qos_class != spec.qos:
        spec = with_status(spec, status, conditions, interner)
    return Pod(
        namespace=string(metadata.namespace or "default"),
        name=fields.required(metadata.name, "metadata.name"),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        labels=fields.labels(metadata.labels, interner),
        annotations=fields.kept_annotations(metadata.annotations, interner),
        owners=fields.owners(metadata.owner_references, interner),
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
    )


def _new_spec(message: Any, interner: Interner, check: Callable[[Any], None] | None) -> PodSpec:
    if check is not None:
        check(message)
    return project_spec(message, interner)


_Conditions = tuple[bool, float | None, tuple[PodCondition, ...]]
_NOT_READY: Final[_Conditions] = (False, None, ())


def pod_conditions(messages: Any, interner: Interner) -> _Conditions:
    """Whether the pod is ready, since when, and the conditions that say something."""
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
        message=interner.string(message.message),
        since=fields.moment(message.last_transition_time),
    )


def with_status(spec: PodSpec, status: Any, conditions: tuple[PodCondition, ...], interner: Interner) -> PodSpec:
    """The spec with what only the status knows: the class the API server recorded, and resources being resized."""
    if status.qos_class and status.qos_class != spec.qos:
        spec = interner.share(msgspec.structs.replace(spec, qos=interner.string(status.qos_class)))
    if any(condition.type in RESIZE_CONDITIONS for condition in conditions):
        spec = interner.share(with_resized_requests(spec, status, conditions))
    return spec


def project_node(message: Any, interner: Interner) -> Node:
    """Project a node; without ``allocatable`` it is the capacity, as the API server has it.

    Raises:
        FieldError: where the name is missing or a quantity cannot be read.
    """
    metadata, spec, status = message.metadata, message.spec, message.status
    capacity = interner.share(fields.resource_list(status.capacity, "status.capacity"))
    allocatable = interner.share(fields.resource_list(status.allocatable, "status.allocatable"))
    return Node(
        name=interner.string(fields.required(metadata.name, "metadata.name")),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        labels=fields.labels(metadata.labels, interner),
        annotations=fields.kept_annotations(metadata.annotations, interner),
        created=fields.seconds(metadata, "creation_timestamp"),
        deleted=fields.seconds(metadata, "deletion_timestamp"),
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
    )


def _images(messages: Any, interner: Interner) -> ResourceList:
    """Every name of every image with the image's size; of a name that is there twice the first, as in kube-scheduler.

    Nodes hold much the same images: names and sizes are shared, and all of it by nodes that hold the same.
    """
    images: dict[str, int] = {}
    for message in messages:
        size = interner.share(message.size_bytes)
        for name in message.names:
            images.setdefault(interner.string(name), size)
    return interner.share(FrozenMap(images)) if images else NO_RESOURCES


def project_budget(message: Any, interner: Interner) -> PodDisruptionBudget:
    """Project a disruption budget.

    Raises:
        FieldError: where the name is missing.
    """
    metadata, spec, status = message.metadata, message.spec, message.status
    return PodDisruptionBudget(
        namespace=interner.string(metadata.namespace or "default"),
        name=fields.required(metadata.name, "metadata.name"),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        labels=fields.labels(metadata.labels, interner),
        generation=metadata.generation,
        observed_generation=status.observed_generation,
        selector=fields.label_selector(spec, "selector"),
        unhealthy_pod_eviction_policy=spec.unhealthy_pod_eviction_policy,
        disruptions_allowed=status.disruptions_allowed,
        current_healthy=status.current_healthy,
        desired_healthy=status.desired_healthy,
        expected_pods=status.expected_pods,
        disrupted_pods=tuple(sorted(status.disrupted_pods)),
    )


def project_namespace(message: Any, interner: Interner) -> Namespace:
    """Project a namespace, with the label that the API server gives every namespace.

    Raises:
        FieldError: where the name is missing.
    """
    metadata = message.metadata
    name = fields.required(metadata.name, "metadata.name")
    return Namespace(
        name=interner.string(name),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        labels=FrozenMap({**metadata.labels, _METADATA_NAME: name}),
        annotations=fields.kept_annotations(metadata.annotations, interner),
    )


def project_priority_class(message: Any, interner: Interner) -> PriorityClass:
    """Project a priority class.

    Raises:
        FieldError: where the name is missing.
    """
    metadata = message.metadata
    return PriorityClass(
        name=interner.string(fields.required(metadata.name, "metadata.name")),
        value=message.value,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        global_default=message.global_default,
    )


def project_lease(message: Any, interner: Interner) -> Lease:
    """Project a Lease.

    Raises:
        FieldError: where the name is missing.
    """
    metadata, spec = message.metadata, message.spec
    return Lease(
        namespace=interner.string(metadata.namespace or "default"),
        name=interner.string(fields.required(metadata.name, "metadata.name")),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        holder=interner.string(spec.holder_identity),
        duration=spec.lease_duration_seconds,
        renewed=fields.micro_moment(spec.renew_time),
    )


def projector(kind: str, encode_spec: Key) -> Callable[[Any, Interner], KubeObject]:
    """The projection of a kind, for a codec that keys specs by ``encode_spec``.

    Raises:
        KeyError: the kind is none of those that trimtab reads.
    """
    if kind == "Pod":
        return lambda message, interner: project_pod(message, interner, encode_spec)
    return _PROJECTORS[kind]


_PROJECTORS: Final[dict[str, Callable[[Any, Interner], KubeObject]]] = {
    "Node": project_node,
    "PodDisruptionBudget": project_budget,
    "Namespace": project_namespace,
    "PriorityClass": project_priority_class,
    "PersistentVolume": storage.project_persistent_volume,
    "PersistentVolumeClaim": storage.project_persistent_volume_claim,
    "StorageClass": storage.project_storage_class,
    "CSINode": storage.project_csi_node,
    "CSIDriver": storage.project_csi_driver,
    "CSIStorageCapacity": storage.project_csi_storage_capacity,
    "VolumeAttachment": storage.project_volume_attachment,
    "Service": workload.project_service,
    "ReplicationController": workload.project_replication_controller,
    "ReplicaSet": workload.project_replica_set,
    "StatefulSet": workload.project_stateful_set,
    "DaemonSet": workload.project_daemon_set,
    "Lease": project_lease,
    **machine.PROJECTORS,
}

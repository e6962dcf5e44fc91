"""What is checked of each kind; of pods, which are many, :mod:`trimtab.kube.wire.validation.validator` knows more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trimtab.kube.wire import json
from trimtab.kube.wire.annotations import meaningful
from trimtab.kube.wire.fields import FieldError
from trimtab.kube.wire.validation import storage
from trimtab.kube.wire.validation.checks import (
    COUNT32,
    COUNT64,
    INT32,
    INT64,
    Check,
    Shape,
    each,
    given,
    one_of,
)
from trimtab.kube.wire.validation.names import ANNOTATION_KEY, DNS_LABEL, PATH_SEGMENT, SUBDOMAIN, check_labels
from trimtab.kube.wire.validation.pod import POD_SPEC
from trimtab.kube.wire.validation.resources import AMOUNTS
from trimtab.kube.wire.validation.scheduling import TAINTS
from trimtab.kube.wire.validation.selectors import LABEL_SELECTOR

HIGHEST_USER_PRIORITY: Final = 1_000_000_000
"""What a class may be worth at most; those of the system, whose names begin with ``system-``, may be worth more."""


def check_annotations(annotations: Mapping[str, str]) -> None:
    """The keys of the annotations that somebody reads."""
    for key in meaningful(annotations.items()):
        ANNOTATION_KEY(key)


def _one_controller(references: Any) -> None:
    first = None
    for index, reference in enumerate(references):
        if not reference.controller or reference == first:  # one that is there twice the API server takes once
            continue
        if first is not None:
            owners = f"{first.kind}/{first.name} and of {reference.kind}/{reference.name}"
            raise FieldError(f"[{index}].controller", f"must be true of one owner only, but is of {owners}")
        first = reference


_OWNER: Final = Shape(
    json.OwnerReference, needs="kind name", kind=given("the owner's kind"), name=given("the owner's name")
)
_EACH_OWNER: Final = each(_OWNER)


def check_owners(references: Any) -> None:
    """``metadata.ownerReferences``."""
    _EACH_OWNER(references)
    _one_controller(references)


def _object(
    kind: str, *, name: Check = SUBDOMAIN, needs: str = "", also: Check | None = None, **checks: Check
) -> Shape:
    metadata = Shape(
        json.ObjectMeta,
        name=name,
        namespace=DNS_LABEL,
        generation=COUNT64,
        labels=check_labels,
        annotations=check_annotations,
        owner_references=check_owners,
    )
    return Shape(getattr(json, kind), metadata=metadata, also=[also] if also else [], needs=needs, **checks)


def _images(images: Any) -> None:
    """Sizes of images: nodes have fifty each, so they are looked at one by one only where one is wrong."""
    if max(abs(image.size_bytes) for image in images) >= 2**63:
        each(Shape(json.ContainerImage, size_bytes=INT64))(images)


def _user_priority(message: Any) -> None:
    if message.value > HIGHEST_USER_PRIORITY and not message.metadata.name.startswith("system-"):
        raise FieldError("value", f"must be at most {HIGHEST_USER_PRIORITY}, not {message.value}: more is the system's")


def _not_empty(selector: Any) -> None:
    LABEL_SELECTOR(selector)
    if not selector.match_labels and not selector.match_expressions:
        raise FieldError("", "must not be empty: it would select every pod of the namespace")


_MACHINE_SPEC: Final = Shape(json.MachineSpec, metadata=Shape(json.ObjectMeta, labels=check_labels), taints=TAINTS)
_MACHINE_SET_SPEC: Final = Shape(
    json.MachineSetSpec,
    replicas=COUNT32,
    template=Shape(json.MachineTemplateSpec, metadata=Shape(json.ObjectMeta, labels=check_labels), spec=_MACHINE_SPEC),
)

KINDS: Final[dict[str, Shape]] = {
    "Node": _object(
        "Node",
        spec=Shape(json.NodeSpec, taints=TAINTS),
        status=Shape(json.NodeStatus, capacity=AMOUNTS, allocatable=AMOUNTS, images=_images),
    ),
    "Namespace": _object("Namespace", name=DNS_LABEL),
    "PodDisruptionBudget": _object(
        "PodDisruptionBudget",
        name=PATH_SEGMENT,
        spec=Shape(
            json.PodDisruptionBudgetSpec,
            selector=LABEL_SELECTOR,
            unhealthy_pod_eviction_policy=one_of("IfHealthyBudget", "AlwaysAllow"),
        ),
        status=Shape(
            json.PodDisruptionBudgetStatus,
            observed_generation=COUNT64,
            disruptions_allowed=COUNT32,
            current_healthy=COUNT32,
            desired_healthy=COUNT32,
            expected_pods=COUNT32,
        ),
    ),
    "PriorityClass": _object("PriorityClass", value=INT32, also=_user_priority),
    "PersistentVolume": _object(
        "PersistentVolume", spec=storage.PERSISTENT_VOLUME_SPEC, status=storage.PERSISTENT_VOLUME_STATUS
    ),
    "PersistentVolumeClaim": _object(
        "PersistentVolumeClaim",
        spec=storage.PERSISTENT_VOLUME_CLAIM_SPEC,
        status=storage.PERSISTENT_VOLUME_CLAIM_STATUS,
    ),
    "StorageClass": _object(
        "StorageClass",
        needs="provisioner",
        provisioner=storage.PROVISIONER,
        volume_binding_mode=storage.BINDING_MODE,
        allowed_topologies=storage.ALLOWED_TOPOLOGIES,
    ),
    "CSINode": _object("CSINode", spec=storage.CSI_NODE_SPEC),
    "CSIDriver": _object("CSIDriver"),
    "CSIStorageCapacity": _object(
        "CSIStorageCapacity",
        needs="storage_class_name",
        node_topology=LABEL_SELECTOR,
        storage_class_name=SUBDOMAIN,
        capacity=storage.FREE,
        maximum_volume_size=storage.FREE,
    ),
    "VolumeAttachment": _object("VolumeAttachment", spec=storage.VOLUME_ATTACHMENT_SPEC),
    "Service": _object("Service", name=DNS_LABEL, spec=Shape(json.ServiceSpec, selector=check_labels)),
    "ReplicationController": _object(
        "ReplicationController", spec=Shape(json.ReplicationControllerSpec, selector=check_labels)
    ),
    "ReplicaSet": _object("ReplicaSet", spec=Shape(json.ReplicaSetSpec, selector=_not_empty)),
    "StatefulSet": _object("StatefulSet", spec=Shape(json.StatefulSetSpec, selector=_not_empty)),
    "DaemonSet": _object(
        "DaemonSet",
        spec=Shape(
            json.DaemonSetSpec,
            template=Shape(json.PodTemplateSpec, metadata=Shape(json.ObjectMeta, labels=check_labels), spec=POD_SPEC),
        ),
    ),
    "Lease": _object("Lease", spec=Shape(json.LeaseSpec, lease_duration_seconds=COUNT32)),
    **{kind: _object(kind, spec=_MACHINE_SPEC) for kind in ("Machine", "ClusterMachine")},
    **{
        kind: _object(kind, spec=_MACHINE_SET_SPEC)
        for kind in ("MachineSet", "ClusterMachineSet", "MachineDeployment", "MachinePool")
    },
}
"""All kinds that decode to values but pods."""

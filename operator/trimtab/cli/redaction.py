"""What of an object goes into a snapshot file: all that planners read, and nothing that must not be shared.

Snapshots are attached to issues and handed around. So containers keep a list of allowed fields instead of losing a
list of forbidden ones: what a later Kubernetes adds stays out until somebody reads it. Environment, commands,
arguments, probes and hooks are where people put passwords and tokens; planners read none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from trimtab.kube.wire.machine import SIZES

Manifest = dict[str, Any]

CONTAINER: Final = frozenset({"name", "image", "ports", "resources", "resizePolicy", "restartPolicy"})
"""What is kept of a container."""

CONTAINER_STATUS: Final = frozenset(
    {"name", "ready", "started", "restartCount", "resources", "allocatedResources", "state", "lastState"}
)
CONTAINER_STATE: Final = frozenset({"reason", "exitCode", "startedAt", "finishedAt"})
"""Of a container's state; ``message`` is left out, as it may be the tail of the container's log."""

UNREAD_VOLUMES: Final = frozenset({"configMap", "secret", "projected", "downwardAPI"})
"""Volumes that no rule reads; they go whole."""

PRIVATE_VOLUME_FIELDS: Final = frozenset({"volumeAttributes", "options", "repository"})
"""Of CSI, FlexVolume and gitRepo volumes: free text for a driver, or a URL that may hold a token."""

SPECS: Final[dict[str, frozenset[str]]] = {
    "PersistentVolumeClaim": frozenset(
        {
            "accessModes",
            "resources",
            "selector",
            "storageClassName",
            "volumeAttributesClassName",
            "volumeMode",
            "volumeName",
        }
    ),
    "CSINode": frozenset({"drivers"}),
    "CSIDriver": frozenset({"attachRequired", "storageCapacity"}),
    "VolumeAttachment": frozenset({"attacher", "nodeName", "source"}),
    "Service": frozenset({"selector"}),
    "ReplicationController": frozenset({"replicas", "selector"}),
    "ReplicaSet": frozenset({"replicas", "selector"}),
    "StatefulSet": frozenset({"replicas", "selector"}),
}
"""What is kept of the specs of these kinds; of their status the phase is."""

PERSISTENT_VOLUME: Final = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "nodeAffinity",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)
"""What is kept of a PersistentVolume's spec beside its source."""

PERSISTENT_VOLUME_OTHERS: Final = frozenset({"mountOptions", "persistentVolumeReclaimPolicy"})
"""What of a PersistentVolume's spec is neither kept nor a source."""

PERSISTENT_SOURCE: Final = frozenset({"driver", "volumeHandle", "pdName", "volumeID", "diskURI", "kind", "readOnly"})
"""What is kept of a PersistentVolume's source, beside which one it is: not where it is mounted from, nor as whom."""

STORAGE_CLASS: Final = frozenset(
    {"apiVersion", "kind", "metadata", "provisioner", "volumeBindingMode", "allowedTopologies", "reclaimPolicy"}
)
"""What is kept of a StorageClass: not its parameters, which are free text for a driver."""

MACHINE_SPEC: Final = frozenset({"providerID"})
"""What is kept of a Machine's spec beside what its node gets: labels and taints."""

_FAILURE: Final = frozenset({"errorReason", "errorMessage", "failureReason", "failureMessage", "deprecated"})
MACHINE_STATUS: Final = frozenset({"nodeRef", "phase"}) | _FAILURE
MACHINE_SET_SPEC: Final = frozenset(
    {"replicas", "selector", "deletePolicy", "deletion", "paused", "authoritativeAPI", "providerIDList"}
)
MACHINE_SET_STATUS: Final = frozenset({"replicas", "readyReplicas", "authoritativeAPI", "nodeRefs"}) | _FAILURE

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""The manifest as it was applied, with all that is left out here."""


def redact(kind: str, item: Manifest) -> Manifest:
    """Strip an object in place and return it.

    Args:
        kind: of the object; lists of the API server leave it out of their items.
        item: the object as decoded JSON.
    """
    _metadata(item.get("metadata") or {})
    strip = _KINDS.get(kind)
    if strip is not None:
        strip(item)
    return item


def _metadata(metadata: Manifest) -> None:
    metadata.pop("managedFields", None)
    metadata.pop("selfLink", None)
    annotations = metadata.get("annotations")
    if annotations:
        annotations.pop(LAST_APPLIED, None)
        if not annotations:
            del metadata["annotations"]


def _pod(pod: Manifest) -> None:
    spec = pod.get("spec") or {}
    spec.pop("ephemeralContainers", None)  # they request nothing
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [_only(each, CONTAINER) for each in spec[field] or ()]
    if "volumes" in spec:
        spec["volumes"] = [_volume(each) for each in spec["volumes"] or () if not UNREAD_VOLUMES & each.keys()]
    status = pod.get("status") or {}
    for field in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        if field in status:
            status[field] = [_container_status(each) for each in status[field] or ()]


def _persistent_volume(volume: Manifest) -> None:
    spec = volume.get("spec") or {}
    for field in list(spec):
        if field in PERSISTENT_VOLUME_OTHERS:
            del spec[field]
        elif field not in PERSISTENT_VOLUME and isinstance(spec[field], dict):
            spec[field] = _only(spec[field], PERSISTENT_SOURCE)
    _status(volume)


def _storage_class(storage_class: Manifest) -> None:
    for field in storage_class.keys() - STORAGE_CLASS:
        del storage_class[field]


def _spec_alone(kept: frozenset[str]) -> Callable[[Manifest], None]:
    """Strips all of an object but these fields of its spec, and the phase."""

    def strip(item: Manifest) -> None:
        if "spec" in item:
            item["spec"] = _only(item["spec"] or {}, kept)
        _status(item)

    return strip


def _volume_attachment(attachment: Manifest) -> None:
    _spec_alone(SPECS["VolumeAttachment"])(attachment)
    source = (attachment.get("spec") or {}).get("source")
    if source:
        source.pop("inlineVolumeSpec", None)


def _status(item: Manifest) -> None:
    if "status" in item:
        item["status"] = _only(item["status"] or {}, frozenset({"phase"}))


def _volume(volume: Manifest) -> Manifest:
    return {
        key: {name: field for name, field in value.items() if name not in PRIVATE_VOLUME_FIELDS}
        if isinstance(value, dict)
        else value
        for key, value in volume.items()
    }


def _container_status(status: Manifest) -> Manifest:
    kept = _only(status, CONTAINER_STATUS)
    for field in ("state", "lastState"):
        if field in kept:
            kept[field] = {name: _only(state or {}, CONTAINER_STATE) for name, state in (kept[field] or {}).items()}
    return kept


def _only(value: Manifest, fields: frozenset[str]) -> Manifest:
    return {key: field for key, field in value.items() if key in fields}


def _daemon_set(daemon_set: Manifest) -> None:
    """What is kept of a DaemonSet: the pods that it makes, stripped as pods are."""
    template = (daemon_set.get("spec") or {}).get("template") or {}
    _pod(template)
    labels = (template.get("metadata") or {}).get("labels")
    metadata = {"labels": labels} if labels else {}
    daemon_set["spec"] = {"template": {"metadata": metadata, "spec": template.get("spec") or {}}}
    _status(daemon_set)


def _machine_template(spec: Manifest) -> Manifest:
    kept = _only(spec, frozenset({"taints"}))
    metadata = _only(spec.get("metadata") or {}, frozenset({"labels"}))
    return kept | ({"metadata": metadata} if metadata else {})


def _machine(machine: Manifest) -> None:
    """What is kept of a Machine: neither its provider's settings, nor its addresses."""
    spec, status = machine.get("spec") or {}, machine.get("status") or {}
    machine["spec"] = _only(spec, MACHINE_SPEC) | _machine_template(spec)
    machine["status"] = _only(status, MACHINE_STATUS)


def _machine_type(spec: Manifest) -> Manifest:
    """What of a template says how large a machine is: the provider's object by name, or those fields alone."""
    kept = {}
    reference, provider = spec.get("infrastructureRef"), spec.get("providerSpec")
    if isinstance(reference, dict):
        kept["infrastructureRef"] = _only(reference, frozenset({"kind", "name"}))
    if isinstance(provider, dict) and isinstance(provider.get("value"), dict):
        kept["providerSpec"] = {"value": _only(provider["value"], SIZES)}
    return kept


def _machine_set(machine_set: Manifest) -> None:
    """What is kept of what makes machines: of the provider's settings how large a machine is, and no user data."""
    spec, status = machine_set.get("spec") or {}, machine_set.get("status") or {}
    template = spec.get("template") or {}
    labels = _only(template.get("metadata") or {}, frozenset({"labels"}))
    made = template.get("spec") or {}
    kept = {"metadata": labels, "spec": _machine_template(made) | _machine_type(made)}
    machine_set["spec"] = _only(spec, MACHINE_SET_SPEC) | {"template": kept}
    machine_set["status"] = _only(status, MACHINE_SET_STATUS)


_KINDS: Final[dict[str, Callable[[Manifest], None]]] = {
    **{kind: _spec_alone(kept) for kind, kept in SPECS.items()},
    "Pod": _pod,
    "PersistentVolume": _persistent_volume,
    "StorageClass": _storage_class,
    "VolumeAttachment": _volume_attachment,
    "DaemonSet": _daemon_set,
    "Machine": _machine,
    **dict.fromkeys(("MachineSet", "MachineDeployment", "MachinePool"), _machine_set),
}

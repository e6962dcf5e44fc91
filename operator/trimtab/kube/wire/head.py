"""What says of an object which one it is: kinds and their groups, versions, names."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from trimtab.kube.errors import InputError
from trimtab.kube.objects import KubeObject, LabelSelector, PodDisruptionBudget

GROUPS: Final = {
    "Pod": "",
    "Node": "",
    "Namespace": "",
    "PodDisruptionBudget": "policy",
    "PriorityClass": "scheduling.k8s.io",
    "PersistentVolume": "",
    "PersistentVolumeClaim": "",
    "StorageClass": "storage.k8s.io",
    "CSINode": "storage.k8s.io",
    "CSIDriver": "storage.k8s.io",
    "CSIStorageCapacity": "storage.k8s.io",
    "VolumeAttachment": "storage.k8s.io",
    "Service": "",
    "ReplicationController": "",
    "ReplicaSet": "apps",
    "StatefulSet": "apps",
    "DaemonSet": "apps",
    "Lease": "coordination.k8s.io",
    "MachineSet": "machine.openshift.io",
    "Machine": "machine.openshift.io",
    "MachineDeployment": "cluster.x-k8s.io",
    "ClusterMachineSet": "cluster.x-k8s.io",
    "MachinePool": "cluster.x-k8s.io",
    "ClusterMachine": "cluster.x-k8s.io",
}
"""The types that objects decode to, with their API groups.

A type is named as its kind; where two groups have a kind of one name, :data:`_KINDS` says which kind a type is.
"""

_KINDS: Final = {"ClusterMachineSet": "MachineSet", "ClusterMachine": "Machine"}
_TYPES: Final = {
    kind: {GROUPS[name]: name for name in GROUPS if _KINDS.get(name, name) == kind}
    for kind in (_KINDS.get(name, name) for name in GROUPS)
}
"""The types of a kind by API group; the first is meant where an object does not say its group."""

JSON_ONLY: Final = frozenset(
    {"DaemonSet", *(name for name, group in GROUPS.items() if group in ("machine.openshift.io", "cluster.x-k8s.io"))}
)
"""Types that are never asked for in protobuf: API servers have none of custom resources, and DaemonSets are few."""

_VERSIONS: Final = {"machine.openshift.io": ("v1beta1",), "cluster.x-k8s.io": ("v1beta2", "v1beta1")}
"""The versions of groups that have no v1."""

_OLDER: Final = {
    "PodDisruptionBudget": ("v1beta1",),
    "PriorityClass": ("v1beta1", "v1alpha1"),
    "StorageClass": ("v1beta1",),
    "CSINode": ("v1beta1",),
    "CSIDriver": ("v1beta1",),
    "CSIStorageCapacity": ("v1beta1", "v1alpha1"),
    "VolumeAttachment": ("v1beta1", "v1alpha1"),
    "ReplicaSet": ("v1beta2",),
    "StatefulSet": ("v1beta2", "v1beta1"),
    "DaemonSet": ("v1beta2",),
    "Lease": ("v1beta1",),
}
"""Versions of the same shape that older clusters write into files; the last of them went with Kubernetes 1.27."""

_NAMESPACED: Final = frozenset(
    {
        "Pod",
        "PodDisruptionBudget",
        "PersistentVolumeClaim",
        "CSIStorageCapacity",
        "Service",
        "ReplicationController",
        "ReplicaSet",
        "StatefulSet",
        "DaemonSet",
        "Lease",
        "MachineSet",
        "Machine",
        "MachineDeployment",
        "MachinePool",
    }
)
TOO_DEEP: Final = "is nested too deeply, or is a part of itself"


def kind_of(name: str) -> str:
    """The kind of a type."""
    return _KINDS.get(name, name)


class Head(Struct, rename="camel", gc=False):
    """What says of an object which one it is; as lenient as can be, for it also names objects that are broken."""

    api_version: Any = ""
    kind: Any = ""
    metadata: Any = None

    @property
    def name(self) -> str:
        """``namespace/name``, or what there is of it."""
        metadata = self.metadata if isinstance(self.metadata, dict) else {}
        namespace = metadata.get("namespace") or ("default" if self.kind in _NAMESPACED else "")
        name = metadata.get("name") or metadata.get("generateName") or ""
        return f"{namespace}/{name}" if namespace and name else str(name)

    @property
    def label(self) -> str:
        """``Kind/namespace/name``, as errors name objects."""
        return f"{self.kind}/{self.name}" if self.name else str(self.kind)

    @property
    def type_name(self) -> str:
        """The type that this decodes to, ``""`` if none. A file may leave the API version out.

        Raises:
            InputError: it is of one of the kinds in a version that is not known: to leave out a budget, say, would be
                worse.
        """
        types = _TYPES.get(self.kind) if isinstance(self.kind, str) else None
        if types is None:
            return ""
        if not self.api_version:
            return next(iter(types.values()))
        group, _, version = str(self.api_version).rpartition("/")
        found = types.get(group)
        if found is None:
            return ""
        versions = (*_VERSIONS.get(group, ("v1",)), *_OLDER.get(found, ()))
        if version in versions:
            return found
        prefix = f"{group}/" if group else ""
        allowed = " or ".join(prefix + each for each in versions)
        raise InputError(f"must be {allowed}, not {self.api_version}", object=self.label, field="apiVersion")

    def settled(self, value: KubeObject) -> KubeObject:
        """The value as its API version means it: in policy/v1beta1 an empty selector selects nothing."""
        if (
            isinstance(value, PodDisruptionBudget)
            and self.api_version == "policy/v1beta1"
            and value.selector == LabelSelector()
        ):
            return msgspec.structs.replace(value, selector=None)
        return value


_HEAD: Final = msgspec.json.Decoder(Head)


def decode_head(raw: bytes | msgspec.Raw) -> Head:
    """Decode only what says which object it is.

    Raises:
        InputError: this is no JSON object.
    """
    try:
        return _HEAD.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is not an object: {error}") from None
    except RecursionError:
        raise InputError(TOO_DEEP) from None

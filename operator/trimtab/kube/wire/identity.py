"""The identity of objects: their kinds with groups and versions, and their names."""

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
    "LimitRange": "",
    "RuntimeClass": "node.k8s.io",
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
    "Job": "batch",
    "VerticalPodAutoscaler": "autoscaling.k8s.io",
    "PodEvictionRequest": "lifecycle.k8s.io",
    "Lease": "coordination.k8s.io",
    "MachineSet": "machine.openshift.io",
    "Machine": "machine.openshift.io",
    "MachineDeployment": "cluster.x-k8s.io",
    "ClusterMachineSet": "cluster.x-k8s.io",
    "MachinePool": "cluster.x-k8s.io",
    "ClusterMachine": "cluster.x-k8s.io",
}
"""The API groups of all types to which objects decode, by type name.

The name of a type is its kind. If two groups have the same kind, :data:`_KINDS` maps the type name to the kind.
"""

_KINDS: Final = {
    "ClusterMachineSet": "MachineSet",
    "ClusterMachine": "Machine",
    "PodEvictionRequest": "EvictionRequest",
}
_TYPES: Final = {
    kind: {GROUPS[name]: name for name in GROUPS if _KINDS.get(name, name) == kind}
    for kind in (_KINDS.get(name, name) for name in GROUPS)
}
"""The types of kinds that exist in several API groups, by group.

An object without an API version has the first type.
"""

MACHINES: Final = frozenset(
    name for name, group in GROUPS.items() if group in ("machine.openshift.io", "cluster.x-k8s.io")
)
"""The types of node groups and machines."""

CUSTOM: Final = MACHINES | {"VerticalPodAutoscaler", "PodEvictionRequest"}
"""The types that are custom resources of other projects, or of an API group that many servers do not serve."""

JSON_ONLY: Final = CUSTOM | {"DaemonSet"}
"""The types that are requested as JSON: custom resources have no protobuf encoding, and clusters have few
DaemonSets."""

_VERSIONS: Final = {
    "machine.openshift.io": ("v1beta1",),
    "cluster.x-k8s.io": ("v1beta2", "v1beta1"),
    "lifecycle.k8s.io": ("v1alpha1",),
}
"""The API versions of groups that have no v1."""

_OLDER_VERSIONS: Final = {
    "PodDisruptionBudget": ("v1beta1",),
    "PriorityClass": ("v1beta1", "v1alpha1"),
    "RuntimeClass": ("v1beta1",),
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
"""Older versions with the same fields, for files of older clusters. The last of them was removed in Kubernetes 1.27."""

_NAMESPACED: Final = frozenset(
    {
        "Pod",
        "PodDisruptionBudget",
        "LimitRange",
        "PersistentVolumeClaim",
        "CSIStorageCapacity",
        "Service",
        "ReplicationController",
        "ReplicaSet",
        "StatefulSet",
        "DaemonSet",
        "Job",
        "VerticalPodAutoscaler",
        "EvictionRequest",
        "Lease",
        "MachineSet",
        "Machine",
        "MachineDeployment",
        "MachinePool",
    }
)
TOO_DEEP: Final = "is nested too deeply, or is a part of itself"


def kind_of(name: str) -> str:
    """Return the Kubernetes kind of an object type by the name of its class, for example ``Pod``."""
    return _KINDS.get(name, name)


class ObjectIdentity(Struct, rename="camel", gc=False):
    """The identity of an object. It is decoded leniently, because errors also need the names of invalid objects."""

    api_version: Any = ""
    kind: Any = ""
    metadata: Any = None

    @property
    def name(self) -> str:
        """Return ``namespace/name``, or only the name or the namespace if the object lacks the other."""
        metadata = self.metadata if isinstance(self.metadata, dict) else {}
        namespace = metadata.get("namespace") or ("default" if self.kind in _NAMESPACED else "")
        name = metadata.get("name") or metadata.get("generateName") or ""
        return f"{namespace}/{name}" if namespace and name else str(name)

    @property
    def revision(self) -> tuple[str, str] | None:
        """Return the uid and the resource version, or ``None`` if the object lacks one of them."""
        metadata = self.metadata if isinstance(self.metadata, dict) else {}
        uid, version = metadata.get("uid"), metadata.get("resourceVersion")
        return (str(uid), str(version)) if uid and version else None

    @property
    def label(self) -> str:
        """Return ``Kind/namespace/name``, for error messages."""
        return f"{self.kind}/{self.name}" if self.name else str(self.kind)

    @property
    def type_name(self) -> str:
        """Return the name of the type that the object decodes to, or ``""`` if there is none.

        A file may omit the API version.

        Raises:
            InputError: the version of a known kind is unknown. Ignoring such an object, for example a
                PodDisruptionBudget, would be worse than an error.
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
        versions = (*_VERSIONS.get(group, ("v1",)), *_OLDER_VERSIONS.get(found, ()))
        if version in versions:
            return found
        prefix = f"{group}/" if group else ""
        allowed = " or ".join(prefix + each for each in versions)
        raise InputError(f"must be {allowed}, not {self.api_version}", object=self.label, field="apiVersion")

    def adjusted_to_version(self, value: KubeObject) -> KubeObject:
        """Return the decoded object with differences of its API version corrected.

        In policy/v1beta1, an empty selector selects nothing.
        """
        if (
            isinstance(value, PodDisruptionBudget)
            and self.api_version == "policy/v1beta1"
            and value.selector == LabelSelector()
        ):
            return msgspec.structs.replace(value, selector=None)
        return value


_NODE_GROUPS: Final = frozenset({"MachineSet", "MachineDeployment", "MachinePool"})


def is_unread_node_group(identity: ObjectIdentity) -> bool:
    """Return whether an object is a node group of an API group that is not read, such as cluster.k8s.io.

    OpenShift Hive's MachinePool configures an installation and is not a node group.
    """
    if identity.kind not in _NODE_GROUPS or not identity.api_version:
        return False
    group = str(identity.api_version).rpartition("/")[0]
    return group not in (*_TYPES[identity.kind], "hive.openshift.io")


_HEAD: Final = msgspec.json.Decoder(ObjectIdentity)


def decode_identity(raw: bytes | msgspec.Raw) -> ObjectIdentity:
    """Decode only the identity of an object.

    Raises:
        InputError: this is not a JSON object.
    """
    try:
        return _HEAD.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is not an object: {error}") from None
    except RecursionError:
        raise InputError(TOO_DEEP) from None

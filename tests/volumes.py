"""Builders of volumes, claims and objects of storage.k8s.io; tests import them from :mod:`tests.builders`."""

from __future__ import annotations

from typing import Any, Self

from tests.building import HOSTNAME, Builder, expression
from trimtab.kube.objects import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)


class PersistentVolumeBuilder(Builder):
    """An available ReadWriteOnce volume of 10Gi without a class, of the CSI driver ``csi.example``."""

    def __init__(self, name: str) -> None:
        super().__init__("v1", "PersistentVolume", name)
        self._manifest["spec"] = {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "csi.example", "volumeHandle": name},
        }
        self._manifest["status"] = {"phase": "Available"}

    def source(self, kind: str, /, **source: Any) -> Self:
        """Set the volume source: ``source("local", path="/mnt/a")``."""
        self._at("spec").pop("csi", None)
        self._at("spec")[kind] = source
        return self

    def csi(self, driver: str, handle: str) -> Self:
        self._at("spec")["csi"] = {"driver": driver, "volumeHandle": handle}
        return self

    def of_class(self, name: str) -> Self:
        self._at("spec")["storageClassName"] = name
        return self

    def capacity(self, amount: str) -> Self:
        self._at("spec")["capacity"] = {"storage": amount}
        return self

    def access(self, *modes: str) -> Self:
        self._at("spec")["accessModes"] = list(modes)
        return self

    def block(self) -> Self:
        self._at("spec")["volumeMode"] = "Block"
        return self

    def claimed_by(self, name: str, namespace: str = "shop", *, uid: str | None = None) -> Self:
        """Bind the volume to a claim; with ``uid=""`` it is only reserved for the claim, as by an administrator."""
        given = f"persistentvolumeclaim-{namespace}-{name}" if uid is None else uid
        self._at("spec")["claimRef"] = {"namespace": namespace, "name": name, **({"uid": given} if given else {})}
        return self.phase("Bound") if given else self

    def phase(self, phase: str) -> Self:
        self._at("status")["phase"] = phase
        return self

    def where(self, *expressions: dict[str, Any]) -> Self:
        """Add a node affinity term: ``where(expression(ZONE, "In", "a"))``."""
        required = self._at("spec", "nodeAffinity", "required")
        required.setdefault("nodeSelectorTerms", []).append({"matchExpressions": list(expressions)})
        return self

    def on(self, node: str) -> Self:
        """Restrict the volume to one node, like a local volume."""
        return self.where(expression(HOSTNAME, "In", node))

    def build(self) -> PersistentVolume:
        return self._decode(PersistentVolume)


class PersistentVolumeClaimBuilder(Builder):
    """A pending ReadWriteOnce claim of 1Gi without a class."""

    def __init__(self, name: str, namespace: str) -> None:
        super().__init__("v1", "PersistentVolumeClaim", name, namespace)
        self._manifest["spec"] = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "",
        }
        self._manifest["status"] = {"phase": "Pending"}

    def of_class(self, name: str) -> Self:
        self._at("spec")["storageClassName"] = name
        return self

    def request(self, amount: str | None) -> Self:
        """Set the storage request; ``None`` removes it."""
        self._at("spec")["resources"] = {} if amount is None else {"requests": {"storage": amount}}
        return self

    def access(self, *modes: str) -> Self:
        self._at("spec")["accessModes"] = list(modes)
        return self

    def block(self) -> Self:
        self._at("spec")["volumeMode"] = "Block"
        return self

    def selecting(self, **labels: str) -> Self:
        self._at("spec")["selector"] = {"matchLabels": labels}
        return self

    def bound_to(self, volume: str) -> Self:
        """Bind the claim, with the annotation of the volume controller."""
        self._at("spec")["volumeName"] = volume
        self._at("status")["phase"] = "Bound"
        return self.annotations({"pv.kubernetes.io/bind-completed": "yes"})

    def prebound_to(self, volume: str) -> Self:
        """Set the volume name without binding the claim."""
        self._at("spec")["volumeName"] = volume
        return self

    def selected_node(self, node: str) -> Self:
        return self.annotations({"volume.kubernetes.io/selected-node": node})

    def owned_by_pod(self, name: str) -> Self:
        """Add a pod as the owner, as for the claim of an ephemeral volume."""
        reference = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": name,
            "uid": f"pod-{self._manifest['metadata']['namespace']}-{name}",
            "controller": True,
        }
        self._at("metadata").setdefault("ownerReferences", []).append(reference)
        return self

    def phase(self, phase: str) -> Self:
        self._at("status")["phase"] = phase
        return self

    def build(self) -> PersistentVolumeClaim:
        return self._decode(PersistentVolumeClaim)


class StorageClassBuilder(Builder):
    """A StorageClass with the binding mode WaitForFirstConsumer."""

    def __init__(self, name: str, provisioner: str) -> None:
        super().__init__("storage.k8s.io/v1", "StorageClass", name)
        self._manifest["provisioner"] = provisioner
        self._manifest["volumeBindingMode"] = "WaitForFirstConsumer"

    def immediate(self) -> Self:
        self._manifest["volumeBindingMode"] = "Immediate"
        return self

    def allowed(self, **values: tuple[str, ...]) -> Self:
        """Add a term to allowedTopologies: ``allowed(zone=("a", "b"))``; for other keys see :meth:`topology`."""
        return self.topology(values)

    def topology(self, values: dict[str, tuple[str, ...]]) -> Self:
        """Add a term to allowedTopologies: ``topology({ZONE: ("a", "b")})``."""
        term = [{"key": key, "values": list(each)} for key, each in values.items()]
        self._manifest.setdefault("allowedTopologies", []).append({"matchLabelExpressions": term})
        return self

    def build(self) -> StorageClass:
        return self._decode(StorageClass)


class CSINodeBuilder(Builder):
    """A CSINode without drivers."""

    def __init__(self, name: str) -> None:
        super().__init__("storage.k8s.io/v1", "CSINode", name)
        self._manifest["spec"] = {"drivers": []}

    def driver(self, name: str, limit: int | None = None) -> Self:
        driver: dict[str, Any] = {"name": name, "nodeID": self._manifest["metadata"]["name"]}
        if limit is not None:
            driver["allocatable"] = {"count": limit}
        self._at("spec")["drivers"].append(driver)
        return self

    def migrated(self, *plugins: str) -> Self:
        """Set the in-tree plugins that are migrated to CSI drivers: ``migrated("kubernetes.io/aws-ebs")``."""
        return self.annotations({"storage.alpha.kubernetes.io/migrated-plugins": ",".join(plugins)})

    def build(self) -> CSINode:
        return self._decode(CSINode)


class CSIDriverBuilder(Builder):
    """A CSIDriver; with ``storage_capacity``, kube-scheduler checks CSIStorageCapacities."""

    def __init__(self, name: str, storage_capacity: bool) -> None:
        super().__init__("storage.k8s.io/v1", "CSIDriver", name)
        self._manifest["spec"] = {"storageCapacity": storage_capacity}

    def build(self) -> CSIDriver:
        return self._decode(CSIDriver)


class CSIStorageCapacityBuilder(Builder):
    """The available capacity of a StorageClass; it applies to no node before :meth:`where`."""

    def __init__(self, name: str, namespace: str, storage_class: str, amount: str | None) -> None:
        super().__init__("storage.k8s.io/v1", "CSIStorageCapacity", name, namespace)
        self._manifest["storageClassName"] = storage_class
        if amount is not None:
            self._manifest["capacity"] = amount

    def largest(self, amount: str) -> Self:
        """Set maximumVolumeSize."""
        self._manifest["maximumVolumeSize"] = amount
        return self

    def where(self, labels: dict[str, str] | None = None, **more: str) -> Self:
        """Set the nodes by labels; without labels, all nodes."""
        self._manifest["nodeTopology"] = {"matchLabels": {**(labels or {}), **more}}
        return self

    def build(self) -> CSIStorageCapacity:
        return self._decode(CSIStorageCapacity)


class VolumeAttachmentBuilder(Builder):
    """A volume attached to a node."""

    def __init__(self, name: str, volume: str, node: str, attacher: str) -> None:
        super().__init__("storage.k8s.io/v1", "VolumeAttachment", name)
        source = {"persistentVolumeName": volume}
        self._manifest["spec"] = {"attacher": attacher, "nodeName": node, "source": source}

    def build(self) -> VolumeAttachment:
        return self._decode(VolumeAttachment)


def pv(name: str = "volume-1") -> PersistentVolumeBuilder:
    return PersistentVolumeBuilder(name)


def pvc(name: str = "data", namespace: str = "shop") -> PersistentVolumeClaimBuilder:
    return PersistentVolumeClaimBuilder(name, namespace)


def storage_class(name: str = "fast", provisioner: str = "csi.example") -> StorageClassBuilder:
    return StorageClassBuilder(name, provisioner)


def csi_node(name: str = "n1") -> CSINodeBuilder:
    return CSINodeBuilder(name)


def csi_driver(name: str = "csi.example", *, storage_capacity: bool = False) -> CSIDriverBuilder:
    return CSIDriverBuilder(name, storage_capacity)


def capacity(
    name: str = "left", namespace: str = "storage", *, storage_class: str = "fast", amount: str | None = "100Gi"
) -> CSIStorageCapacityBuilder:
    return CSIStorageCapacityBuilder(name, namespace, storage_class, amount)


def attachment(name: str, volume: str, node: str, attacher: str = "csi.example") -> VolumeAttachmentBuilder:
    return VolumeAttachmentBuilder(name, volume, node, attacher)

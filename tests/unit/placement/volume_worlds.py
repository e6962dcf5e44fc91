"""Small clusters with volumes, as values: what the volume filters read and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import (
    CSINode,
    LabelRequirement,
    Node,
    NodeDriver,
    NodeSelector,
    NodeSelectorTerm,
    OwnerReference,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodSpec,
    StorageClass,
    Volume,
)
from trimtab.placement.interface import Filter

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
GIB = 2**30


def node(name: str, /, **labels: str) -> Node:
    """A node with its hostname and further labels; ``zone=`` is short for the zone label."""
    zone = {ZONE: labels.pop("zone")} if "zone" in labels else {}
    return Node(name=name, labels=Labels({HOST: name, **zone, **labels}))


def affinity(key: str, *values: str) -> NodeSelector:
    """A volume's node affinity: the label has one of the values."""
    return NodeSelector((NodeSelectorTerm((LabelRequirement(key, "In", values),)),))


def volume(name: str, **fields: Any) -> PersistentVolume:
    """An available volume of 10 GiB in the class ``wait``."""
    given: dict[str, Any] = {
        "capacity": 10 * GIB,
        "access_modes": ("ReadWriteOnce",),
        "storage_class": "wait",
        "source": "csi",
        "driver": "disk.example.com",
        "handle": name,
        "phase": "Available",
    }
    return PersistentVolume(name=name, **(given | fields))


def bound(name: str, **fields: Any) -> PersistentVolume:
    """A volume that is bound to the claim ``default/<name>``; see :func:`claim`."""
    return volume(name, **({"claim": f"default/{name}", "claim_uid": f"uid-{name}", "phase": "Bound"} | fields))


def claim(name: str, **fields: Any) -> PersistentVolumeClaim:
    """An unbound claim of 5 GiB in the class ``wait``."""
    given: dict[str, Any] = {
        "namespace": "default",
        "uid": f"uid-{name}",
        "storage_class": "wait",
        "access_modes": ("ReadWriteOnce",),
        "request": 5 * GIB,
        "phase": "Pending",
    }
    return PersistentVolumeClaim(name=name, **(given | fields))


def bound_claim(name: str, volume: str = "", **fields: Any) -> PersistentVolumeClaim:
    """A claim that is bound to the volume of its name, or another."""
    return claim(name, **({"volume": volume or name, "bind_completed": True, "phase": "Bound"} | fields))


def waiting(name: str = "wait", **fields: Any) -> StorageClass:
    """A class that waits for the first consumer; nothing provisions its volumes."""
    given: dict[str, Any] = {"binding_mode": "WaitForFirstConsumer", "provisioner": "kubernetes.io/no-provisioner"}
    return StorageClass(name=name, **(given | fields))


def dynamic(name: str = "wait", **fields: Any) -> StorageClass:
    """A class that waits for the first consumer and then provisions a volume."""
    return waiting(name, **({"provisioner": "disk.example.com"} | fields))


def csi_node(name: str, *, migrated: tuple[str, ...] = (), **limits: int | None) -> CSINode:
    """A CSINode with ``disk.example.com`` and others, ``disk=3`` being short for the limit of the first."""
    names = {"disk": "disk.example.com", "ebs": "ebs.csi.aws.com"}
    drivers = tuple(NodeDriver(names[key], limit) for key, limit in limits.items())
    return CSINode(name=name, drivers=drivers, migrated=migrated)


def using(*claims: str, name: str = "p", on: str = "", **fields: Any) -> Pod:
    """A pod that uses claims, pending or on a node."""
    return with_volumes(*(Volume("persistentVolumeClaim", claim=each) for each in claims), name=name, on=on, **fields)


def with_volumes(*volumes: Volume, name: str = "p", on: str = "", **fields: Any) -> Pod:
    """A pod with volumes of any kind, pending or on a node."""
    given: dict[str, Any] = {"namespace": "default", "uid": f"uid-{name}", "node": on, "spec": PodSpec(volumes=volumes)}
    return Pod(name=name, **(given | fields))


def owner(pod: str) -> tuple[OwnerReference, ...]:
    """The owners of the claim of a pod's ephemeral volume."""
    return (OwnerReference(kind="Pod", name=pod, uid=f"uid-{pod}", controller=True),)


def reasons(kind: type[Filter], objects: Iterable[Any] | Snapshot, pod: Pod) -> dict[str, tuple[str, ...]]:
    """What a filter has against each node; nodes that pass are left out.

    Also checks that :meth:`Filter.failures` leaves no node out and names none twice.
    """
    snapshot = objects if isinstance(objects, Snapshot) else Snapshot(objects)
    rule = kind(snapshot)
    passing = rule.passing(pod)
    if passing is None:
        return {}
    failing = np.flatnonzero(snapshot.nodes.used & ~passing)
    recorded = [(slot, texts) for texts, slots in rule.failures(pod, failing) for slot in slots.tolist()]
    assert sorted(slot for slot, _ in recorded) == failing.tolist()
    return {snapshot.nodes.node(slot).name: texts for slot, texts in recorded}

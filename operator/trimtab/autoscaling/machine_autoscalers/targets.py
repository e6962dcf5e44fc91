"""Tracks the objects that MachineAutoscalers can target, and the MachineAutoscaler that their annotation names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from msgspec import Struct

from trimtab.autoscaling.groups.annotations import OWNER
from trimtab.autoscaling.groups.machine_groups import (
    MIRROR_NAMESPACES,
    cluster_api_size_manager,
    machine_api_size_manager,
)
from trimtab.kube.objects import AnyMachineSet, ClusterMachineSet, KubeObject, MachineSet
from trimtab.kube.objects.machine import CLUSTER_API
from trimtab.kube.resource_versions import is_older
from trimtab.kube.resources import (
    CLUSTER_MACHINE_SETS,
    MACHINE_DEPLOYMENTS,
    MACHINE_POOLS,
    MACHINE_SETS,
    Resource,
)
from trimtab.kube.wire.decode import decode_object

KINDS: Final[tuple[Resource, ...]] = (MACHINE_SETS, MACHINE_DEPLOYMENTS, CLUSTER_MACHINE_SETS, MACHINE_POOLS)
"""Resources that can be targets. The version that the API server serves may differ."""

_BY_KIND: Final = {(resource.group, resource.kind): resource for resource in KINDS}


AnyObject = KubeObject | AnyMachineSet


class Reference(Protocol):
    """A reference to a target: a spec's ``scaleTargetRef`` or a status's ``lastTargetRef``."""

    @property
    def api_version(self) -> str:
        """Return the API group and version as ``group/version``."""
        ...

    @property
    def kind(self) -> str:
        """Return the kind of the target."""
        ...

    @property
    def name(self) -> str:
        """Return the name of the target."""
        ...


class TargetKey(Struct, frozen=True, order=True):
    """Identifies a target regardless of its API version.

    Attributes:
        group: the API group.
        kind: the kind.
        key: ``namespace/name``.
    """

    group: str
    kind: str
    key: str

    @classmethod
    def of(cls, source: AnyMachineSet) -> TargetKey:
        """Return the key of an object."""
        return cls(source.api_group, source.kind, source.key)

    @classmethod
    def of_reference(cls, reference: Reference, namespace: str) -> TargetKey:
        """Return the key of the object that a reference in a namespace names."""
        return cls(reference.api_version.partition("/")[0], reference.kind, f"{namespace}/{reference.name}")

    def resource(self, version: str = "") -> Resource | None:
        """Return the API resource of such objects, or ``None`` if the kind cannot be a target."""
        found = _BY_KIND.get((self.group, self.kind))
        if found is None or not version:
            return found
        return Resource(found.group, version, found.plural, found.kind, type=found.type)

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class Targets:
    """All objects that can be targets, by key and by the MachineAutoscaler that their annotation names."""

    def __init__(self) -> None:
        self._objects: dict[TargetKey, AnyMachineSet] = {}
        self._machine_sets: dict[str, MachineSet] = {}
        self._owned: dict[str, set[TargetKey]] = {}

    def get(self, key: TargetKey) -> AnyMachineSet | None:
        """Return the object with this key, or ``None`` if it does not exist."""
        return self._objects.get(key)

    def owned_by(self, owner: str) -> tuple[AnyMachineSet, ...]:
        """Return the objects whose annotation names this MachineAutoscaler (``namespace/name``), sorted by key."""
        return tuple(self._objects[key] for key in sorted(self._owned.get(owner, ())))

    def owners(self) -> tuple[str, ...]:
        """Return the ``namespace/name`` of all MachineAutoscalers that annotations name, sorted."""
        return tuple(sorted(self._owned))

    def governed(self, source: AnyMachineSet) -> str:
        """Return a description of the object that controls the size of ``source``; empty if no other object does."""
        if isinstance(source, ClusterMachineSet):
            return cluster_api_size_manager(source, self._machine_sets)
        return machine_api_size_manager(source) if isinstance(source, MachineSet) else ""

    def observe(self, old: AnyObject | None, new: AnyObject | None) -> bool:
        """Handle a watch event, and return whether it was newer than the known version.

        This is a listener on stores. The API server's response to a write may be newer than the watch, and is kept in
        that case.
        """
        if isinstance(new, AnyMachineSet):
            known = self._objects.get(TargetKey.of(new))
            if known is not None and known.uid == new.uid and is_older(new.resource_version, known.resource_version):
                return False
            self._put(TargetKey.of(new), new)
            return True
        if isinstance(old, AnyMachineSet):
            known = self._objects.get(TargetKey.of(old))
            if known is not None and known.uid == old.uid:
                self._put(TargetKey.of(old), None)
                return True
        return False

    def put(self, manifest: Mapping[str, Any]) -> AnyMachineSet:
        """Update an object from an API server response, to a read or a write.

        Raises:
            InputError: it cannot be decoded.
        """
        found = decode_object(manifest)
        assert isinstance(found, AnyMachineSet)
        self.observe(None, found)
        return found

    def _put(self, key: TargetKey, new: AnyMachineSet | None) -> None:
        old = self._objects.pop(key, None)
        if isinstance(old, MachineSet):
            del self._machine_sets[old.key]
        if isinstance(new, MachineSet):
            self._machine_sets[new.key] = new
        if new is not None:
            self._objects[key] = new
        for source, put in ((old, set.discard), (new, set.add)):
            owner = "" if source is None else source.annotations.get(OWNER, "")
            if owner:
                put(self._owned.setdefault(owner, set()), key)
                if not self._owned[owner]:
                    del self._owned[owner]


def mirrors_of(source: AnyMachineSet) -> tuple[TargetKey, ...]:
    """Return the Cluster API targets whose size follows an object's size."""
    if not isinstance(source, MachineSet):
        return ()
    namespaces = (mirror for mirror, original in MIRROR_NAMESPACES.items() if original == source.namespace)
    return tuple(
        TargetKey(CLUSTER_API, ClusterMachineSet.kind, f"{namespace}/{source.name}") for namespace in namespaces
    )

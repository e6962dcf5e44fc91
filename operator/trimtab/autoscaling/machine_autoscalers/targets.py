"""What MachineAutoscalers can have for a target, as the watches show it, and whose annotations each has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from msgspec import Struct

from trimtab.autoscaling.groups.cluster_api import MIRROR_NAMESPACES
from trimtab.autoscaling.groups.cluster_api import governed_set as governed_by_cluster_api
from trimtab.autoscaling.groups.keys import OWNER
from trimtab.autoscaling.groups.machine_api import governed_set as governed_by_machine_api
from trimtab.kube.objects import AnyMachineSet, ClusterMachineSet, KubeObject, MachineSet
from trimtab.kube.objects.machine import CLUSTER_API
from trimtab.kube.resources import (
    CLUSTER_MACHINE_SETS,
    MACHINE_DEPLOYMENTS,
    MACHINE_POOLS,
    MACHINE_SETS,
    Resource,
)
from trimtab.kube.wire.decode import decode_object

KINDS: Final[tuple[Resource, ...]] = (MACHINE_SETS, MACHINE_DEPLOYMENTS, CLUSTER_MACHINE_SETS, MACHINE_POOLS)
"""What can be a target; which version a server has is not said by this."""

_BY_KIND: Final = {(resource.group, resource.kind): resource for resource in KINDS}


AnyObject = KubeObject | AnyMachineSet


class Reference(Protocol):
    """What names a target: a spec's ``scaleTargetRef``, or a status's ``lastTargetRef``."""

    @property
    def api_version(self) -> str:
        """``group/version``."""
        ...

    @property
    def kind(self) -> str:
        """The kind."""
        ...

    @property
    def name(self) -> str:
        """The name."""
        ...


class TargetKey(Struct, frozen=True, order=True):
    """A target, in whatever version it is read.

    Attributes:
        group: the API's group.
        kind: the kind.
        key: ``namespace/name``.
    """

    group: str
    kind: str
    key: str

    @classmethod
    def of(cls, source: AnyMachineSet) -> TargetKey:
        """The key of an object."""
        return cls(source.api_group, source.kind, source.key)

    @classmethod
    def of_reference(cls, reference: Reference, namespace: str) -> TargetKey:
        """The key of what a reference in that namespace names."""
        return cls(reference.api_version.partition("/")[0], reference.kind, f"{namespace}/{reference.name}")

    def resource(self, version: str = "") -> Resource | None:
        """Where such objects are; ``None`` for what can be no target."""
        found = _BY_KIND.get((self.group, self.kind))
        if found is None or not version:
            return found
        return Resource(found.group, version, found.plural, found.kind, type=found.type)

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class Targets:
    """All objects that can be targets, by their keys and by the MachineAutoscaler that their annotation names."""

    def __init__(self) -> None:
        self._objects: dict[TargetKey, AnyMachineSet] = {}
        self._machine_sets: dict[str, MachineSet] = {}
        self._owned: dict[str, set[TargetKey]] = {}

    def get(self, key: TargetKey) -> AnyMachineSet | None:
        """The object of that key."""
        return self._objects.get(key)

    def owned_by(self, owner: str) -> tuple[AnyMachineSet, ...]:
        """The objects whose annotation names a MachineAutoscaler (``namespace/name``), by key."""
        return tuple(self._objects[key] for key in sorted(self._owned.get(owner, ())))

    def owners(self) -> tuple[str, ...]:
        """All MachineAutoscalers that annotations name, sorted."""
        return tuple(sorted(self._owned))

    def governed(self, source: AnyMachineSet) -> str:
        """What else sets the size of an object, in words; empty where nothing does."""
        if isinstance(source, ClusterMachineSet):
            return governed_by_cluster_api(source, self._machine_sets)
        return governed_by_machine_api(source) if isinstance(source, MachineSet) else ""

    def observe(self, old: AnyObject | None, new: AnyObject | None) -> bool:
        """Take a change of a watch in, as a listener of a store is told it; whether it told something new.

        What the server has answered to a write may be newer than what a watch shows, and then stays.
        """
        if isinstance(new, AnyMachineSet):
            known = self._objects.get(TargetKey.of(new))
            if known is not None and known.uid == new.uid and _older(new, known):
                return False
            self._put(TargetKey.of(new), new)
            return True
        if isinstance(old, AnyMachineSet):
            known = self._objects.get(TargetKey.of(old))
            if known is not None and known.uid == old.uid:
                self._put(TargetKey.of(old), None)
                return True
        return False

    def take(self, manifest: Mapping[str, Any]) -> AnyMachineSet:
        """Take in an object as the server has answered it.

        Raises:
            InputError: it cannot be read.
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
    """The targets whose size an object may set beside its own."""
    if not isinstance(source, MachineSet):
        return ()
    namespaces = (mirror for mirror, original in MIRROR_NAMESPACES.items() if original == source.namespace)
    return tuple(
        TargetKey(CLUSTER_API, ClusterMachineSet.kind, f"{namespace}/{source.name}") for namespace in namespaces
    )


def _older(one: AnyMachineSet, other: AnyMachineSet) -> bool:
    versions = one.resource_version, other.resource_version
    return all(version.isdecimal() for version in versions) and int(versions[0]) < int(versions[1])

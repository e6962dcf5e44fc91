"""Finds the candidates for node groups in the Machine API and in Cluster API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Final, Protocol, TypeVar

from msgspec import Struct

from trimtab.autoscaling.groups.annotations import PAUSED
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import (
    AnyMachine,
    AnyMachineSet,
    ClusterMachine,
    ClusterMachineSet,
    Machine,
    MachineDeployment,
    MachinePool,
    MachineSet,
    OwnerReference,
)
from trimtab.kube.objects.machine import CLUSTER_API, MACHINE_API


class GroupCandidate(Struct, frozen=True):
    """An object with a number of replicas, with or without size limits.

    Attributes:
        id: id of the group that the object would become.
        source: the object.
        machines: the machines that it created.
        nodes: names and UIDs of the nodes in its status (MachinePools only); a UID may be empty.
        provider_ids: provider IDs in its spec (MachinePools only).
        size_manager: a description of the other object or program that sets its size, in which case it is no group;
            empty if there is none.
        paused: the reason why it must not be scaled at present; empty if it may be scaled.
    """

    id: str
    source: AnyMachineSet
    machines: tuple[AnyMachine, ...] = ()
    nodes: tuple[tuple[str, str], ...] = ()
    provider_ids: tuple[str, ...] = ()
    size_manager: str = ""
    paused: str = ""


class GroupSource(Protocol):
    """A machine API whose objects can be node groups.

    Attributes:
        api_group: the API group.
    """

    api_group: ClassVar[str]

    def candidates(self, snapshot: Snapshot) -> Iterator[GroupCandidate]:
        """Return the objects in the snapshot that create machines, in any order."""
        ...


M = TypeVar("M", bound=AnyMachine)


def machines_by_owner(machines: Iterable[M], api_group: str) -> dict[tuple[str, str], list[M]]:
    """Return machines by kind and ``namespace/name`` of their owner. Machines that have no owner are left out.

    Owners are compared by name instead of UID, because both APIs adopt machines again after an owner was restored from
    a backup.
    """
    found: dict[tuple[str, str], list[M]] = {}
    for machine in machines:
        owner = owner_of(machine, api_group)
        if owner is not None:
            found.setdefault((owner.kind, f"{machine.namespace}/{owner.name}"), []).append(machine)
    return found


def owner_of(owned: AnyMachine | AnyMachineSet, api_group: str) -> OwnerReference | None:
    """Return the owner of that API group: the controller, else the first owner; ``None`` if there is no owner."""
    owners = [
        owner
        for owner in owned.owners
        if owner.name and (not owner.api_version or owner.api_version.partition("/")[0] == api_group)
    ]
    return next((owner for owner in owners if owner.controller), owners[0] if owners else None)


def pause_reason(source: AnyMachineSet) -> str:
    """Return the reason why an object must not be scaled at present; empty if it may be scaled."""
    if source.deleted is not None:
        return "it is being deleted"
    if source.paused:
        return "spec.paused is true"
    return f"it has the annotation {PAUSED}" if PAUSED in source.annotations else ""


AUTHORITY_CLUSTER_API: Final = "ClusterAPI"
AUTHORITY_MIGRATING: Final = "Migrating"


class MachineApi:
    """OpenShift's Machine API, machine.openshift.io: each MachineSet is a candidate."""

    api_group: ClassVar[str] = MACHINE_API

    def candidates(self, snapshot: Snapshot) -> Iterator[GroupCandidate]:
        """Yield the MachineSets in the snapshot, in any order."""
        owned = machines_by_owner(snapshot.objects.of(Machine).values(), MACHINE_API)
        for key, source in snapshot.objects.of(MachineSet).items():
            governed = machine_api_size_manager(source)
            yield GroupCandidate(
                id=f"MachineSet/{key}",
                source=source,
                machines=() if governed else tuple(owned.get(("MachineSet", key), ())),
                size_manager=governed,
                paused="its authoritativeAPI is Migrating: neither API acts on it"
                if source.authoritative_api == AUTHORITY_MIGRATING
                else pause_reason(source),
            )


def machine_api_size_manager(source: MachineSet) -> str:
    """Return a description of the other object or program that sets a MachineSet's size; empty if there is none.

    On OpenShift, Cluster API sets the size if it is the authoritative API.
    """
    if source.authoritative_api != AUTHORITY_CLUSTER_API:
        return ""
    return "its authoritativeAPI is ClusterAPI, whose MachineSet of this name sets its size"


Machines = dict[tuple[str, str], list[ClusterMachine]]

MIRROR_NAMESPACES: Final = {"openshift-cluster-api": "openshift-machine-api"}
"""Namespaces of mirrored MachineSets on OpenShift: the Machine API's namespace by Cluster API's namespace."""


class ClusterApi:
    """Cluster API, cluster.x-k8s.io: MachineDeployments, MachinePools, and MachineSets without a MachineDeployment."""

    api_group: ClassVar[str] = CLUSTER_API

    def candidates(self, snapshot: Snapshot) -> Iterator[GroupCandidate]:
        """Yield the objects in the snapshot that create machines, in any order."""
        owned: Machines = machines_by_owner(snapshot.objects.of(ClusterMachine).values(), CLUSTER_API)
        deployments = snapshot.objects.of(MachineDeployment)
        of_deployment: dict[str, list[ClusterMachine]] = {}
        for key, source in snapshot.objects.of(ClusterMachineSet).items():
            machines = owned.get(("MachineSet", key), [])
            owner = owner_of(source, CLUSTER_API)
            if owner is not None and owner.kind == "MachineDeployment":
                of_deployment.setdefault(f"{source.namespace}/{owner.name}", []).extend(machines)
            governed = cluster_api_size_manager(source, snapshot.objects.of(MachineSet))
            yield _cluster_api_candidate(
                f"MachineSet.{CLUSTER_API}/{key}", source, [] if governed else machines, governed
            )
        for key, deployment in deployments.items():
            yield _cluster_api_candidate(f"MachineDeployment/{key}", deployment, of_deployment.get(key, []))
        for key, pool in snapshot.objects.of(MachinePool).items():
            yield _cluster_api_candidate(f"MachinePool/{key}", pool, owned.get(("MachinePool", key), []))


def _cluster_api_candidate(
    id_: str, source: AnyMachineSet, machines: list[ClusterMachine], governed: str = ""
) -> GroupCandidate:
    return GroupCandidate(
        id=id_,
        source=source,
        machines=tuple(machines),
        nodes=source.nodes,
        provider_ids=source.provider_ids,
        size_manager=governed,
        paused=pause_reason(source),
    )


def cluster_api_size_manager(source: ClusterMachineSet, machine_sets: Mapping[str, MachineSet]) -> str:
    """Return a description of the other object that sets the size of a Cluster API MachineSet.

    This is the MachineSet's owner, or the Machine API's MachineSet that it mirrors.

    Args:
        source: the MachineSet.
        machine_sets: MachineSets of the Machine API by ``namespace/name``.

    Returns:
        The description; empty if no other object sets the size.
    """
    owner = owner_of(source, CLUSTER_API)
    if owner is not None and owner.kind == "MachineDeployment":
        return f"MachineDeployment {source.namespace}/{owner.name} sets its size"
    twin = machine_sets.get(f"{MIRROR_NAMESPACES.get(source.namespace)}/{source.name}")
    if twin is None or twin.authoritative_api == AUTHORITY_CLUSTER_API:
        return ""
    return f"the MachineSet {twin.key} of the Machine API, which is authoritative, sets its size"

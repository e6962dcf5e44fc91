"""Cluster API: MachineDeployments, MachinePools, and MachineSets that no MachineDeployment owns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

from trimtab.autoscaling.groups.machine_api import MIRRORED
from trimtab.autoscaling.groups.ownership import machines_by_owner, owner_of, why_paused
from trimtab.autoscaling.groups.provider import Candidate
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import (
    AnyMachineSet,
    ClusterMachine,
    ClusterMachineSet,
    MachineDeployment,
    MachinePool,
    MachineSet,
)
from trimtab.kube.objects.machine import CLUSTER_API

Machines = dict[tuple[str, str], list[ClusterMachine]]

MIRROR_NAMESPACES: Final = {"openshift-cluster-api": "openshift-machine-api"}
"""Where OpenShift keeps the two sides of a MachineSet that it mirrors: Cluster API's, and the Machine API's."""


class ClusterApi:
    """cluster.x-k8s.io."""

    api_group: ClassVar[str] = CLUSTER_API

    def candidates(self, snapshot: Snapshot) -> Iterator[Candidate]:
        """See :class:`~trimtab.autoscaling.groups.provider.Provider`."""
        owned: Machines = machines_by_owner(snapshot.shelves.of(ClusterMachine).values(), CLUSTER_API)
        deployments = snapshot.shelves.of(MachineDeployment)
        of_deployment: dict[str, list[ClusterMachine]] = {}
        for key, source in snapshot.shelves.of(ClusterMachineSet).items():
            machines = owned.get(("MachineSet", key), [])
            owner = owner_of(source, CLUSTER_API)
            if owner is not None and owner.kind == "MachineDeployment":
                of_deployment.setdefault(f"{source.namespace}/{owner.name}", []).extend(machines)
            governed = governed_set(source, snapshot.shelves.of(MachineSet))
            yield _candidate(f"MachineSet.{CLUSTER_API}/{key}", source, [] if governed else machines, governed)
        for key, deployment in deployments.items():
            yield _candidate(f"MachineDeployment/{key}", deployment, of_deployment.get(key, []))
        for key, pool in snapshot.shelves.of(MachinePool).items():
            yield _candidate(f"MachinePool/{key}", pool, owned.get(("MachinePool", key), []))


def _candidate(id_: str, source: AnyMachineSet, machines: list[ClusterMachine], governed: str = "") -> Candidate:
    return Candidate(
        id=id_,
        source=source,
        machines=tuple(machines),
        nodes=source.nodes,
        provider_ids=source.provider_ids,
        governed=governed,
        paused=why_paused(source),
    )


def governed_set(source: ClusterMachineSet, machine_sets: Mapping[str, MachineSet]) -> str:
    """What else sets the size of a MachineSet: what owns it, or that of the Machine API which it only mirrors.

    Args:
        source: the set.
        machine_sets: those of the Machine API, by ``namespace/name``.

    Returns:
        It in words; empty where nothing does.
    """
    owner = owner_of(source, CLUSTER_API)
    if owner is not None and owner.kind == "MachineDeployment":
        return f"MachineDeployment {source.namespace}/{owner.name} sets its size"
    twin = machine_sets.get(f"{MIRROR_NAMESPACES.get(source.namespace)}/{source.name}")
    if twin is None or twin.authoritative_api == MIRRORED:
        return ""
    return f"the MachineSet {twin.key} of the Machine API, which is authoritative, sets its size"

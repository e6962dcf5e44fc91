"""Selects the objects of the machine APIs that belong to this cluster, by cluster name and namespace.

A management cluster of Cluster API holds the machines of many clusters, and node names such as ``worker-1`` repeat.
``spec.nodeGroupAutoDiscovery`` defines what belongs to this cluster, as upstream's ``--node-group-auto-discovery``
does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.bounds import named
from trimtab.api.cluster_autoscaler import KIND, NAME, NodeGroupAutoDiscovery
from trimtab.autoscaling.groups.machine_groups import GroupCandidate
from trimtab.autoscaling.groups.node_group import ObjectProblem
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
)
from trimtab.kube.objects.machine import CLUSTER_API, MACHINE_API

FIELD: Final = "spec.nodeGroupAutoDiscovery"


def _machine_api(snapshot: Snapshot) -> Iterator[AnyMachine | AnyMachineSet]:
    yield from snapshot.objects.of(MachineSet).values()
    yield from snapshot.objects.of(Machine).values()


def _cluster_api(snapshot: Snapshot) -> Iterator[AnyMachine | AnyMachineSet]:
    yield from snapshot.objects.of(MachineDeployment).values()
    yield from snapshot.objects.of(MachinePool).values()
    yield from snapshot.objects.of(ClusterMachineSet).values()
    yield from snapshot.objects.of(ClusterMachine).values()


_OBJECTS: Final = {MACHINE_API: _machine_api, CLUSTER_API: _cluster_api}
"""Functions that return the objects of a machine API that name a cluster, by API group."""


class DiscoveryResult(Struct, frozen=True):
    """The candidates after discovery.

    Attributes:
        candidates: all candidates; those of other clusters or namespaces have a ``size_manager``, and those of an API
            whose objects name several clusters are ``paused``.
        ambiguous: pause reasons of APIs whose objects name several clusters.
        problems: one problem for each such API.
    """

    candidates: tuple[GroupCandidate, ...]
    ambiguous: frozenset[str] = frozenset()
    problems: tuple[ObjectProblem, ...] = ()


def discover(
    candidates: Sequence[GroupCandidate], snapshot: Snapshot, settings: NodeGroupAutoDiscovery
) -> DiscoveryResult:
    """Select the candidates of this cluster.

    If ``clusterName`` is not set, all objects of an API must name the same cluster, which is taken to be this one. If
    they name several clusters, no group of that API is scaled.

    Args:
        candidates: candidates of all APIs.
        snapshot: the objects of the machine APIs.
        settings: ``spec.nodeGroupAutoDiscovery``.
    """
    pauses = {}
    problems = []
    for api_group in _OBJECTS if not settings.cluster_name else ():
        clusters = cluster_names(snapshot, api_group, settings.namespaces)
        if len(clusters) > 1:
            pauses[api_group] = text = (
                f"objects of {api_group} name {len(clusters)} clusters ({named(clusters)}); "
                f"{FIELD}.clusterName must name this cluster"
            )
            message = f"{text}: no group of that API is scaled"
            problems.append(ObjectProblem(KIND, "", NAME, reasons.SEVERAL_CLUSTERS, message))
    made = tuple(_scoped(candidate, settings, pauses.get(candidate.source.api_group, "")) for candidate in candidates)
    return DiscoveryResult(made, frozenset(pauses.values()), tuple(problems))


def cluster_names(snapshot: Snapshot, api_group: str, namespaces: Sequence[str] = ()) -> list[str]:
    """Return the names of the clusters that the objects of a machine API belong to, sorted.

    Args:
        snapshot: the objects.
        api_group: the API.
        namespaces: the namespaces to read; all if empty.
    """
    found = {
        each.cluster
        for each in _OBJECTS[api_group](snapshot)
        if each.cluster and (not namespaces or each.namespace in namespaces)
    }
    return sorted(found)


def _scoped(candidate: GroupCandidate, settings: NodeGroupAutoDiscovery, pause: str) -> GroupCandidate:
    source = candidate.source
    elsewhere = ""
    if settings.namespaces and source.namespace not in settings.namespaces:
        elsewhere = f"its namespace {source.namespace} is not among {FIELD}.namespaces"
    elif settings.cluster_name and not _belongs(source, settings.cluster_name):
        theirs = f"it belongs to the cluster {source.cluster}" if source.cluster else "it names no cluster"
        elsewhere = f"{theirs}, and {FIELD}.clusterName is {settings.cluster_name}"
    if elsewhere:
        return replace(candidate, machines=(), nodes=(), provider_ids=(), size_manager=elsewhere)
    name = settings.cluster_name or source.cluster
    machines = tuple(_of_cluster(candidate.machines, name))
    return replace(candidate, machines=machines, paused=pause or candidate.paused)


def _belongs(source: AnyMachineSet, cluster: str) -> bool:
    """Return whether a group belongs to the cluster.

    Cluster API objects must name the cluster. Machine API objects may name none.
    """
    return source.cluster == cluster or (not source.cluster and source.api_group == MACHINE_API)


def _of_cluster(machines: Iterable[AnyMachine], cluster: str) -> Iterable[AnyMachine]:
    """Return the machines of a group, excluding those that name a different cluster than the group does."""
    return (machine for machine in machines if not cluster or not machine.cluster or machine.cluster == cluster)

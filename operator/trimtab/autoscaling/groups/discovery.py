"""Selects the objects of the machine APIs that belong to this cluster, by cluster name and namespace.

A management cluster of Cluster API holds the machines of many clusters, and node names such as ``worker-1`` repeat. A
tenant may be allowed to write such objects in the tenant's own namespace. So an object alone is no proof that it
belongs to this cluster:

1. ``spec.nodeGroupAutoDiscovery`` defines what belongs to this cluster, as upstream's ``--node-group-auto-discovery``
   does.
2. What it does not define is read from the annotations with which both APIs link a node to its machine, because tenants
   cannot write them. Both APIs keep all machines of a cluster in one namespace, so the annotations of a single node
   suffice for all groups, including those without nodes. A namespace and a cluster that were confirmed once remain so
   while they have such objects, because trimtab may remove their last node. MachineAutoscalers add their namespaces.
3. If no node has such an annotation, and no external provider is configured, all objects belong to this cluster,
   unless they name several clusters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.bounds import named, plural
from trimtab.api.cluster_autoscaler import KIND, NAME, NodeGroupAutoDiscovery
from trimtab.api.cluster_autoscaler_status import MAX_CONFIRMED
from trimtab.autoscaling.groups.annotations import (
    NODES_CLUSTER,
    NODES_CLUSTER_NAMESPACE,
    annotated_limits,
    object_problem,
)
from trimtab.autoscaling.groups.machine_groups import GroupCandidate
from trimtab.autoscaling.groups.membership import machine_keys
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
from trimtab.kube.rules.selectors import is_dns_label, is_label_value

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


class Scope(Struct, frozen=True):
    """Which objects of the machine APIs belong to this cluster.

    Attributes:
        settings: ``spec.nodeGroupAutoDiscovery``.
        confirmed: the namespaces that nodes confirm or have confirmed.
        namespaces: these and those of MachineAutoscalers; ``None`` if nothing shows which ones belong to this cluster.
        clusters: the names of Cluster API clusters that nodes confirm or have confirmed; empty if no node names one.
    """

    settings: NodeGroupAutoDiscovery
    confirmed: Collection[str]
    namespaces: Collection[str] | None
    clusters: Collection[str]

    def exclusion(self, source: AnyMachine | AnyMachineSet) -> str:
        """Return the reason why an object does not belong to this cluster; empty if it does."""
        return self.exclusion_by_settings(source) or self.exclusion_by_nodes(source)

    def exclusion_by_settings(self, source: AnyMachine | AnyMachineSet) -> str:
        """Return the reason why the settings exclude an object; empty if they do not."""
        settings = self.settings
        if settings.namespaces and source.namespace not in settings.namespaces:
            return f"its namespace {source.namespace} is not among {FIELD}.namespaces"
        if settings.cluster_name and not _belongs(source, settings.cluster_name):
            theirs = f"it belongs to the cluster {source.cluster}" if source.cluster else "it names no cluster"
            return f"{theirs}, and {FIELD}.clusterName is {settings.cluster_name}"
        return ""

    def exclusion_by_nodes(self, source: AnyMachine | AnyMachineSet) -> str:
        """Return the reason why the nodes exclude an object, as far as the settings do not decide; empty otherwise."""
        settings = self.settings
        if not settings.namespaces and self.namespaces is not None and source.namespace not in self.namespaces:
            return f"no node belongs to a machine in its namespace {source.namespace}"
        named_by_nodes = () if settings.cluster_name or source.api_group != CLUSTER_API else self.clusters
        if named_by_nodes and source.cluster not in named_by_nodes:
            return f"no node belongs to its cluster {source.cluster}" if source.cluster else "it names no cluster"
        return ""

    def entries(self, candidates: Iterable[GroupCandidate]) -> tuple[str, ...]:
        """Return the confirmed namespaces with objects of this cluster, sorted.

        If nodes confirm the cluster of an object, its name follows: ``clusters/prod``.
        """
        entries = {
            f"{source.namespace}/{source.cluster}" if source.cluster in self.clusters else source.namespace
            for source in (candidate.source for candidate in candidates)
            if source.namespace in self.confirmed and not self.exclusion(source)
        }
        return tuple(sorted(entries)[:MAX_CONFIRMED])


def find_scope(
    candidates: Iterable[GroupCandidate],
    snapshot: Snapshot,
    settings: NodeGroupAutoDiscovery,
    *,
    earlier: Collection[str],
    autoscaled: Iterable[str],
    external: bool,
) -> Scope:
    """Determine which objects belong to this cluster, by the rules of this module.

    Args:
        candidates: candidates of all APIs.
        snapshot: the nodes. Annotations with values that no namespace and no cluster can have are ignored.
        settings: ``spec.nodeGroupAutoDiscovery``.
        earlier: earlier :meth:`Scope.entries`.
        autoscaled: the namespaces of MachineAutoscalers.
        external: whether external providers are configured.
    """
    namespaces: set[str] = set()
    clusters: set[str] = set()
    for slot in snapshot.nodes.slot_of.values():
        node = snapshot.nodes.node(slot)
        keys = (key.partition("/") for _, key in machine_keys(node))
        namespaces.update(namespace for namespace, _, name in keys if name)
        namespaces.add(node.annotations.get(NODES_CLUSTER_NAMESPACE, ""))
        clusters.add(node.annotations.get(NODES_CLUSTER, ""))
    confirmed = set(filter(is_dns_label, namespaces))
    clusters = set(filter(is_label_value, clusters))
    for source in (candidate.source for candidate in candidates):
        if f"{source.namespace}/{source.cluster}" in earlier:
            clusters.add(source.cluster)
        elif source.namespace not in earlier:
            continue
        confirmed.add(source.namespace)
    return Scope(settings, confirmed, confirmed.union(autoscaled) if confirmed or external else None, clusters - {""})


class DiscoveryResult(Struct, frozen=True):
    """The candidates after discovery.

    Attributes:
        candidates: all candidates; those that do not belong to this cluster have a ``size_manager``, and those of an
            API whose objects name several clusters are ``paused`` if nodes do not show which of them is this one.
        ambiguous: the problem of each such API by pause reason.
        problems: one problem for each namespace with groups that no node confirms.
    """

    candidates: tuple[GroupCandidate, ...]
    ambiguous: Mapping[str, ObjectProblem] = {}
    problems: tuple[ObjectProblem, ...] = ()


def discover(candidates: Sequence[GroupCandidate], snapshot: Snapshot, scope: Scope) -> DiscoveryResult:
    """Select the candidates of this cluster.

    If neither ``clusterName`` nor the nodes name this cluster, all objects of an API must name the same cluster, which
    is taken to be this one. If they name several clusters, no group of that API is scaled.

    Args:
        candidates: candidates of all APIs.
        snapshot: the objects of the machine APIs.
        scope: which objects belong to this cluster.
    """
    pauses = {}
    ambiguous = {}
    for api_group in _OBJECTS if not scope.settings.cluster_name else ():
        clusters = _clusters(snapshot, api_group, scope)
        if len(clusters) > 1:
            examples = named([f"{cluster} in {example}" for cluster, example in clusters.items()])
            pause = pauses[api_group] = (
                f"objects of {api_group} name {len(clusters)} clusters ({examples}); "
                f"{FIELD}.clusterName must name this cluster"
            )
            message = f"{pause}: no group of that API is scaled"
            ambiguous[pause] = ObjectProblem(KIND, "", NAME, reasons.SEVERAL_CLUSTERS, message)
    made = tuple(_scoped(candidate, scope, pauses.get(candidate.source.api_group, "")) for candidate in candidates)
    return DiscoveryResult(made, ambiguous, tuple(_unconfirmed(candidates, scope)))


def _clusters(snapshot: Snapshot, api_group: str, scope: Scope) -> Mapping[str, str]:
    """Return an object of each cluster that the objects of an API name, except those of other clusters."""
    found: dict[str, str] = {}
    for each in _OBJECTS[api_group](snapshot):
        if each.cluster and not scope.exclusion(each):
            name = f"{each.kind} {each.key}"
            found[each.cluster] = min(found.get(each.cluster, name), name)
    return dict(sorted(found.items()))


def _unconfirmed(candidates: Iterable[GroupCandidate], scope: Scope) -> Iterator[ObjectProblem]:
    """Yield a problem for each namespace with objects that would be groups if nodes confirmed them."""
    found: dict[tuple[str, str], list[AnyMachineSet]] = {}
    for candidate in candidates:
        source = candidate.source
        if scope.exclusion_by_settings(source) or candidate.size_manager or annotated_limits(source) is None:
            continue
        if excluded := scope.exclusion_by_nodes(source):
            found.setdefault((source.namespace, excluded), []).append(source)
    for (_, excluded), sources in found.items():
        more = f", like {plural(len(sources) - 1, 'other object')} there" if len(sources) > 1 else ""
        message = (
            f"is not treated as a node group{more}: {excluded}; if it belongs to this cluster, {FIELD} must name the "
            "cluster and the namespaces of all node groups"
        )
        yield object_problem(sources[0], reasons.NODE_GROUP_NOT_CONFIRMED, message)


def _scoped(candidate: GroupCandidate, scope: Scope, pause: str) -> GroupCandidate:
    source = candidate.source
    elsewhere = scope.exclusion(source)
    if elsewhere:
        return replace(candidate, machines=(), nodes=(), provider_ids=(), size_manager=elsewhere)
    name = scope.settings.cluster_name or source.cluster
    machines = tuple(_of_cluster(candidate.machines, name))
    return replace(candidate, machines=machines, paused=pause or candidate.paused)


def _belongs(source: AnyMachine | AnyMachineSet, cluster: str) -> bool:
    """Return whether an object belongs to the cluster.

    Cluster API objects must name the cluster. Machine API objects may name none.
    """
    return source.cluster == cluster or (not source.cluster and source.api_group == MACHINE_API)


def _of_cluster(machines: Iterable[AnyMachine], cluster: str) -> Iterable[AnyMachine]:
    """Return the machines of a group, excluding those that name a different cluster than the group does."""
    return (machine for machine in machines if not cluster or not machine.cluster or machine.cluster == cluster)

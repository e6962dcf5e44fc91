"""Collects the input of plans and inspections for the command line: from files, or from a live cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec import Struct

from trimtab.api.plan import SURGE
from trimtab.cli.cluster_policies import print_warning
from trimtab.cli.options import STDIN, check_connection
from trimtab.inspection.cluster import ClusterInput, PolicySet, eviction_memories
from trimtab.inspection.node_stats import NodeStats
from trimtab.kube.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trimtab.api.descheduler_policy import DeschedulerPolicy
    from trimtab.api.history_record import HistoryEntry
    from trimtab.cli.audit import ClusterAudit
    from trimtab.cluster.snapshot import Snapshot
    from trimtab.cluster.usage.measurement import Usage
    from trimtab.cluster.usage.prometheus import PrometheusSettings
    from trimtab.cluster.workloads.rollouts import Rollouts
    from trimtab.descheduling.policy_conflicts import Scoring
    from trimtab.kube.wire.files.documents import Document
    from trimtab.kube.wire.identity import ObjectIdentity


class ClusterSource(Struct, frozen=True, kw_only=True):
    """The options with which a command selects its cluster, see :func:`trimtab.cli.options.cluster_options`.

    Attributes:
        cluster: a file, a folder or ``-``; ``None`` for the live cluster.
        kubeconfig: the kubeconfig of the live cluster; ``None`` for kubectl's defaults.
        context: the context of the kubeconfig; ``None`` for its current one.
        skip_invalid: report invalid objects and continue, instead of raising.
    """

    cluster: str | None = None
    kubeconfig: str | None = None
    context: str | None = None
    skip_invalid: bool = False

    def check(self) -> None:
        """Reject options that exclude each other.

        Raises:
            click.UsageError: ``--cluster`` and options for a live cluster are both given.
        """
        check_connection(self.cluster, self.kubeconfig, self.context)


def read_policy_set(
    source: ClusterSource,
    files: Sequence[str] = (),
    *,
    scoring: Scoring | None = None,
    required: bool = False,
    warn: Callable[[str], None] = print_warning,
) -> PolicySet:
    """Read the custom resources that configure trimtab: from files, or else from the cluster.

    Args:
        source: the cluster.
        files: files with policies; if there are none, the policies in the cluster are read.
        scoring: the scheduler's scoring strategy, for the check for conflicts.
        required: whether it is an error that there are no policies.
        warn: called with a warning for each kind that the user may not list; by default it is printed on stderr.

    Raises:
        click.UsageError: the cluster is read from standard input, and no files are given.
        InputError: a policy is invalid, policies conflict with each other, or there are none.
        CommandError: the API server does not respond or refuses a request.
    """
    from trimtab.cli.autoscalers import AutoscalerDocuments
    from trimtab.cli.cluster_policies import cluster_policies
    from trimtab.cli.policies import (
        NodePressurePolicies,
        PlacementAdmissions,
        SchedulerPolicies,
        TaintManagers,
        decode_policies,
        read_policies,
        refuse_conflicts,
        sorted_policies,
    )

    if (*files, source.cluster).count(STDIN) > 1:
        raise click.UsageError("standard input (-) can be given only once: for --cluster or for one --policy")
    autoscalers, schedulers, taints = AutoscalerDocuments(), SchedulerPolicies(), TaintManagers()
    admissions, pressure = PlacementAdmissions(), NodePressurePolicies()
    readers = (autoscalers, schedulers, taints, admissions, pressure)
    if files:
        found = read_policies(files, skip_invalid=source.skip_invalid, readers=readers)
    elif source.cluster == STDIN and not required:
        return PolicySet()
    else:
        documents = cluster_policies(source.cluster, kubeconfig=source.kubeconfig, context=source.context, warn=warn)
        found = decode_policies(documents, skip_invalid=source.skip_invalid, readers=readers)
    if required and not found and not any(readers):
        raise InputError("contains no policy; give one with --policy", source=source.cluster or "the cluster")
    wanted = sorted_policies(found)
    refuse_conflicts(wanted, scoring)
    return PolicySet(
        descheduler=wanted,
        cluster_autoscaler=autoscalers.cluster,
        machine_autoscalers=autoscalers.machine,
        priorities=autoscalers.priorities,
        taint_manager=taints.object,
        schedulers=tuple(schedulers.policies),
        pressure=tuple(pressure.policies),
        admission=admissions.object,
    )


def policy_set_of(documents: Iterable[tuple[str, Document]], on_invalid: Callable[[InputError], None]) -> PolicySet:
    """Return the custom resources in documents as they are, also if they conflict with each other.

    Invalid objects, which the operator does not process either, are omitted.

    Args:
        documents: the documents, each with its source for error messages.
        on_invalid: called with the error of each invalid object.
    """
    from trimtab.cli.policies import (
        Autoscalers,
        NodePressurePolicies,
        PlacementAdmissions,
        SchedulerPolicies,
        TaintManagers,
        decode_policies,
        sorted_policies,
    )

    autoscalers, schedulers, taints = Autoscalers(), SchedulerPolicies(), TaintManagers()
    admissions, pressure = PlacementAdmissions(), NodePressurePolicies()
    readers = (autoscalers, schedulers, taints, admissions, pressure)
    found = decode_policies(documents, readers=readers, on_invalid=on_invalid)
    return PolicySet(
        descheduler=sorted_policies(found),
        cluster_autoscaler=autoscalers.cluster,
        machine_autoscalers=autoscalers.machine,
        taint_manager=taints.object,
        schedulers=tuple(schedulers.policies),
        pressure=tuple(pressure.policies),
        admission=admissions.object,
    )


def load_cluster_input(
    source: ClusterSource,
    policies: PolicySet,
    *,
    now: int | None = None,
    machines: bool = False,
    stats: bool | str = False,
    kubelets: bool = False,
    prometheus: PrometheusSettings | None = None,
    managed_fields: tuple[str, str] | None = None,
    history: bool = False,
    objects: bool = True,
    audit_options: Mapping[str, Any] | None = None,
) -> ClusterInput:
    """Read a cluster, and what else its policies need.

    Args:
        source: the cluster.
        policies: the policies to plan for.
        now: the time, in seconds since the epoch; ``None`` for the time at which all data has been read.
        machines: whether to read the objects that an autoscaler needs, even if nothing configures autoscaling.
        stats: whether to read the stats of nodes; the name of a node to read only those of this node.
        kubelets: whether the stats of a live cluster are read from kubelets. Otherwise only the memory is known.
        prometheus: the Prometheus server for policies with a query; ``None`` if it is not configured.
        managed_fields: the kind and name of an object whose managedFields are read.
        history: whether to read the recorded actions of the controllers.
        objects: whether anything but the audit needs the cluster. If not, the snapshot of a live cluster is empty.
        audit_options: keyword arguments of :class:`~trimtab.cli.audit.ClusterAudit`.

    Raises:
        InputError: a file, an object in it, or the kubeconfig is invalid.
        CommandError: the API server or Prometheus does not respond or refuses a request.
    """
    from trimtab.api.strategies import KUBERNETES_METRICS, PROMETHEUS
    from trimtab.cli.sources import load_cluster
    from trimtab.kube.clock import SYSTEM_CLOCK

    names = [] if source.cluster is None else ["standard input" if source.cluster == STDIN else source.cluster]
    measured: list[Usage] = []
    rolled: list[Rollouts] = []
    of_nodes: list[NodeStats] = []
    judging = _policies_measured_by(policies.descheduler, KUBERNETES_METRICS)
    audit = _audit(source, policies, audit_options or {})
    fields = _ManagedFields(managed_fields)
    past = _History(wanted=history)
    surging = any(each.spec.single_replica == SURGE for each in policies.descheduler)

    def observe(identity: ObjectIdentity, content: msgspec.Raw | Mapping[str, Any]) -> bool:
        fields.take(identity, content)
        recorded = past.take(identity, content)
        return (audit is not None and audit.take(identity, content)) or recorded

    if objects or source.cluster is not None:
        snapshot = load_cluster(
            source.cluster,
            kubeconfig=source.kubeconfig,
            context=source.context,
            skip_invalid=source.skip_invalid,
            on_server=names.append,
            on_usage=measured.append if judging else None,
            on_rollouts=rolled.append if surging else None,
            machines=machines or policies.autoscaled,
            on_object=observe if audit is not None or managed_fields is not None or history else None,
            on_stats=of_nodes.append if stats else None,
            stats_of=stats if isinstance(stats, str) else "",
            kubelets=kubelets,
        )
    else:
        from trimtab.cluster.snapshot import Snapshot

        snapshot = Snapshot(())
    usages = {policy.name: usage for usage in measured for policy in judging}
    queried = _policies_measured_by(policies.descheduler, PROMETHEUS)
    if queried:
        from trimtab.cli.live import query_prometheus

        usages |= query_prometheus(queried, prometheus, now=now)
    when = float(int(SYSTEM_CLOCK.now()) if now is None else now)
    if source.cluster is None and managed_fields is not None:
        fields.read_live(snapshot, source)
    if source.cluster is None:
        past.read_live(source)
    return ClusterInput(
        snapshot=snapshot,
        now=when,
        read_at=None
        if now is not None
        else max((node.heartbeat or 0.0 for node in snapshot.nodes.at if node), default=0.0),
        source=names[0] if names else "",
        policies=policies,
        memories=eviction_memories(policies.descheduler, snapshot, now=when),
        usages=usages,
        rollouts=rolled[0] if rolled else None,
        audit=None if audit is None else audit.result(),
        stats=of_nodes[0] if of_nodes else NodeStats(),
        managed_fields=fields.found,
        history=past.entries(),
    )


def _audit(source: ClusterSource, policies: PolicySet, options: Mapping[str, Any]) -> ClusterAudit | None:
    if policies.admission is None:
        return None
    from trimtab.cli.audit import ClusterAudit, audit_live

    audit = ClusterAudit(policies.admission.spec, **options)
    if source.cluster is None:
        audit_live(audit, kubeconfig=source.kubeconfig, context=source.context, skip_invalid=source.skip_invalid)
    return audit


def _policies_measured_by(policies: Sequence[DeschedulerPolicy], source: str) -> list[DeschedulerPolicy]:
    """Return the policies that read actual utilization from the given source."""
    from trimtab.descheduling.planning.node_usage import metrics_utilization_of

    return [policy for policy in policies if (wanted := metrics_utilization_of(policy)) and wanted.source == source]


class _History:
    """Reads the recorded actions of the controllers.

    Args:
        wanted: whether to read them.
    """

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._found: list[Mapping[str, Any]] = []

    def take(self, identity: ObjectIdentity, content: msgspec.Raw | Mapping[str, Any]) -> bool:
        """Keep the object if it contains recorded actions, and return whether it does."""
        from trimtab.kube.resources import DESCHEDULING_RUNS, HISTORY_RECORDS

        if not self._wanted or identity.kind not in (HISTORY_RECORDS.kind, DESCHEDULING_RUNS.kind):
            return False
        if identity.api_version not in ("", HISTORY_RECORDS.api_version):
            return False
        decoded = msgspec.json.decode(content) if isinstance(content, msgspec.Raw) else content
        self._found.append({**decoded, "kind": identity.kind})
        return True

    def read_live(self, source: ClusterSource) -> None:
        """Read the recorded actions in the live cluster. Warn on stderr if the user may not read them.

        Raises:
            CommandError: the API server does not respond or refuses a request.
        """
        from trimtab.cli.cluster_policies import cluster_policies
        from trimtab.kube.resources import DESCHEDULING_RUNS, HISTORY_RECORDS

        if not self._wanted:
            return
        read = cluster_policies(
            None,
            kubeconfig=source.kubeconfig,
            context=source.context,
            resources=(HISTORY_RECORDS, DESCHEDULING_RUNS),
        )
        self._found += [document.content for _, document in read if isinstance(document.content, dict)]

    def entries(self) -> tuple[HistoryEntry, ...]:
        """Return the recorded actions, the oldest first."""
        from trimtab.inspection.history import entries_of

        return entries_of(self._found) if self._found else ()


class _ManagedFields:
    """Reads the managedFields of one object.

    Args:
        wanted: its kind and its name; ``None`` to read nothing.
    """

    def __init__(self, wanted: tuple[str, str] | None) -> None:
        self._wanted = wanted
        self.found: dict[tuple[str, str], tuple[Mapping[str, Any], ...]] = {}

    def take(self, identity: ObjectIdentity, content: msgspec.Raw | Mapping[str, Any]) -> None:
        """Read the managedFields if the object is the wanted one."""
        if self._wanted == (identity.kind, identity.name):
            self._read(msgspec.json.decode(content) if isinstance(content, msgspec.Raw) else content)

    def read_live(self, snapshot: Snapshot, source: ClusterSource) -> None:
        """Read the managedFields of a Node in the live cluster. Do nothing if the node does not exist."""
        from trimtab.cli.live import with_api
        from trimtab.kube.resources import NODES
        from trimtab.kube.verbs import get

        kind, name = self._wanted or ("", "")
        if kind == NODES.kind and name in snapshot.nodes.slot_of:
            self._read(
                with_api(lambda api: get(api, NODES, name), kubeconfig=source.kubeconfig, context=source.context)
            )

    def _read(self, manifest: Mapping[str, Any]) -> None:
        metadata = manifest.get("metadata")
        entries = metadata.get("managedFields") if isinstance(metadata, dict) else None
        if self._wanted is not None:
            self.found[self._wanted] = tuple(each for each in entries or () if isinstance(each, dict))

"""Loads the snapshot from its source: files or a live API server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from trimtab.api.bounds import plural
from trimtab.cli.errors import InvalidObjectReporter
from trimtab.cli.options import STDIN
from trimtab.kube.errors import InputError
from trimtab.kube.printable import printable

if TYPE_CHECKING:
    import msgspec

    from trimtab.cluster.snapshot import Snapshot
    from trimtab.cluster.usage.measurement import Usage
    from trimtab.cluster.workloads.rollouts import Rollouts
    from trimtab.inspection.node_stats import NodeStats
    from trimtab.kube.objects import KubeObject
    from trimtab.kube.wire.files.reader import OnObject
    from trimtab.kube.wire.identity import ObjectIdentity


def load_cluster(
    cluster: str | None,
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    skip_invalid: bool = False,
    on_server: Callable[[str], None] | None = None,
    on_usage: Callable[[Usage], None] | None = None,
    on_rollouts: Callable[[Rollouts], None] | None = None,
    machines: bool = False,
    on_object: OnObject | None = None,
    on_stats: Callable[[NodeStats], None] | None = None,
    stats_of: str = "",
    kubelets: bool = False,
) -> Snapshot:
    """Load a cluster into a snapshot.

    Args:
        cluster: a file, a folder or ``-``; ``None`` for the live cluster.
        kubeconfig: the kubeconfig of the live cluster; ``None`` for kubectl's defaults or, if there are none, the
            service account.
        context: the context of the kubeconfig; ``None`` for its current one.
        skip_invalid: report invalid objects and continue, instead of raising.
        on_server: called with the URL of the live cluster's API server.
        on_usage: called with the usage of nodes and pods; if ``None``, the metrics API is not read.
        on_rollouts: called with the Deployments; if ``None``, they are not read.
        machines: whether to also read the objects that autoscalers need from a live cluster. Files are always read
            completely.
        on_object: called with each object of files. It is not called for a live cluster.
        on_stats: called with the stats of the nodes; if ``None``, they are not read.
        stats_of: the only node of a live cluster whose stats are read; empty for all nodes.
        kubelets: whether the stats of a live cluster are read from kubelets. Otherwise only the memory is known.

    Raises:
        InputError: a file, an object in it, or the kubeconfig is invalid.
        CommandError: the API server does not respond or refuses a request.
    """
    if cluster is None:
        from trimtab.cli.live import load_live

        return load_live(
            kubeconfig=kubeconfig,
            context=context,
            skip_invalid=skip_invalid,
            on_server=on_server,
            on_usage=on_usage,
            on_rollouts=on_rollouts,
            machines=machines,
            on_stats=on_stats,
            stats_of=stats_of,
            kubelets=kubelets,
        )
    return read_cluster(
        cluster,
        skip_invalid=skip_invalid,
        on_usage=on_usage,
        on_rollouts=on_rollouts,
        on_object=on_object,
        on_stats=on_stats,
    )


def default_namespace(cluster: str | None, *, kubeconfig: str | None = None, context: str | None = None) -> str:
    """Return the namespace of objects that a user names without one: that of the context, or ``default`` for files.

    Raises:
        InputError: the kubeconfig cannot be read.
    """
    from trimtab.kube.connection.contexts import load_namespace

    return "default" if cluster is not None else load_namespace(kubeconfig, context=context)


def read_cluster(
    cluster: str,
    *,
    skip_invalid: bool = False,
    on_usage: Callable[[Usage], None] | None = None,
    on_rollouts: Callable[[Rollouts], None] | None = None,
    on_object: OnObject | None = None,
    on_stats: Callable[[NodeStats], None] | None = None,
) -> Snapshot:
    """Load a cluster from a file, all files of a folder, or standard input (``-``).

    The files may also contain NodeMetrics, PodMetrics, Deployments and the summaries of kubelets.

    Raises:
        InputError: a file cannot be read, an object is invalid, or the files contain no object that planners read.
    """
    from msgspec.structs import replace

    from trimtab.cluster.snapshot import Snapshot
    from trimtab.cluster.usage.measurement import usage_of
    from trimtab.cluster.workloads.pod_defaults import with_priorities
    from trimtab.cluster.workloads.rollouts import rollouts_of
    from trimtab.inspection.node_stats import NodeStats
    from trimtab.kube.resources import DEPLOYMENTS, NODE_METRICS, POD_METRICS
    from trimtab.kube.wire.files.reader import read_objects
    from trimtab.kube.wire.identity import GROUPS, kind_of

    source = sys.stdin.buffer if cluster == STDIN else Path(cluster)
    others = () if on_usage is None and on_stats is None else (NODE_METRICS.kind, POD_METRICS.kind)
    others = others if on_rollouts is None else (*others, DEPLOYMENTS.kind)
    used = 0
    unread = UnreadNodeGroups()

    def observe(identity: ObjectIdentity, content: msgspec.Raw | Mapping[str, Any]) -> bool:
        nonlocal used
        unread.take(identity)
        taken = on_object is not None and on_object(identity, content)
        used += taken
        return taken

    stats = NodeStats()
    skipping = InvalidObjectReporter() if skip_invalid else None
    found = read_objects(
        source,
        skip_invalid=skipping,
        keep_kinds=others,
        on_object=observe,
        on_untyped=stats.take,
    )
    if not found.objects and not used:
        kinds = ", ".join(dict.fromkeys(map(kind_of, GROUPS)))
        raise InputError(f"contains no object that trimtab reads; it reads {kinds}", source=cluster)
    _warn_of_claims(cluster, found.objects)
    usage = usage_of((each for each in found.others if each["kind"] != DEPLOYMENTS.kind), taken=0.0)
    if on_stats is not None:
        stats.metrics = [each for each in found.others if each["kind"] != DEPLOYMENTS.kind]
        on_stats(stats)
    if on_usage is not None:
        on_usage(usage if usage.nodes else replace(usage, problem=f"{cluster} contains no {NODE_METRICS.kind}"))
    if on_rollouts is not None:
        rollouts = rollouts_of(each for each in found.others if each["kind"] == DEPLOYMENTS.kind)
        on_rollouts(
            rollouts if rollouts.found else replace(rollouts, problem=f"{cluster} contains no {DEPLOYMENTS.kind}")
        )
    snapshot = Snapshot(with_priorities(found.objects))
    _warn_of_missing_nodes(cluster, snapshot)
    unread.warn(cluster)
    return snapshot


SHOWN_NODES: Final = 5
"""Maximum number of missing nodes that a warning names."""


def _warn_of_missing_nodes(cluster: str, snapshot: Snapshot) -> None:
    """Warn on stderr that pods are ignored because the files lack their nodes.

    Files without bound pods are not reported: a cluster may have node groups without nodes, and some commands need
    no nodes.
    """
    from trimtab.inspection.missing_nodes import pods_without_node

    stray = pods_without_node(snapshot)
    nodes = stray["nodes"]
    names = ", ".join(nodes[:SHOWN_NODES]) + (f" and {len(nodes) - SHOWN_NODES} more" if nodes[SHOWN_NODES:] else "")
    if not nodes:
        return
    if not len(snapshot.nodes):
        _warn(
            f"{cluster}: contains no Node, so no pod can be placed; pods on its nodes ({names}) are ignored: "
            f"{stray['pods']} (trimtab snapshot saves all kinds)"
        )
    else:
        _warn(
            f"{cluster}: {stray['pods']} pods are on nodes that it does not contain ({names}), so they are "
            "ignored; to forecast the loss of a node, keep it in the file and use trimtab what-if --without node/NAME"
        )


class UnreadNodeGroups:
    """Counts node groups of APIs that trimtab does not read, for example of cluster.k8s.io."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], list[str]] = {}

    def take(self, identity: ObjectIdentity) -> None:
        """Count the object if its kind is a node group's and its API group is not one that trimtab reads."""
        from trimtab.kube.wire.identity import is_unread_node_group

        if is_unread_node_group(identity):
            group = str(identity.api_version).rpartition("/")[0]
            self._found.setdefault((str(identity.kind), group), []).append(identity.name)

    def warn(self, source: str) -> None:
        """Print a warning on stderr for each kind and API group."""
        for (kind, group), names in sorted(self._found.items()):
            shown = f"{', '.join(sorted(names)[:SHOWN_NODES])}{', …' if names[SHOWN_NODES:] else ''}"
            _warn(
                f"{source}: {plural(len(names), kind)} of {group} ({shown}) are not read, so the autoscaler does not "
                "scale them; it scales those of machine.openshift.io and cluster.x-k8s.io"
            )


def _warn(message: str) -> None:
    click.echo(f"trimtab: warning: {printable(message)}", err=True)


def _warn_of_claims(cluster: str, objects: Iterable[KubeObject]) -> None:
    """Warn on stderr that plans will be wrong if pods use PersistentVolumeClaims but the files contain none."""
    from trimtab.kube.objects import PersistentVolumeClaim, Pod

    users = 0
    for each in objects:
        if isinstance(each, PersistentVolumeClaim):
            return
        users += isinstance(each, Pod) and any(volume.claim for volume in each.spec.volumes)
    if users:
        _warn(
            f"{cluster}: contains no PersistentVolumeClaim, so {users} pods that use one fit on no node (trimtab "
            "snapshot saves all kinds that are needed)"
        )

"""Where the picture of the cluster comes from: files, or a live API server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.cli.errors import Skipping
from trimtab.cli.options import STDIN
from trimtab.kube.errors import InputError

if TYPE_CHECKING:
    from trimtab.cluster.rollouts import Rollouts
    from trimtab.cluster.snapshot import Snapshot
    from trimtab.cluster.usage import Usage
    from trimtab.kube.objects import KubeObject


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
) -> Snapshot:
    """The picture of a cluster.

    Args:
        cluster: a file, a folder or ``-``; ``None`` for the live cluster.
        kubeconfig: of the live cluster; ``None`` to look where kubectl does, then for a service account.
        context: of the kubeconfig; ``None`` for its current one.
        skip_invalid: report objects that cannot be used and go on, instead of raising.
        on_server: told the URL of the live cluster's API server.
        on_usage: told what nodes and pods really use; without it nobody is asked.
        on_rollouts: told the Deployments; likewise.
        machines: whether what autoscalers read beside is read of a live cluster; of files all is.

    Raises:
        InputError: a file, an object in it, or the kubeconfig cannot be used.
        Reported: the API server does not answer, or refuses.
    """
    if cluster is None:
        from trimtab.cli.live import load_live  # aiohttp is imported only for a live cluster

        return load_live(
            kubeconfig=kubeconfig,
            context=context,
            skip_invalid=skip_invalid,
            on_server=on_server,
            on_usage=on_usage,
            on_rollouts=on_rollouts,
            machines=machines,
        )
    return read_cluster(cluster, skip_invalid=skip_invalid, on_usage=on_usage, on_rollouts=on_rollouts)


def read_cluster(
    cluster: str,
    *,
    skip_invalid: bool = False,
    on_usage: Callable[[Usage], None] | None = None,
    on_rollouts: Callable[[Rollouts], None] | None = None,
) -> Snapshot:
    """The picture of a cluster from a file, all files of a folder, or standard input (``-``).

    What ``kubectl get nodes.metrics.k8s.io,pods.metrics.k8s.io -A -o yaml`` printed and Deployments may be among it.

    Raises:
        InputError: it cannot be read, an object in it cannot be used, or it holds none that planners read.
    """
    from msgspec.structs import replace

    from trimtab.cluster.rollouts import rollouts_of
    from trimtab.cluster.snapshot import Snapshot
    from trimtab.cluster.usage import usage_of
    from trimtab.kube.resources import DEPLOYMENTS, NODE_METRICS, POD_METRICS
    from trimtab.kube.wire import read_objects
    from trimtab.kube.wire.head import GROUPS, kind_of

    source = sys.stdin.buffer if cluster == STDIN else Path(cluster)
    others = () if on_usage is None else (NODE_METRICS.kind, POD_METRICS.kind)
    others = others if on_rollouts is None else (*others, DEPLOYMENTS.kind)
    found = read_objects(source, skip_invalid=Skipping() if skip_invalid else None, keep_kinds=others)
    if not found.objects:
        kinds = ", ".join(dict.fromkeys(map(kind_of, GROUPS)))
        raise InputError(f"holds no object that planners read, which are {kinds}", source=cluster)
    _warn_of_claims(cluster, found.objects)
    if on_usage is not None:
        usage = usage_of((each for each in found.others if each["kind"] != DEPLOYMENTS.kind), taken=0.0)
        on_usage(usage if usage.nodes else replace(usage, problem=f"{cluster} holds no {NODE_METRICS.kind}"))
    if on_rollouts is not None:
        rollouts = rollouts_of(each for each in found.others if each["kind"] == DEPLOYMENTS.kind)
        on_rollouts(rollouts if rollouts.found else replace(rollouts, problem=f"{cluster} holds no {DEPLOYMENTS.kind}"))
    return Snapshot(as_admitted(found.objects))


def _warn_of_claims(cluster: str, objects: Iterable[KubeObject]) -> None:
    """Say on stderr that pods use claims of which there are none at all: a dump of fewer kinds than planners read."""
    from trimtab.kube.objects import PersistentVolumeClaim, Pod

    users = 0
    for each in objects:
        if isinstance(each, PersistentVolumeClaim):
            return
        users += isinstance(each, Pod) and any(volume.claim for volume in each.spec.volumes)
    if users:
        click.echo(
            f"trimtab: warning: {cluster}: holds no PersistentVolumeClaim; pods that use one fit nowhere, "
            f"of which there are {users} (trimtab snapshot saves all that is read)",
            err=True,
        )


def as_admitted(objects: Iterable[KubeObject]) -> Iterator[KubeObject]:
    """The objects, with the priorities that pods have by their class where a file does not say them as numbers.

    The API server writes the number into every pod (its Priority plugin); a pod written by hand has the name only. The
    system's own classes need not be in the file.
    """
    from msgspec.structs import replace

    from trimtab.disruption.protections.priority_threshold import SYSTEM_CLASSES
    from trimtab.kube.objects import Pod, PodSpec, PriorityClass

    objects = tuple(objects)
    values = SYSTEM_CLASSES | {each.name: each.value for each in objects if isinstance(each, PriorityClass)}
    defaults = [each.value for each in objects if isinstance(each, PriorityClass) and each.global_default]
    default = min(defaults, default=None)  # of several the API server takes the lowest
    known: dict[int, PodSpec] = {}
    for each in objects:
        if not isinstance(each, Pod) or each.spec.priority is not None:
            yield each
            continue
        spec = known.get(id(each.spec))
        if spec is None:
            name = each.spec.priority_class_name
            value = values.get(name) if name else default
            spec = known[id(each.spec)] = each.spec if value is None else replace(each.spec, priority=value)
        yield each if spec is each.spec else replace(each, spec=spec)

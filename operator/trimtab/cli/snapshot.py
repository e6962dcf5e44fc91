"""``trimtab snapshot``: saves the live cluster to a file for ``--cluster``."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import click

from trimtab.cli.errors import report_errors
from trimtab.cli.options import STDIN, connection_options
from trimtab.kube.errors import InputError

if TYPE_CHECKING:
    from trimtab.cli.live import ListWriter

YAML_SUFFIXES: Final = (".yaml", ".yml")


@click.command()
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE",
    default=STDIN,
    help="File to write: .yaml or .yml for YAML, .json for JSON, - (the default) for JSON on standard output. "
    "Use JSON for large clusters: it is written and read many times faster.",
)
@click.option(
    "--stats",
    is_flag=True,
    help="Also save the stats of nodes, for plans with NodePressurePolicies; needs permission to get nodes/proxy.",
)
@connection_options
def snapshot(*, target: str, stats: bool, kubeconfig: str | None, context: str | None) -> None:
    """Save the live cluster with its policies and its history as a v1 List, for `--cluster`.

    The snapshot contains nodes, pods, PodDisruptionBudgets, namespaces, PriorityClasses, LimitRanges, RuntimeClasses,
    PersistentVolumes and claims, the storage.k8s.io objects, services, the controllers that own pods, and the machines
    and node groups of OpenShift's Machine API and Cluster API. It contains no Secrets and no ConfigMaps. It also
    contains trimtab's own custom resources: the policies with their statuses, and the HistoryRecords and
    DeschedulingRuns, so that `plan`, `status`, `explain`, `history` and `diff` answer for the file what they answer for
    the cluster.

    Snapshots are often shared, so they contain only the fields that planners need. Of containers, they contain the
    name, image, ports, resources and restart policy, but no environment, commands, arguments, probes or hooks. Of
    container statuses, they contain the restart count and the reasons for waiting or termination, but no messages,
    which may quote logs. Of services and owners, they contain the selectors, and of DaemonSets also the pod template.
    Omitted are managedFields (except whether they contain the nodeName of a pod), the last-applied annotation, secret
    and config map volumes, references to secrets, parameters of drivers and storage classes, and provider-specific
    fields of machines. Labels and other annotations are included unchanged. Messages that trimtab has written to its
    own resources are included too, without user names, passwords and queries of URLs.

    With --stats, the snapshot also contains what kubelets return at /stats/summary, reduced to the usage of memory,
    file systems and processes by nodes, pods and containers. To show trends in a plan, put several snapshots of stats
    from different times in one folder.

    A plan for the snapshot is identical to a plan for the cluster at that time. Without --policy, it is for the
    policies in the file. Policies that use metrics, or that have singleReplica: Surge, need further files: save the
    output of `kubectl get -A -o yaml` for nodes.metrics.k8s.io and pods.metrics.k8s.io, or for deployments, in the same
    folder, and pass the folder to --cluster.
    """
    from trimtab.cli.live import Progress, warn_absent, with_api, write_cluster

    with report_errors():
        kind, progress = _writer(target), Progress(sys.stderr)
        with _opened(target) as stream:
            writer = kind(stream)
            with_api(
                lambda api: write_cluster(api, writer, progress=progress, on_absent=warn_absent, stats=stats),
                kubeconfig=kubeconfig,
                context=context,
            )


def _writer(target: str) -> Callable[[IO[bytes]], ListWriter]:
    from trimtab.cli.live import JsonList, YamlList

    suffix = Path(target).suffix.lower()
    if target == STDIN or suffix == ".json":
        return JsonList
    if suffix in YAML_SUFFIXES:
        return YamlList
    raise InputError(
        f"unknown file name extension; use .json, {', '.join(YAML_SUFFIXES)}, or - for JSON on standard output",
        source=target,
    )


@contextmanager
def _opened(target: str) -> Iterator[IO[bytes]]:
    """Yield a seekable file that replaces the target on success. On failure, the target is unchanged."""
    if target == STDIN:
        with tempfile.TemporaryFile(prefix="trimtab-") as stream:
            yield stream
            stream.seek(0)
            shutil.copyfileobj(stream, sys.stdout.buffer)
        return
    path = Path(target)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as stream:
            yield stream
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)

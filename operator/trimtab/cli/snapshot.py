"""``trimtab snapshot``: the live cluster as a file that ``--cluster`` reads."""

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

from trimtab.cli.errors import reported
from trimtab.cli.options import STDIN, connection_options
from trimtab.kube.errors import InputError

if TYPE_CHECKING:
    from trimtab.cli.cluster_list import Writer

YAML_SUFFIXES: Final = (".yaml", ".yml")


@click.command()
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE",
    default=STDIN,
    help="Where to: .yaml or .yml for YAML, .json for JSON, - (the default) for JSON on standard output. "
    "JSON is the form for big clusters: it is written and read many times faster.",
)
@connection_options
def snapshot(*, target: str, kubeconfig: str | None, context: str | None) -> None:
    """Save the live cluster as a v1 List of what planners read, for `--cluster`.

    It holds nodes, pods, disruption budgets, namespaces and priority classes, volumes, claims and what storage.k8s.io
    says of them, services and the owners of pods, machines and what makes them where the cluster has any (OpenShift's
    Machine API, Cluster API), and no Secrets or ConfigMaps. Snapshots get shared, so of containers only name, image,
    ports, resources and restart policy are kept: no environment, no commands, arguments, probes or hooks. Of their
    statuses it is kept how often they were restarted, and why they wait or have ended, without messages, which may
    quote a log. Of services and owners the selectors are kept, of DaemonSets the pods that they make, of machines
    nothing that only their provider reads. managedFields, the last-applied annotation, volumes of secrets and config
    maps, references to secrets, and parameters of drivers and storage classes are left out too. Labels and other
    annotations are kept as they are.

    A plan on the snapshot is the plan on the cluster as it was then. Policies that judge by real use, or that renew
    single replicas by a rollout, need more: put what kubectl get -A -o yaml prints of nodes.metrics.k8s.io and
    pods.metrics.k8s.io, or of deployments, beside it and give --cluster the folder.
    """
    from trimtab.cli.cluster_list import Progress, write_cluster
    from trimtab.cli.live import warn_absent, with_api

    with reported():
        kind, progress = _writer(target), Progress(sys.stderr)
        with _opened(target) as stream:
            writer = kind(stream)
            with_api(
                lambda api: write_cluster(api, writer, progress=progress, on_absent=warn_absent),
                kubeconfig=kubeconfig,
                context=context,
            )


def _writer(target: str) -> Callable[[IO[bytes]], Writer]:
    from trimtab.cli.cluster_list import JsonList, YamlList

    suffix = Path(target).suffix.lower()
    if target == STDIN or suffix == ".json":
        return JsonList
    if suffix in YAML_SUFFIXES:
        return YamlList
    raise InputError(
        f"the name's ending says the format: allowed are .json, {', '.join(YAML_SUFFIXES)}, and - for JSON on standard "
        "output",
        source=target,
    )


@contextmanager
def _opened(target: str) -> Iterator[IO[bytes]]:
    """A seekable file that becomes the target when all went well; what was there before stays if not."""
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

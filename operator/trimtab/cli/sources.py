"""Where the picture of the cluster comes from: files, or a live API server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.cli.errors import Skipping
from trimtab.cli.options import STDIN
from trimtab.kube.errors import InputError

if TYPE_CHECKING:
    from trimtab.cluster.snapshot import Snapshot


def load_cluster(
    cluster: str | None, *, kubeconfig: str | None = None, context: str | None = None, skip_invalid: bool = False
) -> Snapshot:
    """The picture of a cluster.

    Args:
        cluster: a file, a folder or ``-``; ``None`` for the live cluster.
        kubeconfig: of the live cluster; ``None`` to look where kubectl does, then for a service account.
        context: of the kubeconfig; ``None`` for its current one.
        skip_invalid: report objects that cannot be used and go on, instead of raising.

    Raises:
        InputError: a file, an object in it, or the kubeconfig cannot be used.
        Reported: the API server does not answer, or refuses.
    """
    if cluster is None:
        from trimtab.cli.live import load_live  # aiohttp is imported only for a live cluster

        return load_live(kubeconfig=kubeconfig, context=context, skip_invalid=skip_invalid)
    return read_cluster(cluster, skip_invalid=skip_invalid)


def read_cluster(cluster: str, *, skip_invalid: bool = False) -> Snapshot:
    """The picture of a cluster from a file, all files of a folder, or standard input (``-``).

    Raises:
        InputError: it cannot be read, an object in it cannot be used, or it holds none that planners read.
    """
    from trimtab.cluster.snapshot import Snapshot
    from trimtab.kube.wire import read_objects
    from trimtab.kube.wire.decode import GROUPS

    source = sys.stdin.buffer if cluster == STDIN else Path(cluster)
    found = read_objects(source, skip_invalid=Skipping() if skip_invalid else None)
    if not found.objects:
        raise InputError(f"holds no object that planners read, which are {', '.join(GROUPS)}", source=cluster)
    return Snapshot(found.objects)

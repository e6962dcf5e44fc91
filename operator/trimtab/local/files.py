"""The files of a cluster that command lines and users name: written before each start, removed by name at the end."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from trimtab.local import kubeconfig
from trimtab.local.certificates import USERS
from trimtab.local.components import STAGES, Layout
from trimtab.local.record import Record

_OWN: Final = ("keys", "logs", "stages", "etcd", "cluster.json", "cluster.tmp")


def write(layout: Layout, record: Record, *, stages: Path | None) -> None:
    """Write a kubeconfig for every user, with the admin's copies, and kwok's stages.

    Args:
        layout: where they go.
        record: of the cluster.
        stages: where kwok's stages come from; ``None`` where it does not run.
    """
    for user in USERS:
        content = kubeconfig.render(
            name=record.name, server=layout.server, ca=layout.keys.ca, token=layout.keys.token(user), user=user
        )
        copies = record.copies if user == "admin" else ()
        for target in (layout.kubeconfig(user), *map(Path, copies)):
            kubeconfig.write(target, content)
    if stages is not None:
        layout.stages.mkdir(exist_ok=True)
        for stage in STAGES:
            shutil.copyfile(stages / stage, layout.stages / stage)


def remove(directory: Path, record: Record) -> None:
    """Remove our files by name, and the directory only if it is empty then: the caller may have chosen it."""
    for copy in map(Path, record.copies):
        if kubeconfig.belongs_to(copy, record.name):
            copy.unlink()
    for path in (*(directory / name for name in _OWN), *directory.glob("*kubeconfig")):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    if not any(directory.iterdir()):
        directory.rmdir()

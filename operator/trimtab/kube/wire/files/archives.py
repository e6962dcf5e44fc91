"""Reads files of clusters from folders and archives, among them those of ``oc adm inspect`` and ``oc adm must-gather``.

The layout of ``oc adm inspect`` is::

    cluster-scoped-resources/core/nodes/NAME.yaml
    namespaces/NAMESPACE/core/pods.yaml
    namespaces/NAMESPACE/pods/NAME/NAME.yaml

must-gather puts it into a folder that is named after its image, and adds other files, which are no Kubernetes objects.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from typing import Final

from trimtab.kube.errors import InputError

SUFFIXES: Final = (".json", ".yaml", ".yml")
"""Suffixes of the files that are read in a directory or an archive."""

ARCHIVE_SUFFIXES: Final = (".tar", ".tar.gz", ".tgz")

_CLUSTER_SCOPED: Final = "cluster-scoped-resources"
_NAMESPACES: Final = "namespaces"
_UNREAD_GROUPS: Final = frozenset(
    {
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "apps.openshift.io",
        "build.openshift.io",
        "image.openshift.io",
        "imageregistry.operator.openshift.io",
        "machineconfiguration.openshift.io",
        "monitoring.coreos.com",
        "operators.coreos.com",
        "packages.operators.coreos.com",
        "rbac.authorization.k8s.io",
        "route.openshift.io",
        "samples.operator.openshift.io",
        "security.openshift.io",
        "template.openshift.io",
    }
)
"""Folders of API groups that contain nothing that trimtab reads, and that make up most of a must-gather."""


def texts(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of a file, or of all files in a folder or an archive, sorted by name.

    Raises:
        InputError: there is no file to read, or the archive is damaged.
        OSError: a file cannot be read.
    """
    if path.is_dir():
        files = (each for each in path.rglob("*") if each.suffix in SUFFIXES and each.is_file())
        for name in _wanted((each.relative_to(path) for each in files), str(path)):
            yield str(path / name), (path / name).read_bytes()
    elif path.name.endswith(ARCHIVE_SUFFIXES):
        yield from _of_archive(path)
    elif path.suffix == ".gz":
        try:
            yield str(path), gzip.decompress(path.read_bytes())
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputError(f"is not a gzip file: {error}", source=str(path)) from None
    else:
        yield str(path), path.read_bytes()


def _of_archive(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        with tarfile.open(path) as archive:  # members are read and never written to the file system
            members = {PurePath(each.name): each for each in archive.getmembers() if each.isfile()}
            for name in _wanted((each for each in members if each.suffix in SUFFIXES), str(path)):
                content = archive.extractfile(members[name])
                if content is not None:
                    yield f"{path}:{name}", content.read()
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"is not a tar archive: {error}", source=str(path)) from None


def _wanted(files: Iterable[PurePath], source: str) -> list[PurePath]:
    """Return the files to read, sorted by name.

    If some have the layout of ``oc adm inspect``, the others are not Kubernetes objects.
    """
    found = sorted(files)
    if not found:
        raise InputError(f"holds no file ending in {', '.join(SUFFIXES)}", source=source)
    inspected = [each for each in found if _is_inspected(each)]
    if not any(_CLUSTER_SCOPED in each.parts for each in inspected):
        return found
    return [each for each in inspected if not _UNREAD_GROUPS.intersection(each.parts)]


def _is_inspected(file: PurePath) -> bool:
    """Return whether a file has its place in the layout of ``oc adm inspect``."""
    folders = file.parts[:-1]
    if _CLUSTER_SCOPED in folders:
        return True
    return _NAMESPACES in folders and len(folders) - folders.index(_NAMESPACES) >= 2

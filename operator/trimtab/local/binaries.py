"""Finding the binaries of a cluster: the caller's directory, ``KUBEBUILDER_ASSETS``, else built from source."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from trimtab.kube.errors import InputError
from trimtab.local.builder import Builder
from trimtab.local.components import STAGES
from trimtab.local.progress import Progress
from trimtab.local.versions import DEFAULT_VERSION, KWOK

_VARIABLE: Final = "KUBEBUILDER_ASSETS"


class Binaries(Struct, frozen=True):
    """What a cluster starts.

    Attributes:
        paths: component to absolute path.
        versions: component to version; ``""`` where the caller brought the binary.
        stages: directory with kwok's stage files, where kwok is among the components.
    """

    paths: dict[str, Path]
    versions: dict[str, str]
    stages: Path | None


def given_directory(bin_dir: Path | None) -> Path | None:
    """The directory of binaries that the caller brings: ``--bin-dir``, else ``KUBEBUILDER_ASSETS`` (envtest's name).

    Raises:
        InputError: it was given and is no directory.
    """
    if bin_dir is None and not os.environ.get(_VARIABLE):
        return None
    path = bin_dir if bin_dir is not None else Path(os.environ[_VARIABLE])
    if not path.is_dir():
        raise InputError(f"no such directory: {path}", source="--bin-dir" if bin_dir is not None else _VARIABLE)
    return path.absolute()


def find(
    components: Sequence[str],
    *,
    version: str = DEFAULT_VERSION,
    given: Path | None = None,
    progress: Progress,
) -> Binaries:
    """The binaries of the components: those that the caller's directory has, and all others built.

    Args:
        components: whose.
        version: Kubernetes version of those that are built.
        given: the caller's directory, see :func:`given_directory`.
        progress: where builds are told.

    Raises:
        LocalError: something can't be built.
    """
    builder = Builder(version=version, progress=progress)
    brought = {} if given is None else {c: given / c for c in components if os.access(given / c, os.X_OK)}
    built = builder.ensure([component for component in components if component not in brought])
    return Binaries(
        paths={**brought, **built},
        versions={component: "" if component in brought else builder.version(component) for component in components},
        stages=_stages(given, builder) if KWOK in components else None,
    )


def _stages(given: Path | None, builder: Builder) -> Path:
    """Kwok's stage files: ``stages/`` in the caller's directory where it holds all of them, else of kwok's module."""
    if given is not None and all((given / "stages" / stage).is_file() for stage in STAGES):
        return given / "stages"
    return builder.stages()

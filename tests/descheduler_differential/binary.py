"""The real descheduler's binary: built from its Go module, as the components of the local control plane are.

The recipe is the tests' own, for nobody who uses trimtab needs it: ``module/`` pins all that it is made from.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from trimtab.local.binaries import given_directory
from trimtab.local.builder import Builder
from trimtab.local.progress import Progress
from trimtab.local.versions import Build

NAME: Final = "descheduler"
VERSION: Final = "v0.36.0"

_BUILD: Final = Build(
    module="module",
    package="sigs.k8s.io/descheduler/cmd/descheduler",
    version=VERSION,
    ldflags=f"-s -w -X sigs.k8s.io/descheduler/pkg/version.version={VERSION}",
)


def _builder(progress: Progress) -> Builder:
    return Builder(progress=progress, builds={NAME: _BUILD}, modules=Path(__file__).parent)


def at_hand() -> Path | None:
    """The binary in the directory that ``KUBEBUILDER_ASSETS`` names, or one that was built before."""
    given = given_directory(None)
    places = [given] if given is not None else []
    for place in (*places, _builder(Progress()).directory(NAME)):
        if os.access(place / NAME, os.X_OK):
            return place / NAME
    return None


def binary(progress: Progress) -> Path:
    """The binary, built where there is none: that takes some minutes, once.

    Raises:
        LocalError: it cannot be built.
    """
    return at_hand() or _builder(progress).ensure([NAME])[NAME]

"""The real descheduler's binary, built from its Go module like the components of the local control plane.

``module/`` pins all dependencies. It belongs to the tests, because users of trimtab do not need it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from trimtab_local.binaries import Builder, given_directory
from trimtab_local.progress import Progress
from trimtab_local.versions import Build

NAME: Final = "descheduler"
VERSION: Final = "v0.36.0"

_BUILD: Final = Build(
    module="module",
    package="sigs.k8s.io/descheduler/cmd/descheduler",
    version=VERSION,
    ldflags=f"-s -w -X sigs.k8s.io/descheduler/pkg/version.version={VERSION}",
)


DECODER: Final = "descheduler-decoder"
"""The program in ``module/main.go``, which decodes policies with the descheduler's code."""

_DECODER_BUILD: Final = Build(module="module", package=".", version=VERSION)


def _builder(progress: Progress) -> Builder:
    return Builder(progress=progress, builds={NAME: _BUILD, DECODER: _DECODER_BUILD}, modules=Path(__file__).parent)


def existing_binary(name: str = NAME) -> Path | None:
    """Return the binary in ``KUBEBUILDER_ASSETS`` or in the build cache; ``None`` if there is none."""
    given = given_directory(None)
    places = [given] if given is not None else []
    for place in (*places, _builder(Progress()).directory(name)):
        if os.access(place / name, os.X_OK):
            return place / name
    return None


def decoder(progress: Progress) -> Path:
    """Return the decoder. If it does not exist, it is built, which takes some minutes.

    Raises:
        LocalError: it cannot be built.
    """
    return existing_binary(DECODER) or _builder(progress).ensure([DECODER])[DECODER]


def binary(progress: Progress) -> Path:
    """Return the binary. If it does not exist, it is built, which takes some minutes.

    Raises:
        LocalError: it cannot be built.
    """
    return existing_binary() or _builder(progress).ensure([NAME])[NAME]

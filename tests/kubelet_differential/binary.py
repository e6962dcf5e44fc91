"""The kubelet's eviction manager as a program: built from its Go module, as the local control plane's components are.

The module pins k8s.io/kubernetes. Its ``main.go`` calls the manager's unexported ``synchronize`` method through
``go:linkname``, so that time can be virtual.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from trimtab_local.binaries import Builder
from trimtab_local.progress import Progress
from trimtab_local.versions import Build

NAME: Final = "kubelet-eviction"
VERSION: Final = "v1.36.3"

_BUILD: Final = Build(module="module", package=".", version=VERSION, ldflags="-s -w -checklinkname=0")


def binary(progress: Progress) -> Path:
    """Return the program. If it does not exist, it is built, which takes a minute or more.

    Raises:
        LocalError: it cannot be built.
    """
    builder = Builder(progress=progress, builds={NAME: _BUILD}, modules=Path(__file__).parent)
    return builder.ensure([NAME])[NAME]


def outcomes_of(executable: Path, timelines: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return what the kubelet's eviction manager does at each reading of each timeline."""
    lines = "\n".join(map(json.dumps, timelines))
    done = subprocess.run([executable], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]

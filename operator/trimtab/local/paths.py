"""Where things lie on disk, after the XDG base directory specification.

Two roots, because they live differently: what can be made again (binaries, Go itself) is *cache*; what describes
running processes (ids, ports, keys, etcd's data) is *state*, and deleting it would orphan them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from trimtab.kube.errors import InputError

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


def _xdg(variable: str, default: str) -> Path:
    # The specification: a relative path in the variable is invalid and is to be ignored.
    value = os.environ.get(variable, "")
    return Path(value) if Path(value).is_absolute() else Path.home() / default


def cache_root() -> Path:
    """``${XDG_CACHE_HOME:-~/.cache}/trimtab``."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "trimtab"


def state_root() -> Path:
    """``${XDG_STATE_HOME:-~/.local/state}/trimtab/local``: one directory a cluster."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "trimtab" / "local"


def cluster_directory(name: str) -> Path:
    """The directory that holds everything of the cluster ``name``.

    Raises:
        InputError: the name is not usable as a file name and as a kubeconfig context.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r}: up to 40 lower case letters, digits and '-', beginning and ending with a letter or digit",
            source="--name",
        )
    return state_root() / name

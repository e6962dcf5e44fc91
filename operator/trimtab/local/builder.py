"""Building the components from their Go modules, once, into a cache.

``operator/trimtab/local/modules`` holds a ``go.mod`` and a ``go.sum`` per module and no source: the ``tool`` lines
name what is built, and every dependency is pinned by hash. ``go install package@version`` would not do: it refuses
modules with replace lines, which Kubernetes lives by.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.resources
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from trimtab.local.components import STAGES
from trimtab.local.errors import LocalError
from trimtab.local.golang import find_go
from trimtab.local.paths import cache_root
from trimtab.local.progress import Progress
from trimtab.local.versions import DEFAULT_VERSION, KWOK, Build, release

_STAGE_FOLDERS: Final = ("node/fast", "node/heartbeat-with-lease", "pod/fast")
_KWOK_MODULE: Final = "sigs.k8s.io/kwok"


class Builder:
    """Makes binaries.

    Args:
        version: of the release whose components are made.
        progress: where builds are told.
        builds: what is made instead, by name and in order of need.
        modules: where the modules of these are, a directory each.
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
        self._modules = modules or importlib.resources.files("trimtab.local").joinpath("modules")
        self._progress = progress
        self._root = cache_root()

    @cached_property
    def _go(self) -> Path:
        return find_go(self._progress)

    def directory(self, component: str) -> Path:
        """Where the component's binary is, or will be."""
        build = self._builds[component]
        return self._root / "bin" / f"{component}-{build.version}-{self._fingerprint(build)}"

    def version(self, component: str) -> str:
        """The component's version."""
        return self._builds[component].version

    def ensure(self, components: Sequence[str]) -> dict[str, Path]:
        """The binaries by component, built where the cache has none, in order of need.

        Raises:
            LocalError: Go is missing, or a build failed; the message shows the end of its output.
        """
        if self._missing(components):
            with self._lock():
                missing = self._missing(components)  # the one that we waited for may have built them
                for index, component in enumerate(missing):
                    self._build(component, position=f"{index + 1} of {len(missing)}")
        return {component: self.directory(component) / component for component in components}

    def stages(self) -> Path:
        """The directory with kwok's stage files, fetched with kwok's module where the cache has none.

        Raises:
            LocalError: Go is missing, or the module cannot be fetched.
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
        root = self._modules.joinpath(module)
        return {name: root.joinpath(name).read_bytes() for name in ("go.mod", "go.sum")}

    def _fingerprint(self, build: Build) -> str:
        """Twelve hex digits that change with everything that the binary is made from, except the version of Go."""
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
        """A directory that appears under its name only when it is complete."""
        final.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=final.parent, prefix=".new-", ignore_cleanup_errors=True) as temporary:
            content = Path(temporary) / final.name
            content.mkdir()
            yield content
            if final.exists():  # incomplete: somebody removed files from the cache
                shutil.rmtree(final)
            content.replace(final)

    def _run(self, arguments: Sequence[str], *, module: str, title: str) -> str:
        """Run Go in a copy of the module's directory, for it wants to be able to write there; return its output."""
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
        """One build at a time: two would compile the same packages side by side. Says whom it waits for."""
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
    """The last line that was written to the file, without moving where the writer writes."""
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, 400, max(0, size - 400))
    lines = tail.decode("utf-8", errors="replace").splitlines()
    return lines[-1] if lines else ""

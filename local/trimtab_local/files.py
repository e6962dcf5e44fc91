"""Manages a cluster's files: their directories, the kubeconfigs and the record.

There are two root directories as defined by the XDG base directory specification. Files that can be created again
(binaries, Go) are in the *cache* directory. Files that describe running processes (process ids, ports, keys, etcd's
data) are in the *state* directory; deleting them would orphan the processes. The *record* is a JSON file that contains
the cluster's settings and processes. It is written after each step, so that a crash leaves no unrecorded process.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import importlib.resources
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from trimtab.kube.errors import InputError
from trimtab_local import LocalError
from trimtab_local.certificates import USERS
from trimtab_local.components import OWN_STAGES, STAGES, Launch, Layout, Settings
from trimtab_local.processes import Process

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


def _xdg(variable: str, default: str) -> Path:
    # The specification: a relative path in the variable is invalid and must be ignored.
    value = os.environ.get(variable, "")
    return Path(value) if Path(value).is_absolute() else Path.home() / default


def cache_root() -> Path:
    """Return ``${XDG_CACHE_HOME:-~/.cache}/trimtab``."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "trimtab"


def state_root() -> Path:
    """Return ``${XDG_STATE_HOME:-~/.local/state}/trimtab/local``, which contains a directory per cluster."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "trimtab" / "local"


def cluster_directory(name: str) -> Path:
    """Return the directory of all files of the cluster ``name``.

    Raises:
        InputError: the name is not valid as a file name and as a kubeconfig context.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r}: up to 40 lower case letters, digits and '-', beginning and ending with a letter or digit",
            source="--name",
        )
    return state_root() / name


def context_name(name: str) -> str:
    """Return the name of the context and cluster in the kubeconfig of the local cluster ``name``."""
    return f"trimtab-{name}"


def render_kubeconfig(
    *, name: str, server: str, ca: Path, token: str, user: str = "admin", namespace: str = "default"
) -> bytes:
    """Return the kubeconfig as YAML. It contains the CA certificate, so that the file can be moved."""
    title = context_name(name)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": title,
        "clusters": [
            {
                "name": title,
                "cluster": {
                    "server": server,
                    "certificate-authority-data": base64.b64encode(ca.read_bytes()).decode("ascii"),
                },
            }
        ],
        "users": [{"name": f"{title}-{user}", "user": {"token": token}}],
        "contexts": [{"name": title, "context": {"cluster": title, "user": f"{title}-{user}", "namespace": namespace}}],
    }
    return msgspec.yaml.encode(content)


def write_kubeconfig(path: Path, content: bytes) -> None:
    """Write a kubeconfig atomically. Only its owner can read it, because it contains a token."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)


def is_kubeconfig_of(path: Path, name: str) -> bool:
    """Return whether the file contains only what :func:`render_kubeconfig` wrote for this cluster."""
    try:
        content = msgspec.yaml.decode(path.read_bytes())
        contexts = [entry["name"] for entry in content["contexts"]]
    except (OSError, msgspec.DecodeError, KeyError, TypeError, UnicodeDecodeError):
        return False
    return contexts == [context_name(name)]


def check_kubeconfig_target(path: Path, name: str) -> None:
    """Check that the file may be overwritten, because users store the kubeconfigs of other clusters in such files.

    Raises:
        InputError: the file exists and was not written for this cluster.
    """
    if path.exists() and not is_kubeconfig_of(path, name):
        raise InputError(
            f"--kubeconfig {path}: the file exists and is not a kubeconfig of local cluster {name!r}; give a new file"
        )


_FORMAT: Final = 1


class Started(Struct, frozen=True):
    """A started component.

    Attributes:
        process: its process.
        argv: its command line.
        log: its log file.
        version: the version of the binary; ``""`` if the caller provided it.
        environment: its environment variables in addition to those that all components get.
    """

    process: Process
    argv: tuple[str, ...]
    log: str
    version: str = ""
    environment: dict[str, str] = {}

    @property
    def launch(self) -> Launch:
        """Return the command with which it was started. If another command is wanted, it must be restarted."""
        return Launch(argv=self.argv, version=self.version, environment=self.environment)


class Record(Struct, frozen=True):
    """The state of one cluster.

    Attributes:
        name: the name of the cluster.
        settings: the settings of the cluster.
        ports: the port of each component.
        started: the started components by name, in the order in which they were started.
        copies: other paths to which the admin's kubeconfig was written. ``down`` removes these files.
        bin_dir: the directory of the caller's binaries; ``""`` if there is none. It is stored so that a later ``up``
            does not use other binaries and restart everything.
        furnished: whether the initial nodes were created.
        guard: the process that stops the cluster when its parent ends; ``None`` if there is none.
        format: the version of this file's format.
    """

    name: str
    settings: Settings
    ports: dict[str, int]
    started: dict[str, Started] = {}
    copies: tuple[str, ...] = ()
    bin_dir: str = ""
    furnished: bool = False
    guard: Process | None = None
    format: int = _FORMAT


class RecordStore(Struct, frozen=True):
    """Reads and writes the record in a cluster's directory."""

    directory: Path

    @property
    def path(self) -> Path:
        """Return the path of the record."""
        return self.directory / "cluster.json"

    def read(self) -> Record | None:
        """Return the record, or ``None`` if the cluster does not exist.

        Raises:
            LocalError: the file is not a record, or has another format.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            record = msgspec.json.decode(content, type=Record)
        except msgspec.DecodeError as error:
            raise LocalError(f"{self.path}: not a cluster record that this version can read: {error}") from None
        if record.format != _FORMAT:
            raise LocalError(f"{self.path}: record format {record.format}; this version reads {_FORMAT}")
        return record

    def write(self, record: Record) -> None:
        """Write the record atomically, so that neither a reader nor a crash sees a partial file."""
        temporary = self.path.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1))
        temporary.replace(self.path)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the cluster for one command. Other commands wait.

        The lock file is next to the directory and not in it, because ``down`` removes the directory.
        """
        self.directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.directory.with_name(f".{self.directory.name}.lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


_PACKAGED_STAGES: Final = importlib.resources.files("trimtab_local").joinpath("stages")
_OWN: Final = ("keys", "logs", "stages", "etcd", "cluster.json", "cluster.tmp")


def write_files(layout: Layout, record: Record, *, stages: Path | None) -> None:
    """Write each user's kubeconfig, the copies of the admin's kubeconfig, and kwok's stage files.

    Args:
        layout: the paths of the files.
        record: the cluster's record.
        stages: the directory from which kwok's stage files are copied; ``None`` if kwok does not run.
    """
    for user in USERS:
        content = render_kubeconfig(
            name=record.name, server=layout.server, ca=layout.keys.ca, token=layout.keys.token(user), user=user
        )
        copies = record.copies if user == "admin" else ()
        for target in (layout.kubeconfig(user), *map(Path, copies)):
            write_kubeconfig(target, content)
    if stages is not None:
        layout.stages.mkdir(exist_ok=True)
        for stage in STAGES:
            shutil.copyfile(stages / stage, layout.stages / stage)
        for stage in OWN_STAGES:
            (layout.stages / stage).write_bytes(_PACKAGED_STAGES.joinpath(stage).read_bytes())


def remove_files(directory: Path, record: Record) -> None:
    """Remove the files that this package wrote. The directory is removed only if it is empty then."""
    for copy in map(Path, record.copies):
        if is_kubeconfig_of(copy, record.name):
            copy.unlink()
    for path in (*(directory / name for name in _OWN), *directory.glob("*kubeconfig")):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    if not any(directory.iterdir()):
        directory.rmdir()

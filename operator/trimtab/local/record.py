"""What is known of a cluster between two commands: a JSON file.

It is written after each step, so that a crash leaves nothing running that nobody knows of.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from trimtab.local.components import Launch, Settings
from trimtab.local.errors import LocalError
from trimtab.local.processes import Process

_FORMAT: Final = 1


class Started(Struct, frozen=True):
    """A component that was started.

    Attributes:
        process: which process it is.
        argv: its command line.
        log: its log file.
        version: of the binary; ``""`` where the caller brought it.
        environment: variables that it was given besides the few that all get.
    """

    process: Process
    argv: tuple[str, ...]
    log: str
    version: str = ""
    environment: dict[str, str] = {}

    @property
    def launch(self) -> Launch:
        """How it was started; where something else is wanted, it has to be started anew."""
        return Launch(argv=self.argv, version=self.version, environment=self.environment)


class Record(Struct, frozen=True):
    """The state of one cluster.

    Attributes:
        name: of the cluster.
        settings: what it is made of.
        ports: by component.
        started: by component, in the order of starting.
        copies: further places that the admin's kubeconfig was written to, which ``down`` removes.
        bin_dir: the directory that the caller's binaries came from, ``""`` for none; kept, so that a later ``up`` does
            not take others and restart everything.
        furnished: whether the first nodes were created.
        guard: the process that stops the cluster when its parent dies, where there is one.
        format: of this file.
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


class Store(Struct, frozen=True):
    """The record's file in a cluster's directory."""

    directory: Path

    @property
    def path(self) -> Path:
        """The file."""
        return self.directory / "cluster.json"

    def read(self) -> Record | None:
        """The record, or ``None`` where there is no cluster.

        Raises:
            LocalError: the file is not one of ours, or of another format.
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
        """Write the record: atomically, so that a reader or a crash never meets half of it."""
        temporary = self.path.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1))
        temporary.replace(self.path)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the cluster for one command; a second one waits.

        The lock's file lies beside the directory, not in it, for ``down`` removes the directory.
        """
        self.directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.directory.with_name(f".{self.directory.name}.lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

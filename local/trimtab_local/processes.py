"""Starts processes that outlive this one, and stops exactly these processes.

A process id alone does not identify a process, because the kernel reuses ids. Therefore a :class:`Process` also
contains the start time. Each signal is sent through a pidfd that was opened before the start time was compared, so a
reused id is never signalled.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Struct

_POLL: Final = 0.05
_PASSED_ON: Final = ("PATH", "HOME", "TMPDIR", "LANG", "GOMAXPROCS", "GOGC", "GOMEMLIMIT")


class Process(Struct, frozen=True):
    """A process on this machine: its id and its start time (opaque, comparable, unique across reboots)."""

    pid: int
    started: str


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def _started(pid: int) -> str | None:
    """Return the start time of a process; ``None`` if it does not exist.

    A zombie counts as not existing. Linux also calls a process a zombie whose first thread has ended while others still
    run, for example during the exit of a Go program. Such a process counts as existing, because it holds its ports.
    """
    if sys.platform != "linux":
        done = subprocess.run(
            ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        state, _, began = done.stdout.strip().partition(" ")
        return began.strip() if began and not state.startswith("Z") else None
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    # proc(5): the command in parentheses may hold anything, also parentheses; state is field 3, the number of threads
    # field 20, start time field 22.
    fields = stat.rpartition(")")[2].split()
    ended = fields[0] in "ZX" and int(fields[17]) <= 1
    return None if ended else f"{_boot()}/{fields[19]}"


def _reap(pid: int) -> None:
    # Only our own children leave zombies with us; of others the system takes care.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def alive(process: Process) -> bool:
    """Return whether exactly this process is running."""
    if _started(process.pid) == process.started:
        return True
    _reap(process.pid)
    return False


def start(
    argv: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None, stdin: int | None = None
) -> Process:
    """Start ``argv`` in its own session, so that it survives the end of this process and Ctrl-C in the terminal.

    ``posix_spawn`` is used instead of ``fork``, because it is safe in a process with threads. The child gets few
    environment variables: etcd reads ``ETCD_*`` variables as flags, and a proxy must not be used for loopback.

    Args:
        argv: the absolute path of the binary, and its arguments.
        log: the file to which standard output and standard error are appended.
        environment: further environment variables.
        stdin: the file descriptor of standard input; by default, there is none.
    """
    variables = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | dict(environment or {})
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        pid = os.posix_spawn(
            argv[0],
            list(argv),
            variables,
            setsid=True,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
                if stdin is None
                else (os.POSIX_SPAWN_DUP2, stdin, 0),
                (os.POSIX_SPAWN_DUP2, descriptor, 1),
                (os.POSIX_SPAWN_DUP2, descriptor, 2),
            ],
        )
    finally:
        os.close(descriptor)
    return Process(pid=pid, started=_started(pid) or "gone")


def send(process: Process, signum: signal.Signals) -> bool:
    """Send a signal to exactly this process. Return ``False`` if it no longer exists."""
    if sys.platform != "linux":
        if not alive(process):
            return False
        os.kill(process.pid, signum)
        return True
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not alive(process):
            return False
        signal.pidfd_send_signal(descriptor, signum)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def _wait(processes: Iterable[Process], deadline: float) -> list[Process]:
    left = [process for process in processes if alive(process)]
    while left and time.monotonic() < deadline:
        select.select([], [], [], _POLL)
        left = [process for process in left if alive(process)]
    return left


def stop(processes: Sequence[Process], *, patience: float) -> None:
    """Terminate the processes with SIGTERM. After ``patience`` seconds, kill the remaining ones with SIGKILL.

    The function returns when all have ended. Processes that have already ended, or whose id was reused, are not
    signalled.
    """
    for process in processes:
        send(process, signal.SIGTERM)
    for process in _wait(processes, time.monotonic() + patience):
        send(process, signal.SIGKILL)
    _wait(processes, time.monotonic() + patience)

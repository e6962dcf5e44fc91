"""Starting processes that outlive us, and stopping exactly those and no others.

A process id alone is no identity: the system gives it out again. A :class:`Process` therefore carries the time at
which the process began, and every signal goes through a file descriptor of the process that was opened before that
time was compared; a recycled id is never hit.
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
    """A process on this machine: its id, and when it began (opaque, comparable, unique across reboots)."""

    pid: int
    started: str


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def _started(pid: int) -> str | None:
    """When the process began, or ``None`` where there is none (a zombie is none: it runs nothing any more)."""
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
    # proc(5): the command in parentheses may hold anything, also parentheses; state is field 3, start time field 22.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else f"{_boot()}/{fields[19]}"


def _reap(pid: int) -> None:
    # Only our own children leave zombies with us; of others the system takes care.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def alive(process: Process) -> bool:
    """Whether exactly this process still runs."""
    if _started(process.pid) == process.started:
        return True
    _reap(process.pid)
    return False


def start(
    argv: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None, stdin: int | None = None
) -> Process:
    """Start ``argv`` in a session of its own, so that it survives our exit and our terminal's Ctrl-C.

    ``posix_spawn`` and no ``fork``: it is safe in a process with threads. The child gets a small environment: etcd
    reads ``ETCD_*`` variables as flags, and a proxy has no business on loopback.

    Args:
        argv: absolute path of the binary and its arguments.
        log: file that standard output and error are appended to.
        environment: variables besides the few that are passed on.
        stdin: descriptor that becomes standard input; otherwise there is none.
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
    """Signal exactly this process; ``False`` where it is no more."""
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
    """Ask the processes to end (SIGTERM), and after ``patience`` seconds end those that did not (SIGKILL).

    Returns when all are gone. Processes that are gone already, or whose id belongs to another by now, are left alone.
    """
    for process in processes:
        send(process, signal.SIGTERM)
    for process in _wait(processes, time.monotonic() + patience):
        send(process, signal.SIGKILL)
    _wait(processes, time.monotonic() + patience)

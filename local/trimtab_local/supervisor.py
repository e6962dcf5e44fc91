"""Starts, checks and stops the components of a cluster.

The supervisor compares the running components with the wanted ones, and records every step before the next one. It
(re)starts components that are missing, dead, unhealthy or started with another command line, and leaves all others
unchanged. So a second ``up`` does nothing, and ``up`` repairs the cluster after a crash or a reboot.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import ssl
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from trimtab_local import LocalError
from trimtab_local.components import COMPONENTS, PORTS_OF, Launch, Layout, health
from trimtab_local.files import Record, RecordStore, Started
from trimtab_local.processes import alive, start, stop
from trimtab_local.progress import Progress
from trimtab_local.versions import (
    APISERVER,
    CONTROLLER_MANAGER,
    ETCD,
    KUBELET_STATS,
    KWOK,
    MACHINE_CONTROLLER,
    OPERATOR,
    SCHEDULER,
)

# Below the range that systems take for outgoing connections (Linux: from 32768, others: from 49152): a port found
# free there stays free until its server starts, unless another server takes it.
_PORT_RANGE: Final = range(18000, 32000)


def port_is_free(port: int) -> bool:
    """Return whether a server could listen on this port of 127.0.0.1 now."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        # As Go's servers do: a port whose last connections linger in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class _ReservedPorts:
    """Ports that processes of this user have chosen and may not use yet: each holds a lock until it ends.

    The lock of a port is a byte of one file. A process does not see its own locks, so it also remembers the ports.
    """

    def __init__(self) -> None:
        self._own: set[int] = set()
        self._file = -1

    def reserve(self, port: int) -> bool:
        """Return whether the port is reserved for this process now, and was not before."""
        if port in self._own:
            return False
        if self._file < 0:
            path = Path(tempfile.gettempdir(), f"trimtab-ports-{os.getuid()}")
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
        self._own.add(port)
        return True


_RESERVED: Final = _ReservedPorts()


def choose_ports(names: Sequence[str]) -> dict[str, int]:
    """Return a random free port for each name. No other process of this user gets them before this process ends.

    Raises:
        LocalError: there are not enough free ports.
    """
    candidates = random.SystemRandom().sample(_PORT_RANGE, len(_PORT_RANGE))
    found: list[int] = []
    for port in candidates:
        if len(found) == len(names):
            break
        if port_is_free(port) and _RESERVED.reserve(port):
            found.append(port)
    if len(found) < len(names):
        raise LocalError(f"no {len(names)} free ports on 127.0.0.1 in {_PORT_RANGE.start}-{_PORT_RANGE.stop - 1}")
    return dict(zip(names, found, strict=True))


PATIENCE: Final = 120.0
"""Seconds in which a component must become healthy. On an idle machine it takes 1 to 12."""


class PortTaken(LocalError):
    """Another process took a port after it was chosen and before the component started.

    Attributes:
        component: the component that needed the port.
    """

    def __init__(self, component: str, port: int) -> None:
        super().__init__(f"{component}: port {port} is in use by another process")
        self.component = component


def healthy(component: str, layout: Layout) -> bool:
    """Return whether the component's health endpoint responds with success within five seconds."""
    url = health(component, layout)
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if url.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(layout.keys.ca))))
    headers = {"Authorization": f"Bearer {layout.keys.token('admin')}"} if component == APISERVER else {}
    opener = urllib.request.build_opener(*handlers)
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=5):
            return True
    except OSError:  # refused, timed out, or an answer other than 2xx
        return False


def becomes_healthy(component: str, layout: Layout, *, seconds: float) -> bool:
    """Return whether the component is healthy now or becomes healthy within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not healthy(component, layout):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def await_healthy(components: Iterable[str], started: Mapping[str, Started], layout: Layout) -> None:
    """Wait until all of the started components are healthy.

    Raises:
        PortTaken: a component ended because its port is in use.
        LocalError: a component ended, or is not healthy after :data:`PATIENCE` seconds.
    """
    for component in components:
        if component in started:
            _await_component(component, started[component], layout)


def _await_component(component: str, entry: Started, layout: Layout) -> None:
    deadline = time.monotonic() + PATIENCE
    while not healthy(component, layout):
        if not alive(entry.process):
            end = log_end(Path(entry.log))
            if "address already in use" in end:
                raise PortTaken(component, layout.ports[component])
            raise LocalError(f"{component} ended while it started; the end of {entry.log}:\n{end}")
        if time.monotonic() > deadline:
            end = log_end(Path(entry.log))
            raise LocalError(f"{component} is not healthy after {PATIENCE:.0f} s; the end of {entry.log}:\n{end}")
        time.sleep(0.1)


def log_end(path: Path, *, lines: int = 8) -> str:
    """Return the last lines of a log, each truncated to the width of a terminal."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 16_384))
            content = file.read().decode("utf-8", errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(f"  {line[:300]}" for line in content.splitlines()[-lines:])


START_ORDER: Final = (
    (ETCD,),
    (APISERVER,),
    (CONTROLLER_MANAGER, SCHEDULER, KWOK, MACHINE_CONTROLLER, KUBELET_STATS, OPERATOR),
)
"""Groups of components that are started together. They are stopped in reverse order, because an API server without etcd
keeps its port for a minute.
"""
_RECOVERY: Final = 10.0
"""Seconds in which a component that was already running must respond before it is restarted."""
_FAREWELL: Final = 15.0
"""Seconds between SIGTERM and SIGKILL."""


class Supervisor:
    """Starts and stops the components of one cluster."""

    def __init__(
        self, store: RecordStore, *, progress: Progress, starting: Callable[[str], None] = lambda _component: None
    ) -> None:
        """Initialize the supervisor.

        Args:
            store: reads and writes the record.
            progress: receives each step.
            starting: called with a component's name before it is started, when the components on which it depends run.
        """
        self._store = store
        self._progress = progress
        self._starting = starting

    def reconcile(
        self,
        record: Record,
        wanted: Mapping[str, Launch],
        *,
        served: Callable[[], None],
    ) -> Record:
        """Start and stop components until exactly the wanted ones run, and wait until they are healthy.

        Args:
            record: the record with the components that were started before.
            wanted: the command of each wanted component.
            served: called when the API server responds, before the supervisor waits for the components that use it.

        Raises:
            LocalError: a component did not become healthy.
        """
        layout = Layout(directory=self._store.directory, ports=record.ports)
        record = self.stop(record, [name for name, old in record.started.items() if old.launch != wanted.get(name)])
        for group in START_ORDER:
            # Group by group: an API server is not sick, only without etcd, and recovers when etcd is back.
            running = [name for name in group if name in record.started and alive(record.started[name].process)]
            sick = [name for name in running if not becomes_healthy(name, layout, seconds=_RECOVERY)]
            record = self.stop(record, sick)
            for component in group:
                if component in wanted:
                    record = self._ensured(record, component, wanted[component])
            if group == START_ORDER[-1]:
                served()
            await_healthy(group, record.started, layout)
        return record

    def resume(self, record: Record, launches: Mapping[str, Launch]) -> Record:
        """Start components with the given commands, and wait until they are healthy."""
        for name, launch in launches.items():
            record = self._ensured(record, name, launch)
        await_healthy(launches, record.started, Layout(directory=self._store.directory, ports=record.ports))
        return record

    def _ensured(self, record: Record, component: str, launch: Launch) -> Record:
        old = record.started.get(component)
        if old is not None and alive(old.process):
            return record
        for name in PORTS_OF.get(component, (component,)):
            # Else a stranger's etcd on our port would answer that all is well, and our API server would write to it.
            if not port_is_free(record.ports[name]):
                raise PortTaken(component, record.ports[name])
        log = Layout(directory=self._store.directory, ports=record.ports).log(component)
        self._starting(component)
        process = start(launch.argv, log=log, environment=launch.environment)
        entry = Started(
            process=process,
            argv=launch.argv,
            log=str(log),
            version=launch.version,
            environment=launch.environment,
        )
        record = replace(record, started={**record.started, component: entry})
        self._store.write(record)
        self._progress.say(f"{component} started (process {process.pid})")
        return record

    def stop(self, record: Record, components: Iterable[str]) -> Record:
        """Stop the components, clients before servers, and remove them from the record."""
        chosen = set(components)
        for group in reversed(START_ORDER):
            names = [name for name in group if name in chosen and name in record.started]
            if not names:
                continue
            stop([record.started[name].process for name in names], patience=_FAREWELL)
            record = replace(record, started={n: entry for n, entry in record.started.items() if n not in names})
            self._store.write(record)
            self._progress.say(f"{', '.join(names)} stopped")
        return record


def memory_mib(pid: int) -> int:
    """Return the resident memory of a process in MiB; 0 if it is unknown."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii", errors="replace").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS:")), 0)


class ComponentStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The status of one component.

    Attributes:
        name: the name of the component.
        state: ``Running``, ``Unhealthy`` (the process runs but its health check fails) or ``Dead``.
        pid: the process id; 0 if it is dead.
        port: its port on 127.0.0.1.
        memory_mib: its resident memory in MiB.
        version: the version of the binary; ``""`` if the caller provided it.
        log: its log file.
    """

    name: str
    state: str
    pid: int
    port: int
    memory_mib: int = msgspec.field(name="memoryMiB")
    version: str
    log: str


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The status of a cluster. It is healthy if all components are ``Running``."""

    name: str
    healthy: bool
    server: str
    kubeconfig: str
    components: tuple[ComponentStatus, ...]


def observe(record: Record, directory: Path) -> Status:
    """Return the status of each component of the cluster."""
    layout = Layout(directory=directory, ports=record.ports)
    names: list[str] = [name for name in COMPONENTS if name in record.settings.components]
    names += [OPERATOR] if OPERATOR in record.started else []
    components = tuple(_component_status(name, record, layout) for name in names)
    return Status(
        name=record.name,
        healthy=all(component.state == "Running" for component in components),
        server=layout.server,
        kubeconfig=str(layout.kubeconfig()),
        components=components,
    )


def _component_status(name: str, record: Record, layout: Layout) -> ComponentStatus:
    entry = record.started.get(name)
    state, pid = "Dead", 0
    if entry is not None and alive(entry.process):
        pid = entry.process.pid
        state = "Running" if healthy(name, layout) else "Unhealthy"
    return ComponentStatus(
        name=name,
        state=state,
        pid=pid,
        port=layout.ports[name],
        memory_mib=memory_mib(pid) if pid else 0,
        version=entry.version if entry is not None else "",
        log=str(layout.log(name)),
    )

"""Bringing what runs in line with what is wanted, and writing down every step before the next one.

A component that is missing, dead, unhealthy or started with another command line is (re)started; all others are left.
So ``up`` twice is the same as ``up`` once, and after a crash or a reboot ``up`` repairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from trimtab.local.components import PORTS_OF, Launch, Layout
from trimtab.local.health import PortTaken, await_healthy, becomes_healthy
from trimtab.local.ports import free
from trimtab.local.processes import alive, start, stop
from trimtab.local.progress import Progress
from trimtab.local.record import Record, Started, Store
from trimtab.local.versions import APISERVER, CONTROLLER_MANAGER, ETCD, KWOK, MACHINE_CONTROLLER, SCHEDULER

START_ORDER: Final = ((ETCD,), (APISERVER,), (CONTROLLER_MANAGER, SCHEDULER, KWOK, MACHINE_CONTROLLER))
"""Groups that start together. Stopping goes the other way round, for an API server whose etcd is gone keeps its port
for a minute."""
_RECOVERY: Final = 10.0
"""Seconds that a component that ran before gets to answer, before it is started anew."""
_FAREWELL: Final = 15.0
"""Seconds between SIGTERM and SIGKILL."""


class Supervisor:
    """Starts and stops the components of one cluster."""

    def __init__(
        self, store: Store, *, progress: Progress, starting: Callable[[str], None] = lambda _component: None
    ) -> None:
        """Prepare.

        Args:
            store: of the record.
            progress: where each step is told.
            starting: called with a component's name just before it is started; what it needs is running then.
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
        """Start what is wanted and does not run as wanted; stop what is not wanted; wait until all are healthy.

        Args:
            record: what was started before.
            wanted: component to how it is to be started.
            served: called once the API server answers, before the components that use it are awaited.

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
        """Start components as given, and wait until they are healthy."""
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
            if not free(record.ports[name]):
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
        """Stop these components, clients before servers, and record that they are gone."""
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
    """Resident memory of a process in MiB; 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii", errors="replace").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS:")), 0)

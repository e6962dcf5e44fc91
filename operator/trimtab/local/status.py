"""A cluster as ``trimtab local status`` shows it; the JSON form is stable API."""

from __future__ import annotations

from pathlib import Path

import msgspec

from trimtab.local.components import COMPONENTS, Layout
from trimtab.local.health import healthy
from trimtab.local.processes import alive
from trimtab.local.record import Record
from trimtab.local.supervisor import memory_mib


class ComponentStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One component.

    Attributes:
        name: of the component.
        state: ``Running``, ``Unhealthy`` (it runs but does not answer that it is well) or ``Dead``.
        pid: process id, 0 where dead.
        port: on 127.0.0.1.
        memory_mib: resident memory.
        version: ``""`` where the caller brought the binary.
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
    """A cluster; ``healthy`` when all its components are ``Running``."""

    name: str
    healthy: bool
    server: str
    kubeconfig: str
    components: tuple[ComponentStatus, ...]


def observe(record: Record, directory: Path) -> Status:
    """Look at each component of the cluster."""
    layout = Layout(directory=directory, ports=record.ports)
    names = [name for name in COMPONENTS if name in record.settings.components]
    components = tuple(_component(name, record, layout) for name in names)
    return Status(
        name=record.name,
        healthy=all(component.state == "Running" for component in components),
        server=layout.server,
        kubeconfig=str(layout.kubeconfig()),
        components=components,
    )


def _component(name: str, record: Record, layout: Layout) -> ComponentStatus:
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

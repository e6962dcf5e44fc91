"""NodePorts: host ports that the pod wants must be free on the node."""

from __future__ import annotations

from typing import ClassVar

from trimtab.cluster.resources import BoolArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod


class NodePorts:
    """A port is taken per protocol and address; ``0.0.0.0`` conflicts with every address (v1.36)."""

    name: ClassVar = "NodePorts"
    reason: ClassVar = "node(s) didn't have free ports for the requested pod ports"

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def passing(self, pod: Pod) -> BoolArray | None:
        """All nodes but those on which a wanted port is taken."""
        if not pod.spec.host_ports:
            return None
        passing = self._snapshot.nodes.used.copy()
        for slot in self._snapshot.ports.conflicts(pod.spec.host_ports):
            passing[slot] = False
        return passing

    def reasons(self, pod: Pod, slot: int) -> tuple[str, ...]:
        """One text for all."""
        del pod, slot
        return (self.reason,)

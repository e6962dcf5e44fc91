"""NodePorts: host ports that the pod wants must be free on the node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod, PodSpec
from trimtab.placement.framework import Failure, Reads


class NodePorts:
    """A port is taken per protocol and address; ``0.0.0.0`` conflicts with every address (v1.36)."""

    name: ClassVar = "NodePorts"
    reads: ClassVar[Reads] = "pods"
    reason: ClassVar = "node(s) didn't have free ports for the requested pod ports"

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def may_concern(self, spec: PodSpec) -> bool:
        """Where it wants host ports."""
        return bool(spec.host_ports)

    def concerns(self, pod: Pod) -> bool:
        """Where the pod wants host ports."""
        return bool(pod.spec.host_ports)

    def refusal(self, pod: Pod) -> str | None:
        """Never: it depends on the nodes."""
        del pod
        return None

    def passing(self, pod: Pod) -> BoolArray | None:
        """All nodes but those on which a wanted port is taken."""
        if not pod.spec.host_ports:
            return None
        passing = self._snapshot.nodes.used.copy()
        for slot in self._snapshot.ports.conflicts(pod.spec.host_ports):
            passing[slot] = False
        return passing

    def failures(self, pod: Pod, slots: IntArray) -> Iterable[Failure]:
        """One text for all."""
        del pod
        return (((self.reason,), slots),)

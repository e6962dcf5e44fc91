"""Host ports that are taken: take another one, or make the pods that hold them go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from msgspec.structs import replace

from trimtab.kube.objects import HostPort, Node, Pod
from trimtab.placement.remedies.costs import MOVE, MOVE_EACH, NEIGHBOURS
from trimtab.placement.remedies.framework import Case, Costs, Step
from trimtab.placement.remedies.victims import clear

_LAST: Final = 65_535


class ChangeHostPort:
    """The next port that is free on the node, for each that is not."""

    reason: ClassVar = "ChangeHostPort"
    rules: ClassVar = frozenset(("NodePorts",))
    evicts: ClassVar = False

    def bound(self, case: Case, rule: str) -> Costs | float:
        """The same everywhere."""
        del case, rule
        return NEIGHBOURS

    def steps(self, case: Case, node: Node, rule: str) -> Iterator[Step]:
        """One step, for all ports of the pod that are taken."""
        del rule
        slot = case.snapshot.nodes.slot_of[node.name]
        ports = [_free(case, port, slot, case.pod.spec.host_ports) for port in case.pod.spec.host_ports]
        changes = [(old, new) for old, new in zip(case.pod.spec.host_ports, ports, strict=True) if old != new]
        texts = [f"{new.port} in place of {old.port}/{old.protocol}" for old, new in changes]
        yield case.on_pod(
            self.reason,
            f"give {case.template} host port {', '.join(texts)}, as on node {node.name} that is taken",
            NEIGHBOURS,
            field="spec.containers[*].ports[*].hostPort",
            before=[old.port for old, _ in changes],
            after=[new.port for _, new in changes],
            host_ports=tuple(ports),
        )


class FreeHostPort:
    """The pods on the node that hold the ports go."""

    reason: ClassVar = "FreeHostPort"
    rules: ClassVar = frozenset(("NodePorts",))
    evicts: ClassVar = True

    def bound(self, case: Case, rule: str) -> Costs | float:
        """One pod at least."""
        del case, rule
        return MOVE + MOVE_EACH

    def steps(self, case: Case, node: Node, rule: str) -> Iterator[Step]:
        """One step."""
        del rule
        wanted = case.pod.spec.host_ports
        victims = [pod for pod in case.snapshot.pods_on(node.name) if not pod.terminal and _holds_one(pod, wanted)]
        ports = ", ".join(f"{port.port}/{port.protocol}" for port in wanted)
        step = clear(case, node, victims, reason=self.reason, why=f"host port {ports} is wanted")
        if step:
            yield step


def _free(case: Case, port: HostPort, slot: int, wanted: tuple[HostPort, ...]) -> HostPort:
    """The port, or the next one that nobody on the node has and the pod itself does not want."""
    found = port
    while slot in set(case.snapshot.ports.conflicts((found,))) or (found != port and found in wanted):
        if found.port == _LAST:
            return port
        found = replace(found, port=found.port + 1)
    return found


def _holds_one(pod: Pod, wanted: tuple[HostPort, ...]) -> bool:
    return any(_clash(mine, theirs) for mine in wanted for theirs in pod.spec.host_ports)


def _clash(mine: HostPort, theirs: HostPort) -> bool:
    same = (mine.port, mine.protocol) == (theirs.port, theirs.protocol)
    return same and (mine.ip == theirs.ip or "0.0.0.0" in (mine.ip, theirs.ip))

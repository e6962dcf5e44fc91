"""Which host ports are taken on which node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from trimtab.kube.objects import HostPort

_ANY = "0.0.0.0"


class HostPortIndex:
    """Taken host ports by (protocol, port), then node slot, then address.

    ``0.0.0.0`` conflicts with every address on the same port and protocol (kube-scheduler v1.36
    ``HostPortInfo.CheckConflict``).
    """

    def __init__(self) -> None:
        self._taken: defaultdict[tuple[str, int], dict[int, dict[str, int]]] = defaultdict(dict)

    def count(self, ports: Iterable[HostPort], slot: int, amount: int) -> None:
        """Take (``amount`` 1) or free (-1) ports on the node in ``slot``."""
        for port in ports:
            slots = self._taken[port.protocol, port.port]
            addresses = slots.setdefault(slot, {})
            addresses[port.ip] = addresses.get(port.ip, 0) + amount
            if not addresses[port.ip]:
                del addresses[port.ip]
            if not addresses:
                del slots[slot]

    def conflicts(self, ports: Iterable[HostPort]) -> Iterator[int]:
        """The slots on which at least one of ``ports`` is taken; a slot may come twice."""
        for port in ports:
            for slot, addresses in self._taken.get((port.protocol, port.port), {}).items():
                if port.ip == _ANY or _ANY in addresses or port.ip in addresses:
                    yield slot

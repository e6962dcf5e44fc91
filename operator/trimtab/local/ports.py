"""Free ports on loopback."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Sequence
from typing import Final

from trimtab.local.errors import LocalError

# Below the range that systems take for outgoing connections (Linux: from 32768, others: from 49152): a port found
# free there stays free until its server starts, unless another server takes it.
_RANGE: Final = range(18000, 32000)


def free(port: int) -> bool:
    """Whether a server could listen on the port of 127.0.0.1 now."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        # As Go's servers do: a port whose last connections linger in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose(names: Sequence[str]) -> dict[str, int]:
    """A free port for each name; at random, so that clusters that start at the same time rarely choose the same.

    Raises:
        LocalError: there are not enough.
    """
    candidates = random.SystemRandom().sample(_RANGE, len(_RANGE))
    found: list[int] = []
    for port in candidates:
        if len(found) == len(names):
            break
        if free(port):
            found.append(port)
    if len(found) < len(names):
        raise LocalError(f"no {len(names)} free ports on 127.0.0.1 in {_RANGE.start}-{_RANGE.stop - 1}")
    return dict(zip(names, found, strict=True))

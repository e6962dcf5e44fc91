"""What the taint manager's loops need, made once by the composition root."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.tainting.picture import Picture

if TYPE_CHECKING:
    from trimtab.tainting.report import Teller


class Services(Struct, frozen=True, kw_only=True):
    """What the loops have in common.

    Attributes:
        api: the API server; it refuses to send what another process may send by now
            (:class:`~trimtab.kube.guarded.Guarded`).
        picture: nodes, Leases and placed pods, as the watches last told them.
        clock: where the time comes from.
        teller: events and metrics.
        stale: what keeps the picture from being acted on now; ``None`` where nothing does.
        heard: when the watches of nodes and Leases last proved that they work, in seconds since the epoch; ``None`` for
            never. The older of the two.
        namespace: where the operator's own ConfigMaps are.
        followed: whether the watch of nodes tells each change; not while they are being listed again.
        prove: keeps ``heard`` and ``hung`` true while watches have nothing to tell, until cancelled; ``None`` where
            nobody need.
        hung: what keeps those from acting beyond ``stale`` for whom ``prove`` runs: a watch that hangs.
        blind: what keeps the node lifecycle from acting beyond ``stale``: the watch of Leases.
    """

    api: Api
    picture: Picture
    clock: Clock
    teller: Teller
    stale: Callable[[], str | None]
    heard: Callable[[], float | None]
    namespace: str
    followed: Callable[[], bool] = lambda: True
    prove: Callable[[], Awaitable[None]] | None = None
    hung: Callable[[], str | None] = lambda: None
    blind: Callable[[], str | None] = lambda: None

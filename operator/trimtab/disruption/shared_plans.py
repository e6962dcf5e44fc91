"""Shares the plans of the descheduler and the autoscaler between the controllers of one process.

The descheduler and the autoscaler plan at different times on the same cluster, and each must consider what the other is
about to do. Capacity that planned moves free needs no new node, and a node that scale-down is about to remove is not
used as a target. The API objects show these plans late: a pod gets a deletion timestamp only after its eviction
request, and scale-down taints several nodes in one iteration. Therefore the plans are shared in memory. They need not
survive a restart, because a plan that is not carried out frees no capacity, and an approved run is shared again when it
continues.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from trimtab.api.plan import SURGE, Evict
from trimtab.disruption.outcome import EVICTED, Outcome
from trimtab.disruption.settings_conflicts import SharedSettings

COUNTS_FOR: Final = 120.0
"""Seconds after which a planned move expires. They start when its execution is first announced.

A plan that is stuck or repeated must not prevent a scale-up for longer.
"""

FORGOTTEN_AFTER: Final = 3600.0
"""Seconds after a pod's last planned move after which its next planned move is treated as a new one."""


class PlannedMove(Struct, frozen=True):
    """A pod that is about to leave its node.

    Attributes:
        pod: ``namespace/name``.
        uid: UID of the pod.
        node: the node that it leaves.
        target: the node on which capacity is reserved for its replacement.
        policy: the policy that planned it.
        until: the time at which the planned move expires, in seconds since the epoch.
    """

    pod: str
    uid: str
    node: str
    target: str
    policy: str
    until: float


class SharedPlans:
    """The moves that the descheduler is carrying out, and the nodes that scale-down considers unneeded.

    Attributes:
        settings: the settings of policies and of the ClusterAutoscaler.
        unneeded: node name to the time since when the node has been unneeded, in seconds since the epoch. The mapping
            is replaced as a whole, so that a planner in another thread reads a consistent state.
    """

    def __init__(self) -> None:
        self.settings = SharedSettings()
        self.unneeded: Mapping[str, float] = {}
        self._moves: dict[str, PlannedMove] = {}
        self._evicted: set[str] = set()
        self._planned: dict[str, tuple[float, float]] = {}
        """The times at which the move of each pod was first and last announced, by the pod's UID."""

    @contextmanager
    def carrying_out(self, actions: Iterable[Evict], *, now: float) -> Iterator[None]:
        """Share the moves in a plan while they are carried out.

        When the context ends, the moves of evicted pods remain shared until they expire, because pods take a while to
        terminate.

        Args:
            actions: the actions of one plan. Removals, restarts in place and surges are ignored, because they free no
                capacity at once.
            now: seconds since the epoch.
        """
        self._forget(now)
        moves = [each for each in actions if each.target not in ("", each.node) and each.how != SURGE]
        for each in moves:
            first, _ = self._planned.get(each.uid, (now, now))
            self._planned[each.uid] = first, now
            self._moves[each.uid] = PlannedMove(
                each.key, each.uid, each.node, each.target, each.policy, first + COUNTS_FOR
            )
        try:
            yield
        finally:
            for each in moves:
                if each.uid not in self._evicted:
                    self._moves.pop(each.uid, None)

    def settle(self, outcome: Outcome) -> None:
        """Process the outcome of a shared move's eviction. If the pod was not evicted, the move is removed."""
        uid = outcome.action.uid
        if outcome.result == EVICTED:
            self._evicted.add(uid)
        else:
            self._moves.pop(uid, None)

    def moves(self, *, now: float) -> tuple[PlannedMove, ...]:
        """Return the shared moves that have not expired at ``now`` (seconds since the epoch), sorted by pod."""
        return tuple(sorted((move for move in self._moves.values() if now < move.until), key=lambda move: move.pod))

    def _forget(self, now: float) -> None:
        self._moves = {uid: move for uid, move in self._moves.items() if now < move.until}
        self._evicted &= self._moves.keys()
        self._planned = {uid: times for uid, times in self._planned.items() if now - times[1] < FORGOTTEN_AFTER}

"""How the executor waits and tries."""

from __future__ import annotations

from msgspec import Struct

from trimtab.kube.retry import Backoff


class ExecutorSettings(Struct, frozen=True, kw_only=True):
    """Numbers of the executor. All times are in seconds.

    Attributes:
        in_flight: requests at a time, each of another owner.
        settle: how long the next pod of an owner waits for the replacement of the one that was evicted.
        patience: how long an owner's first pod waits where the owner was already short of a pod. Shorter than
            ``settle``: it is not of our making, and may not pass.
        poll: how often an owner's pods are looked at meanwhile; a look is cheap, as it goes to memory.
        rollout: how long the rollout of a single replica is watched; it goes on by itself after that.
        timeout: of one request. A stopping process must be able to wait for it, so it is well below the 30 s that
            Kubernetes gives it.
        budget_backoff: waits between tries that a budget refused. The disruption controller needs some to count.
        error_backoff: waits between tries that an error or silence ended.
    """

    in_flight: int = 8
    settle: float = 120.0
    patience: float = 15.0
    poll: float = 0.5
    rollout: float = 300.0
    timeout: float = 10.0
    budget_backoff: Backoff = Backoff(initial=1.0, maximum=15.0)
    error_backoff: Backoff = Backoff(initial=0.5, maximum=5.0)

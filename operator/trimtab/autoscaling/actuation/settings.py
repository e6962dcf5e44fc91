"""Numbers of scale-down's acting."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.kube.retry import Backoff


class RemovalSettings(Struct, frozen=True, kw_only=True):
    """How removals wait and try. All times are in seconds.

    Attributes:
        empty_at_once: removals of empty nodes that go on at a time.
        drains_at_once: removals of nodes with pods that go on at a time; disruption budgets hold in any case.
        taint_delay: between the taint and the second look, so that no scheduler still has a pod on its way there.
        eviction: how long an eviction that a budget refuses is tried again.
        overtime: how much longer than its grace period a pod may take to be gone.
        longest_grace_wait: of pods whose eviction somebody else carries out: how long that may take.
        delay_deletion: how long annotations ``delay-deletion.cluster-autoscaler.kubernetes.io/…`` are honoured.
        daemon_sets_of_drained: whether pods of DaemonSets are evicted from nodes that were drained.
        daemon_sets_of_empty: the same of nodes that were empty.
        batch: how long a drained node waits for others of its group, so that one request lowers the size for all.
        catching_up: how long a group's controller may take to have as many machines as are wanted, before a batch.
        verifying: how long it may take until it is known which machines go.
        returning: how long taking back is tried before it is left to the next pass.
        blind: how long a removal waits for a picture that is stale, before it is taken back.
        plausible: a taint of ours that is older and for which nothing runs is taken back, not gone on with.
        poll: how often the picture is looked at for what is waited for; a look goes to memory.
        timeout: of one request.
        in_flight: requests at a time for all drains together.
        writes: nodes a pass on which since when they are unneeded is recorded, or that record taken away.
        record_after: how long a node is unneeded before that is recorded on it; until then the status alone has it.
        soft_taints: whether unneeded nodes get the taint DeletionCandidateOfClusterAutoscaler.
        budget_backoff: between tries that a budget refused.
        error_backoff: between tries that an error or silence ended.
    """

    empty_at_once: int = 10
    drains_at_once: int = 5
    taint_delay: float = 5.0
    eviction: float = 120.0
    overtime: float = 30.0
    longest_grace_wait: float = 600.0
    delay_deletion: float = 120.0
    daemon_sets_of_drained: bool = True
    daemon_sets_of_empty: bool = False
    batch: float = 0.5
    catching_up: float = 120.0
    verifying: float = 300.0
    returning: float = 60.0
    blind: float = 60.0
    plausible: float = 3600.0
    poll: float = 0.5
    timeout: float = 10.0
    in_flight: int = 16
    writes: int = 10
    record_after: float = 30.0
    soft_taints: bool = True
    budget_backoff: Backoff = Backoff(initial=1.0, maximum=10.0)
    error_backoff: Backoff = Backoff(initial=0.5, maximum=5.0)


DEFAULTS: Final = RemovalSettings()

"""The memory while a cycle goes on: what happens is taken in step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trimtab.api.descheduler_policy import Cooldown
from trimtab.api.eviction_memory import Memory, Setback
from trimtab.api.plan import Evict, Plan
from trimtab.api.reasons import EVACUATION_FAILED
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.memory.assess import assess, stayed
from trimtab.descheduling.memory.owners import key, owned
from trimtab.descheduling.memory.recollection import Recollection
from trimtab.descheduling.memory.routine import NONE
from trimtab.descheduling.memory.second_thoughts import second_thoughts
from trimtab.descheduling.memory.verdict import gave_up_since
from trimtab.descheduling.memory.watching import intend, send, settle
from trimtab.descheduling.strategies.registry import IN_PLACE
from trimtab.disruption.outcome import Outcome
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod


class CycleMemory:
    """What one policy remembers, in the order in which a cycle comes to know it.

    Args:
        memory: as the cycle found it.
        cooldown: of the policy.
        routine: its strategies for which evicting again and again is no loop.

    Attributes:
        memory: as it is now.
    """

    def __init__(self, memory: Memory, cooldown: Cooldown, *, routine: frozenset[str] = NONE) -> None:
        self.memory = memory
        self._before = memory
        self._cooldown = cooldown
        self._routine = routine
        self._judged: set[str] = set()

    def look(self, snapshot: Snapshot, *, now: float) -> Memory:
        """See what became of earlier evictions; the memory to plan with."""
        self.memory = assess(self.memory, snapshot, self._cooldown, now=now, routine=self._routine)
        return self.memory

    def planned(self, plan: Plan, snapshot: Snapshot, *, now: float) -> None:
        """See what the plan thinks of where earlier evictions ended."""
        self._judged |= {each.replacement for each in self.memory.watched if each.landed}
        self.memory = second_thoughts(self.memory, plan.kept, snapshot, self._cooldown, now=now)

    def begin(self, actions: Sequence[Evict], snapshot: Snapshot, *, now: float) -> Memory:
        """Watch the pods that are about to be evicted; the memory to write down before the first one is."""
        self.memory = intend(self.memory, actions, snapshot, now=now)
        return self.memory

    def useless(
        self, action: Evict, snapshot: Snapshot, *, now: float, judge: Callable[[Memory], Plan]
    ) -> Refusal | None:
        """Why an eviction would not help, now that one sees where the pods came to that went before it.

        Where one of them came to another node than planned, the strategy is asked about it before the next one goes:
        else all pods of an owner would follow the first one to where they are not wanted either. Removing what has run
        to its end needs no place and is never useless.

        Args:
            action: what is about to be done.
            snapshot: the cluster as it is now.
            now: seconds since the epoch.
            judge: plans for the action's strategy with a memory.
        """
        pod = snapshot.pods.get(action.key)
        if not action.target or pod is None:
            return None
        self.look(snapshot, now=now)
        if self._astray(pod, action.strategy):
            self.planned(judge(self.memory), snapshot, now=now)
        known = Recollection(self.memory, self._cooldown, now=now, in_place=IN_PLACE)
        return known.refusal(pod, action.strategy)

    def _astray(self, pod: Pod, strategy: str) -> bool:
        """Whether a pod of the same owner came elsewhere than planned, and no plan has judged that yet."""
        whose = owned(pod, strategy)
        return whose is not None and any(
            each.landed not in ("", each.target) and each.replacement not in self._judged and key(each) == key(whose)
            for each in self.memory.watched
        )

    def sent(self, action: Evict, snapshot: Snapshot) -> None:
        """The eviction is asked for now."""
        self.memory = send(self.memory, action, snapshot)

    def ended(self, outcome: Outcome) -> None:
        """The eviction has ended so."""
        if outcome.reason == EVACUATION_FAILED:
            self.memory = stayed(self.memory, outcome, self._cooldown)
        self.memory = settle(self.memory, outcome)

    @property
    def gave_up(self) -> list[Setback]:
        """What was given up in this cycle."""
        return gave_up_since(self._before, self.memory)

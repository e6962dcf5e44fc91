"""Who objects to a move: the strategies that come before the one that wants it, those of other policies among them."""

from __future__ import annotations

from collections.abc import Collection

from trimtab.descheduling.strategies.strategy import AnyStrategy
from trimtab.kube.objects import Pod


class OfAnotherPolicy:
    """A strategy of another policy as a guard; what it tells names the policy, or nobody would know whom to ask.

    Policies run in cycles of their own, one after the other. If each heeded its own strategies only, two of them could
    send a pod back and forth for ever, one cycle each: RemoveDuplicates parts the pods of an owner, HighNodeUtilization
    of the other policy packs them again.

    Args:
        strategy: the other policy's.
        policy: its name.
    """

    def __init__(self, strategy: AnyStrategy, policy: str) -> None:
        self._strategy = strategy
        self.unwelcome_text = f"{strategy.unwelcome_text} ({strategy.NAME} of policy {policy})"

    def may_object(self) -> bool:
        """Whether the strategy could."""
        return self._strategy.may_object()

    def objections(self, pod: Pod) -> Collection[int]:
        """The slots where the pod would make the strategy's measure rise, if its policy looks at the pod."""
        return self._strategy.objections(pod)

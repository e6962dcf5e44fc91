"""What a protection is and what it may read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

from msgspec import Struct

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import BudgetLedger
from trimtab.disruption.refusal import Refusal
from trimtab.disruption.surge import Surges
from trimtab.kube.objects import Pod

EVICT_ANNOTATION_KEY: Final = "descheduler.alpha.kubernetes.io/evict"
"""The upstream descheduler's key. There its mere presence means yes, also for static pods; here its value counts."""


class Context(Struct, frozen=True):
    """What protections compare a pod with. Nothing in it changes while a plan is made.

    Attributes:
        spec: the policy.
        snapshot: the picture.
        budgets: which budgets select a pod.
        surges: which pods are the only ready one of their owner.
        now: seconds since the epoch that the plan is made for.
    """

    spec: DeschedulerPolicySpec
    snapshot: Snapshot
    budgets: BudgetLedger
    surges: Surges
    now: float


class Protection(ABC):
    """A rule that keeps pods where they are. Made once a policy and plan, asked once a pod.

    Attributes:
        name: the reason code under which it refuses.
        liftable: whether the pod's own annotation ``evict: "true"`` lifts it. Rules are not liftable where moving the
            pod would break it or the cluster, whatever anybody writes.
        of_template: whether the answer follows from what all pods of a template share: namespace, spec, owners and
            annotations. It is then found once a template, not once a pod.
    """

    name: ClassVar[str]
    liftable: ClassVar[bool] = True
    of_template: ClassVar[bool] = False

    def __init__(self, context: Context) -> None:
        self.context = context

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:  # noqa: ARG003
        """Whether the policy has the rule at all."""
        return True

    @abstractmethod
    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""

    def refuse(self, message: str) -> Refusal:
        """A refusal under the rule's own code."""
        return Refusal(reason=self.name, message=message)

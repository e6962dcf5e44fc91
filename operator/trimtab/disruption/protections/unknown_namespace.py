"""Pods of namespaces whose labels nobody knows, where the policy selects namespaces by label."""

from __future__ import annotations

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.reasons import UNKNOWN_NAMESPACE
from trimtab.disruption.protections.protection import Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod


class UnknownNamespaces(Protection):
    """Refuses pods of a namespace that the picture lacks: whether the policy means it cannot be told.

    That happens with cluster files that have pods and no namespaces. Taking the labels for empty would let a selector
    such as ``protected DoesNotExist`` pick every pod.
    """

    name = UNKNOWN_NAMESPACE
    liftable = False
    of_template = True

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        """Where the policy has a ``namespaceSelector``."""
        return spec.namespace_selector is not None

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        if pod.namespace in self.context.snapshot.namespaces:
            return None
        return self.refuse(f"spec.namespaceSelector: the labels of namespace {pod.namespace} are not known")

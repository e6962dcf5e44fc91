"""Pods of the cluster's own namespaces."""

from __future__ import annotations

from typing import Final

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.reasons import SYSTEM_NAMESPACE
from trimtab.disruption.protections.protection import Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod

PREFIXES: Final = ("kube-", "openshift-")
"""Kubernetes reserves ``kube-`` for its own namespaces, OpenShift ``openshift-``."""

NAMES: Final = frozenset({"openshift"})


class SystemNamespaces(Protection):
    """Refuses pods of namespaces that belong to the cluster itself, unless the policy lifts it."""

    name = SYSTEM_NAMESPACE
    of_template = True

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        """Unless ``protections.disabled`` has SystemNamespaces."""
        return "SystemNamespaces" not in spec.protections.disabled

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        if not pod.namespace.startswith(PREFIXES) and pod.namespace not in NAMES:
            return None
        return self.refuse(f"namespace {pod.namespace} belongs to the cluster itself")

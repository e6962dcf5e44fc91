"""DynamicResources: pods with ResourceClaims are told apart, not judged."""

from __future__ import annotations

from typing import ClassVar

from trimtab.kube.objects import Pod, PodSpec
from trimtab.placement.framework import PodFilter


class DynamicResources(PodFilter):
    """Refuses pods with ResourceClaims: where devices are and who may have them is not read, and never guessed.

    The text is trimtab's own, as kube-scheduler would place such a pod or name reasons that cannot be known here.
    """

    name: ClassVar = "DynamicResources"

    def may_concern(self, spec: PodSpec) -> bool:
        """Where it states claims."""
        return bool(spec.resource_claims)

    def concerns(self, pod: Pod) -> bool:
        """Where the pod has ResourceClaims."""
        return bool(pod.spec.resource_claims)

    def refusal(self, pod: Pod) -> str | None:
        """Names the pod's claims as its ``spec.resourceClaims`` does."""
        if not pod.spec.resource_claims:
            return None
        names = ", ".join(pod.spec.resource_claims)
        return f"trimtab does not judge ResourceClaims (dynamic resource allocation), and the pod has some: {names}"

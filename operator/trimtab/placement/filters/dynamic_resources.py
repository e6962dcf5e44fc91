"""DynamicResources: pods with ResourceClaims are told apart, not judged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod, PodSpec
from trimtab.placement.framework import Failure, Reads


class DynamicResources:
    """Refuses pods with ResourceClaims: where devices are and who may have them is not read, and never guessed.

    The text is trimtab's own, as kube-scheduler would place such a pod or name reasons that cannot be known here.
    """

    name: ClassVar = "DynamicResources"
    reads: ClassVar[Reads] = "node"

    def __init__(self, snapshot: Snapshot) -> None:
        del snapshot

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

    def passing(self, pod: Pod) -> BoolArray | None:
        """None: what is judged at all is judged by other filters."""
        del pod
        return None

    def failures(self, pod: Pod, slots: IntArray) -> Iterable[Failure]:
        """Nothing: no node fails here."""
        del pod, slots
        return ()

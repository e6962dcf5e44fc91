"""Mirror pods: the API server's picture of static pods. Deleting one deletes the picture only."""

from __future__ import annotations

from typing import Final

from trimtab.api.reasons import MIRROR_POD
from trimtab.disruption.protections.protection import Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod

ANNOTATION: Final = "kubernetes.io/config.mirror"
"""Written by the kubelet (core/v1 ``MirrorPodAnnotationKey``)."""


class MirrorPods(Protection):
    """Refuses pods with the kubelet's mirror annotation, and those that a Node owns, as only mirror pods are."""

    name = MIRROR_POD
    liftable = False
    of_template = True

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        if ANNOTATION in pod.annotations:
            return self.refuse(f"a mirror pod: it has the annotation {ANNOTATION}")
        if any(owner.kind == "Node" for owner in pod.owners):
            return self.refuse("a mirror pod: its owner is a Node")
        return None

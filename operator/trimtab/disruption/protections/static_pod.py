"""Static pods: the kubelet runs them from its own files, on this node and no other."""

from __future__ import annotations

from typing import Final

from trimtab.api.reasons import STATIC_POD
from trimtab.disruption.protections.protection import Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod

ANNOTATION: Final = "kubernetes.io/config.source"
"""Written by the kubelet (kubelet/types ``ConfigSourceAnnotationKey``); ``api`` for all that is not static."""


class StaticPods(Protection):
    """Refuses pods whose source is another than the API server."""

    name = STATIC_POD
    liftable = False
    of_template = True

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        source = pod.annotations.get(ANNOTATION, "api")
        return None if source == "api" else self.refuse(f"a static pod: its source is {source!r}, not the API server")

"""The pod's own word: ``descheduler.alpha.kubernetes.io/evict``."""

from __future__ import annotations

from trimtab.api.reasons import EVICT_ANNOTATION
from trimtab.disruption.protections.protection import EVICT_ANNOTATION_KEY, Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod


class EvictAnnotation(Protection):
    """Refuses pods whose annotation says anything but ``"true"``.

    An author who writes ``no`` or leaves the value empty wants something, and being left alone is what does no harm.
    """

    name = EVICT_ANNOTATION
    liftable = False
    of_template = True

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        value = pod.annotations.get(EVICT_ANNOTATION_KEY)
        if value is None or value == "true":
            return None
        known = "" if value == "false" else '; only "true" and "false" are known'
        return self.refuse(f'the annotation {EVICT_ANNOTATION_KEY} is "{value}"{known}')

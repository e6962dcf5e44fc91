"""Pods with a persistent volume: moving it takes time, and a volume may be bound to where it is."""

from __future__ import annotations

from typing import Final

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.reasons import PERSISTENT_VOLUME_CLAIM
from trimtab.disruption.protections.protection import Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod

KINDS: Final = frozenset({"persistentVolumeClaim", "ephemeral"})
"""A generic ephemeral volume is a claim as well, made for the pod and deleted with it."""


class PodsWithPersistentVolumeClaims(Protection):
    """Refuses pods that use a claim, where the policy asks for it."""

    name = PERSISTENT_VOLUME_CLAIM
    of_template = True

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        """Where ``protections.extra`` has PodsWithPVC."""
        return "PodsWithPVC" in spec.protections.extra

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        volume = next((volume for volume in pod.spec.volumes if volume.kind in KINDS), None)
        if volume is None:
            return None
        return self.refuse(
            f"the pod uses PersistentVolumeClaim {volume.claim}" if volume.claim else "the pod uses a claim"
        )

"""Pods with a persistent volume: moving it takes time, and a volume may be bound to where it is."""

from __future__ import annotations

from typing import Final

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.reasons import PERSISTENT_VOLUME_CLAIM
from trimtab.disruption.protections.protection import Context, Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import PersistentVolumeClaim, Pod

KINDS: Final = frozenset({"persistentVolumeClaim", "ephemeral"})
"""A generic ephemeral volume is a claim as well, made for the pod and deleted with it."""


class PodsWithPersistentVolumeClaims(Protection):
    """Refuses pods that use a claim, or one of the policy's storage classes, where the policy asks for it.

    A claim that the picture lacks, or that names no class, may be of any: its pod stays.
    """

    name = PERSISTENT_VOLUME_CLAIM

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._classes = frozenset(context.spec.protections.protected_storage_classes)
        self._claims = context.snapshot.shelves.of(PersistentVolumeClaim)

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        """Where ``protections.extra`` has PodsWithPVC."""
        return "PodsWithPVC" in spec.protections.extra

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        for volume in pod.spec.volumes:
            if volume.kind not in KINDS:
                continue
            name = volume.claim or f"{pod.name}-{volume.name}"
            if not self._classes:
                return self.refuse(f"the pod uses PersistentVolumeClaim {name}")
            claim = self._claims.get(f"{pod.namespace}/{name}")
            if claim is None or claim.storage_class is None:
                why = "is not known" if claim is None else "names no class"
                return self.refuse(f"the pod uses PersistentVolumeClaim {name}, which {why}: it may be protected")
            if claim.storage_class in self._classes:
                return self.refuse(
                    f"the pod uses PersistentVolumeClaim {name} of the protected StorageClass {claim.storage_class}"
                )
        return None

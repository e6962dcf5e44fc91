"""Pods with local storage: their data stays behind."""

from __future__ import annotations

from typing import ClassVar, Final

from trimtab.api.reasons import LOCAL_STORAGE_REQUESTED
from trimtab.autoscaling.scale_down.drainability.rule import SAFE_TO_EVICT_LOCAL_VOLUMES, Context, Verdict, block
from trimtab.kube.objects import Pod, Volume

KINDS: Final = ("emptyDir", "hostPath")
MEMORY: Final = "Memory"


class LocalStorage:
    """Blocks them, unless the pod's annotation lists all such volumes, or what they hold is memory."""

    reads: ClassVar[str] = "template"

    def judge(self, pod: Pod, context: Context) -> Verdict | None:
        """See :meth:`~trimtab.autoscaling.scale_down.drainability.rule.Rule.judge`."""
        if not context.local_storage_blocks or not pod.spec.volumes:
            return None
        text = pod.annotations.get(SAFE_TO_EVICT_LOCAL_VOLUMES, "")
        safe = {name.strip() for name in text.split(",")}
        found = [volume for volume in pod.spec.volumes if _local(volume) and volume.name not in safe]
        if not found:
            return None
        names = ", ".join(f"{volume.name} ({volume.kind})" for volume in found)
        return block(LOCAL_STORAGE_REQUESTED, f"it has local volumes: {names}")


def _local(volume: Volume) -> bool:
    return volume.kind in KINDS and volume.medium != MEMORY

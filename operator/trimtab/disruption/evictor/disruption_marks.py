"""Remembers the condition DisruptionTarget that the evictor has set on pods, because the watch shows it later."""

from __future__ import annotations

from typing import Final

from trimtab.cluster.disruption_signals import DISRUPTION_TARGET
from trimtab.kube.objects import Pod

MARK_LIFETIME: Final = 60.0
"""Seconds for which the condition DisruptionTarget counts as set after it was written, even if no watch shows it. The
disruption controller removes the condition from pods that are not deleted within two minutes.
"""


class DisruptionMarks:
    """The conditions DisruptionTarget that were written in the last minute. Times are on the monotonic clock."""

    def __init__(self) -> None:
        self._written: dict[str, tuple[str, float]] = {}
        """The reason of the condition and its time, by the UID of the pod."""

    def has(self, pod: Pod, reason: str, now: float) -> bool:
        """Return whether a pod has the condition with a reason, as written last or, if that is long ago, as cached."""
        written, at = self._written.get(pod.uid, ("", -MARK_LIFETIME))
        if now - at < MARK_LIFETIME:
            return written == reason
        ours = (DISRUPTION_TARGET, "True", reason)
        return any((each.type, each.status, each.reason) == ours for each in pod.conditions)

    def wrote(self, uid: str, reason: str, now: float) -> None:
        """Remember that the condition of a pod was written."""
        self._written[uid] = reason, now

    def forget(self, uid: str) -> None:
        """Forget the condition of a pod, because the Eviction API writes its own, even if the deletion then fails."""
        self._written.pop(uid, None)

    def drop_expired(self, now: float) -> None:
        """Forget the conditions that no longer count."""
        self._written = {uid: mark for uid, mark in self._written.items() if now - mark[1] < MARK_LIFETIME}

"""The backoff of eviction attempts, which is the same for all requesters."""

from __future__ import annotations

from typing import Final

from trimtab.disruption.evictor.requests import Requester
from trimtab.kube.retry import Backoff

ERROR_BACKOFF: Final = Backoff(initial=0.2, maximum=5.0)
"""Backoff after an error, a missing response, or the refusal of a webhook."""

BUDGET_BACKOFF: Final = Backoff(initial=1.0, maximum=10.0)
"""Backoff after the refusal of a PodDisruptionBudget. Other pods must become ready before a retry can succeed."""

RETRIES_PER_SECOND: Final = 200
"""Maximum retries per second of all refused pods together, so that thousands of them do not overload a webhook."""

ADMISSION_RETRY: Final = 0.25
"""Minimum seconds until a request that the evictor did not admit is repeated."""


class EvictionRetries:
    """Counts the failed attempts of each request since its last success."""

    def __init__(self) -> None:
        self._failed: dict[tuple[str, Requester], int] = {}

    def __len__(self) -> int:
        return len(self._failed)

    def delay(self, uid: str, requester: Requester, *, by_budget: bool, retry_after: float | None = None) -> float:
        """Count a failed attempt and return the seconds until the next one.

        Args:
            uid: UID of the pod.
            requester: the requester.
            by_budget: whether a PodDisruptionBudget refused the eviction.
            retry_after: seconds to wait, as requested by the API server; ``None`` if it requested nothing.
        """
        key = (uid, requester)
        failed = self._failed.get(key, 0)
        self._failed[key] = failed + 1
        backoff = BUDGET_BACKOFF if by_budget else ERROR_BACKOFF
        return max(backoff.delay(failed), (len(self._failed) - 1) / RETRIES_PER_SECOND, retry_after or 0.0)

    def forget(self, uid: str, requester: Requester) -> None:
        """Forget the failed attempts of a request that has ended."""
        self._failed.pop((uid, requester), None)

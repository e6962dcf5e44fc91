"""Learned: writes down on groups' objects what their nodes are like."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from trimtab.autoscaling.groups.keys import LEARNED_NODE
from trimtab.autoscaling.providers.registry import DIALECTS, api_group_of
from trimtab.autoscaling.template.recording import Recording, next_records
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Unreachable

__all__ = ["Learned", "Recorded", "Recording", "next_records", "rules"]

REQUEST_SECONDS: Final = 10.0
AT_ONCE: Final = 8
MAX_WRITES: Final = 50
"""In one pass: a new cluster of 500 groups is written down in a few of them."""
AGAIN: Final = 300.0
"""Seconds until a group is tried again whose last write failed."""
SEEN: Final = 30.0
"""Seconds until a group is written again after a write: by then it has been seen, and the next pass knows of it."""


class Recorded(Struct, frozen=True):
    """What came of one group.

    Attributes:
        group: its id.
        message: why nothing was written, in words; empty where all went well.
    """

    group: str
    message: str = ""


class Learned:
    """Writes what :func:`~trimtab.autoscaling.template.recording.next_records` wants, one patch a group.

    What is written down is a help and no duty: nothing is raised, what fails is tried again minutes later, and the
    object of another group that has the name by now is left alone.
    """

    def __init__(
        self, api: Api, *, clock: Callable[[], float] | None = None, request_seconds: float = REQUEST_SECONDS
    ) -> None:
        """Prepare.

        Args:
            api: the API server.
            clock: seconds that only go forward; the event loop's where none is given.
            request_seconds: for one request.
        """
        self._api = api
        self._clock = clock
        self._request_seconds = request_seconds
        self._not_before: dict[str, float] = {}

    async def write(self, records: Sequence[Recording]) -> tuple[Recorded, ...]:
        """Write annotations, several at once; at most :data:`MAX_WRITES`, the rest is wanted again in the next pass.

        Args:
            records: of this pass.

        Returns:
            What came of those that were tried, in their order.
        """
        now = self._now()
        self._not_before = {uid: time for uid, time in self._not_before.items() if time > now}
        due = [each for each in records if each.group.uid not in self._not_before][:MAX_WRITES]
        at_once = asyncio.Semaphore(AT_ONCE)

        async def one(record: Recording) -> Recorded:
            async with at_once:
                message = await self._write(record)
            self._not_before[record.group.uid] = self._now() + (AGAIN if message else SEEN)
            return Recorded(record.group.id, message)

        return tuple(await asyncio.gather(*map(one, due)))

    async def _write(self, record: Recording) -> str:
        """Write one; returns what went wrong.

        A merge patch, since annotations may be missing altogether; the UID in it is refused of another object.
        """
        group = record.group
        dialect = next(each for each in DIALECTS if each.api_group == api_group_of(group))
        patch = {"metadata": {"uid": group.uid, "annotations": {LEARNED_NODE: record.text}}}
        try:
            async with asyncio.timeout(self._request_seconds):
                await verbs.merge_patch(
                    self._api,
                    dialect.scaled(group),
                    group.name,
                    patch,
                    namespace=group.namespace,
                    timeout=self._request_seconds,
                )
        except ApiError as error:
            return error.message
        except Unreachable as error:
            return str(error)
        except TimeoutError:
            return f"no answer within {self._request_seconds:g} s"
        return ""

    def _now(self) -> float:
        return asyncio.get_running_loop().time() if self._clock is None else self._clock()


def rules() -> tuple[dict[str, list[str]], ...]:
    """The rights that writing takes, as rules of a ClusterRole: annotations have no subresource of their own."""
    return tuple(
        {"apiGroups": [each.api_group], "resources": sorted(each.scalable.values()), "verbs": ["patch"]}
        for each in DIALECTS
    )

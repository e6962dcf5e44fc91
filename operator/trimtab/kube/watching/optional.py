"""Watches a kind that a cluster may lack: what is not there has no objects, and nobody waits for it.

Custom resources of others come and go with their definitions. So the server is asked first which version it serves, an
:class:`~trimtab.kube.watching.informer.Informer` watches that one, and where it is gone, or hidden from who asks, the
store is emptied and the server is asked again now and then.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from trimtab.kube.api import Api, ApiError, Forbidden, NotFound, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.discovery import Discovery
from trimtab.kube.resources import Resource
from trimtab.kube.retry import Backoff
from trimtab.kube.watching.informer import Informer
from trimtab.kube.watching.state import InformerState, ServerAbilities
from trimtab.kube.watching.store import Store, Stored
from trimtab.kube.wire.intern import Interner

T = TypeVar("T", bound=Stored)

logger = logging.getLogger(__name__)

LOOK_AGAIN: Final = 5.0
"""Seconds until an absent kind is looked for again: one small request for all of them together."""
HIDDEN: Final = 30.0
"""Seconds until a forbidden kind is asked for again: an administrator has to act first."""
RETRY: Final = Backoff(initial=0.5, maximum=10.0)

ABSENT: Final = "Absent"
"""The phase of a kind that is not served."""
HIDDEN_PHASE: Final = "Hidden"
"""The phase of a kind that we may not read."""


class OptionalInformer(Generic[T]):
    """One kind, watched wherever and as long as there is such a kind; run it as a task.

    Attributes:
        resource: in the version that is watched, or was last; the newest before that.
        store: what is kept equal; empty and synced where there is no such kind.
    """

    def __init__(
        self,
        api: Api,
        versions: Sequence[Resource],
        store: Store[T],
        *,
        discovery: Discovery,
        interner: Interner | None = None,
        abilities: ServerAbilities | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Prepare; nothing is asked before :meth:`run`.

        Args:
            api: the server.
            versions: the resource in the versions that we can read, the one that is wanted most first.
            store: what to keep equal.
            discovery: says which of them is served; shared by all kinds.
            interner: shares equal values with other informers.
            abilities: shared by all informers of the server.
            clock: tells and waits.
        """
        self.resource = versions[0]
        self.store = store
        self._api = api
        self._versions = tuple(versions)
        self._discovery = discovery
        self._interner = interner
        self._abilities = abilities
        self._clock = clock
        self._informer: Informer[T] | None = None
        self._state = InformerState(phase="Starting", error="", since=clock.now())

    @property
    def state(self) -> InformerState:
        """What it is doing."""
        return self._state if self._informer is None else self._informer.state

    async def run(self) -> None:
        """Watch until cancelled.

        Raises:
            Exception: only what a listener of the store raised.
        """
        retry = 0
        while True:
            try:
                found = await self._discovery.first_served(self._versions)
            except (ApiError, Unreachable) as error:
                self._enter("Retrying", str(error) or type(error).__name__)
                await self._clock.sleep(RETRY.delay(retry))
                retry += 1
                continue
            retry = 0
            if found is None:
                self._there_is_none(ABSENT, "not served")
                await self._clock.sleep(LOOK_AGAIN)
            else:
                await self._clock.sleep(await self._watch(found))

    async def _watch(self, found: Resource) -> float:
        """Watch until there is nothing to watch; returns the seconds until that is looked at again."""
        self.resource = found
        self._informer = Informer(
            self._api,
            found,
            self.store,
            interner=self._interner,
            abilities=self._abilities,
            clock=self._clock,
            optional=True,
        )
        if self._state.phase == ABSENT:
            logger.info("Watching %s: %s is served now", found.name, found.api_version)
        self._enter("Starting", "")
        try:
            await self._informer.run()
        except NotFound:
            self._there_is_none(ABSENT, "not served")
            return LOOK_AGAIN
        except Forbidden as error:
            self._there_is_none(HIDDEN_PHASE, str(error))
            return HIDDEN
        finally:
            self._informer = None
        raise AssertionError("an informer ended without a word")

    def _there_is_none(self, phase: str, why: str) -> None:
        """What is not served, or not ours to see, counts as none at all."""
        if self._state.phase != phase:
            level = logging.WARNING if phase == HIDDEN_PHASE else logging.INFO
            logger.log(level, "There are no %s: %s", self.resource.name, why)
        self.store.retain(set())
        self.store.synced = True
        self._enter(phase, why)

    def _enter(self, phase: str, error: str) -> None:
        if (self._state.phase, self._state.error) != (phase, error):
            self._state = InformerState(phase=phase, error=error, since=self._clock.now())

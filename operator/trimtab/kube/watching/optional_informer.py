"""Watches a resource that may be absent. It then has no objects, and the operator's readiness does not depend on it.

CRDs of other projects may be installed and removed at any time. The informer first queries discovery for a version that
the server serves, and then watches it with an :class:`~trimtab.kube.watching.informer.Informer`. If the CRD or the
permission to read it is removed, the informer empties the store and queries discovery periodically.
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
from trimtab.kube.watching.informer import Informer, InformerState, ServerAbilities
from trimtab.kube.watching.store import Store, Stored
from trimtab.kube.wire.intern import Interner

T = TypeVar("T", bound=Stored)

logger = logging.getLogger(__name__)

RECHECK_ABSENT: Final = 5.0
"""Seconds between two queries for an absent resource. One small request serves all optional resources."""
RECHECK_FORBIDDEN: Final = 5.0
"""Seconds between two attempts to read a forbidden resource, so that it is read within seconds of the role's return."""
RETRY: Final = Backoff(initial=0.5, maximum=10.0)

ABSENT: Final = "Absent"
"""The phase of a resource that is not served."""
HIDDEN: Final = "Hidden"
"""The phase of a resource that trimtab has no permission to read."""


class OptionalInformer(Generic[T]):
    """Watches a resource while the server serves it. Run :meth:`run` as a task.

    Attributes:
        resource: the resource in the version that is or was last watched, initially the preferred version.
        store: the store to keep in sync. It is empty and synced if the resource is absent.
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
        """Create an informer. It sends no request before :meth:`run`.

        Args:
            api: the API server.
            versions: the resource in the versions that trimtab can decode, the preferred one first.
            store: the store to keep in sync.
            discovery: finds the served version. All optional informers share it.
            interner: shares identical values with other informers.
            abilities: the abilities of the server, shared by all its informers.
            clock: provides the time.
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
        self._discoveries = 0

    @property
    def activity(self) -> tuple[int, ...]:
        """Return counters that change with any activity of the informer, including failures."""
        return self._discoveries, *(() if self._informer is None else self._informer.activity)

    @property
    def state(self) -> InformerState:
        """Return the state of the watch."""
        return self._state if self._informer is None else self._informer.state

    async def run(self) -> None:
        """Watch until cancelled.

        Raises:
            Exception: the exception of a listener of the store.
        """
        retry = 0
        while True:
            self._discoveries += 1
            try:
                found = await self._discovery.first_served(self._versions)
            except (ApiError, Unreachable) as error:
                self._enter("Retrying", str(error) or type(error).__name__)
                await self._clock.sleep(RETRY.delay(retry))
                retry += 1
                continue
            retry = 0
            if found is None:
                self._clear(ABSENT, "not served")
                await self._clock.sleep(RECHECK_ABSENT)
            else:
                await self._clock.sleep(await self._watch(found))

    async def _watch(self, found: Resource) -> float:
        """Watch until the resource is removed or forbidden. Return the seconds to wait before the next discovery."""
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
            logger.info("Watching %s because the API server now serves %s", found.name, found.api_version)
        self._enter("Starting", "")
        try:
            await self._informer.run()
        except NotFound:
            self._clear(ABSENT, "not served")
            return RECHECK_ABSENT
        except Forbidden as error:
            self._clear(HIDDEN, str(error))
            return RECHECK_FORBIDDEN
        finally:
            self._informer = None
        raise AssertionError("an informer ended without an error")

    def _clear(self, phase: str, why: str) -> None:
        """Empty the store. An absent or forbidden resource is treated as having no objects."""
        if self._state.phase != phase:
            level = logging.WARNING if phase == HIDDEN else logging.INFO
            logger.log(level, "Not watching %s: %s", self.resource.name, why)
        self.store.retain(set())
        self.store.synced = True
        self._enter(phase, why)

    def _enter(self, phase: str, error: str) -> None:
        if (self._state.phase, self._state.error) != (phase, error):
            self._state = InformerState(phase=phase, error=error, since=self._clock.now())

"""Kopf's daemons as our controllers see them, and the handlers of a custom resource of which a cluster has one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

import kopf
from msgspec import Struct

from trimtab.kube.resources import Resource

LONGEST_STOP: Final = 28.0
"""Seconds that a daemon gets to end what is in flight in good order; Kopf calls this its cancellation backoff."""

LONGEST_CANCEL: Final = 2.0
"""Seconds that it gets to end once it is cancelled."""

LONGEST_CLEANING: Final = 180.0
"""Seconds after which a deleted object goes, whatever of ours could not be taken from the cluster."""


class Stopped(Protocol):
    """What Kopf hands to a daemon: set once the object is deleted or the operator exits."""

    def __bool__(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> Awaitable[object]:
        """Wait until it is set."""
        ...


class Singleton(Protocol):
    """A controller of the one object of its kind."""

    def observe(self, body: Mapping[str, Any]) -> None:
        """Take the object in as it is written now."""
        ...

    def end(self) -> None:
        """End :meth:`run`: the object is gone, whoever took our finalizer away."""
        ...

    async def run(self, stopped: Stopped) -> None:
        """Carry the object out until stopped."""
        ...

    async def clean_up(self) -> None:
        """Take what is ours from the cluster: the object is being deleted."""
        ...

    async def stop(self) -> None:
        """End what :meth:`clean_up` has begun, without :meth:`run`."""
        ...


def register_singleton(
    registry: kopf.OperatorRegistry,
    resource: Resource,
    name: str,
    *,
    make: Callable[[], Singleton],
    refuse: Callable[[Mapping[str, Any]], Awaitable[None]],
) -> None:
    """Register the handlers of a kind of which a cluster has one object.

    A daemon for the one of that name, and a handler of its deletion, which Kopf's finalizer makes wait for: it cleans
    up also where the process that acted is no more.

    Args:
        registry: of the operator.
        resource: the kind.
        name: of the one object.
        make: makes its controller.
        refuse: tells an object of another name that there is only one; given its body.
    """
    one = _One((resource.group, resource.version, resource.plural), name, make, {})
    _register_events(registry, one, refuse)
    _register_loop(registry, one)
    _register_deletion(registry, one)


class _One(Struct, frozen=True):
    """The one object.

    Attributes:
        selector: its kind, as Kopf's decorators take it.
        name: its name.
        make: makes a controller.
        running: controllers by UID: a successor of the same name is another one.
    """

    selector: tuple[str, str, str]
    name: str
    make: Callable[[], Singleton]
    running: dict[str, Singleton]

    def ours(self, name: str | None, **_: Any) -> bool:
        """Whether an object has that name: a filter of Kopf's."""
        return name == self.name

    def others(self, name: str | None, **_: Any) -> bool:
        """Whether it has not."""
        return name != self.name


def _register_events(
    registry: kopf.OperatorRegistry, one: _One, refuse: Callable[[Mapping[str, Any]], Awaitable[None]]
) -> None:
    @kopf.on.event(*one.selector, registry=registry, when=one.ours)
    async def changed(body: kopf.Body, uid: str | None, type: str | None, **_: Any) -> None:  # noqa: A002
        controller = one.running.get(uid or "")
        if controller is None:
            return
        if type == "DELETED":
            controller.end()  # Kopf forgets the daemon of an object that went without its finalizer
        elif not body["metadata"].get("deletionTimestamp"):
            controller.observe(body)

    @kopf.on.event(*one.selector, registry=registry, when=one.others)
    async def misnamed(body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002
        if type != "DELETED":
            await refuse(body)


def _register_loop(registry: kopf.OperatorRegistry, one: _One) -> None:
    @kopf.daemon(
        *one.selector,
        registry=registry,
        when=one.ours,
        cancellation_backoff=LONGEST_STOP,
        cancellation_timeout=LONGEST_CANCEL,
    )
    async def loop(body: kopf.Body, uid: str | None, stopped: kopf.DaemonStopped, **_: Any) -> None:
        controller = one.running[uid or ""] = one.make()
        controller.observe(body)
        try:
            await controller.run(stopped)
        finally:
            one.running.pop(uid or "", None)


def _register_deletion(registry: kopf.OperatorRegistry, one: _One) -> None:
    @kopf.on.delete(*one.selector, registry=registry, when=one.ours, timeout=LONGEST_CLEANING, backoff=2.0)
    async def deleted(uid: str | None, **_: Any) -> None:
        if uid in one.running:
            raise kopf.TemporaryError("the loop has not ended yet", delay=1.0)
        controller = one.make()
        try:
            await controller.clean_up()
        finally:
            await controller.stop()

"""Kopf's side of the descheduler: thin closures that hand policies to their controllers."""

from __future__ import annotations

from typing import Any, Final

import kopf

from trimtab.descheduling.controller import PolicyController
from trimtab.descheduling.services import Services
from trimtab.kube.resources import DESCHEDULER_POLICIES, DESCHEDULING_RUNS

LONGEST_STOP: Final = 20.0
"""Seconds that a policy's daemon gets to finish what is in flight: an eviction's request, never a wait.

Kopf calls this its cancellation backoff. Without one it would cancel at once, in the middle of a request."""

LONGEST_CANCEL: Final = 2.0
"""Seconds that a daemon gets to end once it is cancelled, after which Kopf leaves it alone."""


def register(registry: kopf.OperatorRegistry, services: Services) -> None:
    """Register the handlers of DeschedulerPolicy.

    A daemon per policy, so that deletion waits (by Kopf's finalizer) until the loop has ended; and a plain event
    handler, because a daemon alone would see a new spec only when it next looks.
    """
    resource = (DESCHEDULER_POLICIES.group, DESCHEDULER_POLICIES.version, DESCHEDULER_POLICIES.plural)
    controllers: dict[str, PolicyController] = {}  # by UID: a successor of the same name is another policy

    @kopf.on.event(*resource, registry=registry)
    async def changed(body: kopf.Body, uid: str | None, type: str | None, **_: Any) -> None:  # noqa: A002
        controller = controllers.get(uid or "")
        if controller is None:
            if type == "DELETED":  # one that no loop was ever begun for
                services.peers.forget(body["metadata"]["name"], uid or "")
            return
        if type == "DELETED":
            controller.end()  # Kopf forgets the daemon of a policy that went without its finalizer
        elif not body["metadata"].get("deletionTimestamp"):
            controller.observe(body)

    runs = (DESCHEDULING_RUNS.group, DESCHEDULING_RUNS.version, DESCHEDULING_RUNS.plural)

    @kopf.on.event(*runs, registry=registry)
    async def run_changed(body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002
        """A run belongs to the policy that its plan names, whatever was done to its labels; other ones list theirs."""
        controller = controllers.get(body.get("spec", {}).get("plan", {}).get("policyUid", ""))
        if controller is not None:
            controller.observe_run(body, gone=type == "DELETED")

    @kopf.daemon(*resource, registry=registry, cancellation_backoff=LONGEST_STOP, cancellation_timeout=LONGEST_CANCEL)
    async def descheduler(
        body: kopf.Body, name: str | None, uid: str | None, stopped: kopf.DaemonStopped, **_: Any
    ) -> None:
        controller = controllers[uid or ""] = PolicyController(name or "", services)
        controller.observe(body)
        try:
            await controller.run(stopped)
        finally:
            controllers.pop(uid or "", None)

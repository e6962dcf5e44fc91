"""The Kopf handlers of the descheduler, which pass events to the policies' controllers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import kopf

from trimtab.controller.kopf_handlers import register_loops
from trimtab.descheduling.controller import PolicyController
from trimtab.descheduling.dependencies import DeschedulerDependencies
from trimtab.kube.resources import DESCHEDULER_POLICIES, DESCHEDULING_RUNS

LONGEST_STOP: Final = 20.0
"""Seconds that a policy's daemon has to finish requests in flight.

It is Kopf's cancellation backoff. Without it, Kopf would cancel the daemon at once, possibly during a request.
"""


class PolicyHandlers:
    """The handlers of DeschedulerPolicies and DeschedulingRuns. Each kind is registered with its own Kopf operator.

    Args:
        deps: the dependencies that all policies share.
    """

    def __init__(self, deps: DeschedulerDependencies) -> None:
        self._deps = deps
        self._controllers: dict[str, PolicyController] = {}  # by UID, because a new policy may have the same name

    def register_policies(self, registry: kopf.OperatorRegistry) -> None:
        """Register the handlers of DeschedulerPolicy."""

        def forget(body: Mapping[str, Any], uid: str) -> None:
            self._deps.policies.forget(body["metadata"]["name"], uid)

        register_loops(
            registry,
            DESCHEDULER_POLICIES,
            make=lambda name: PolicyController(name, self._deps),
            running=self._controllers,
            never_started=forget,
            stop_timeout=LONGEST_STOP,
        )

    def register_runs(self, registry: kopf.OperatorRegistry) -> None:
        """Register the handler of DeschedulingRun."""
        runs = (DESCHEDULING_RUNS.group, DESCHEDULING_RUNS.version, DESCHEDULING_RUNS.plural)

        @kopf.on.event(*runs, registry=registry)
        async def run_changed(body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002
            """Pass a run to the policy named in its plan. Labels are ignored, because users can edit them."""
            controller = self._controllers.get(body.get("spec", {}).get("plan", {}).get("policyUid", ""))
            if controller is not None:
                controller.observe_run(body, gone=type == "DELETED")

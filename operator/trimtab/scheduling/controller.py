"""The controller of a SchedulerPolicy: it sets the scheduler's profile while the policy is valid, and reports status.

One scheduler schedules the pods of all policies (:mod:`.cycle`). There is at most one policy for each scheduler name:
if several policies have the same name, the oldest one is used, and the others report a conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.decode import decode_scheduler_policy
from trimtab.api.scheduler_policy import QueueCounts, SchedulerPolicy
from trimtab.controller.loop import ControllerLoop, NotReadyReason
from trimtab.controller.permissions import Requirement
from trimtab.controller.status_reporter import StatusReporter
from trimtab.kube.errors import InputError
from trimtab.kube.resources import SCHEDULER_POLICIES
from trimtab.placement.registry import Profile
from trimtab.scheduling.cycle import Scheduler
from trimtab.scheduling.dependencies import SchedulerDependencies
from trimtab.scheduling.extenders import ApiObjects, ExtenderChain
from trimtab.scheduling.permissions import required_permissions
from trimtab.scheduling.policy_status import PolicyObservation, build_status, status_writer
from trimtab.scheduling.profiles import extender_scale, profile_of

REPORT_PERIOD: Final = 5.0
"""Seconds between two status reports of a policy."""


class _Claim(Struct, order=True):
    """A policy that wants to schedule the pods of a scheduler name.

    The smallest claim, which is that of the oldest policy, wins.
    """

    created: str
    policy: str
    uid: str


class SchedulerNames:
    """Decides which SchedulerPolicy applies to a scheduler name if several policies specify the same name."""

    def __init__(self) -> None:
        self._claims: dict[str, dict[str, _Claim]] = {}
        self._listeners: dict[str, Callable[[], None]] = {}

    def claim(self, scheduler: str, policy: SchedulerPolicy, changed: Callable[[], None]) -> list[str]:
        """Claim a scheduler name for a policy, instead of the name that the policy claimed before.

        Args:
            scheduler: the scheduler name.
            policy: the policy.
            changed: called when the result may have changed.

        Returns:
            The names of the policies with this scheduler name, oldest first. The first one owns it.
        """
        metadata = policy.metadata
        claims = self._claims.setdefault(scheduler, {})
        if metadata.uid not in claims:
            self.release(metadata.uid)
            claims = self._claims.setdefault(scheduler, {})
            claims[metadata.uid] = _Claim(metadata.creation_timestamp or "", metadata.name, metadata.uid)
            self._notify(claims, but=metadata.uid)
        self._listeners[metadata.uid] = changed
        return [each.policy for each in sorted(claims.values())]

    def release(self, uid: str) -> None:
        """Give up the claim of a policy that was deleted or became invalid."""
        self._listeners.pop(uid, None)
        for scheduler, claims in list(self._claims.items()):
            if claims.pop(uid, None) is not None:
                self._notify(claims, but=uid)
            if not claims:
                del self._claims[scheduler]

    def _notify(self, claims: Mapping[str, _Claim], *, but: str) -> None:
        for uid in claims:
            if uid != but and uid in self._listeners:
                self._listeners[uid]()


class SchedulerPolicyController(ControllerLoop[SchedulerPolicy]):
    """Reconciles one SchedulerPolicy.

    Args:
        name: name of the policy.
        dependencies: the dependencies of the scheduler.
        scheduler: schedules the pods of all policies.
        names: decides between policies with the same scheduler name.
    """

    resource = SCHEDULER_POLICIES

    def __init__(
        self, name: str, dependencies: SchedulerDependencies, scheduler: Scheduler, names: SchedulerNames
    ) -> None:
        super().__init__(f"scheduler policy {name}", dependencies.clock)
        self.name = name
        self._dependencies = dependencies
        self._scheduler = scheduler
        self._names = names
        self._applied: SchedulerPolicy | None = None
        self._profile: Profile | None = None
        self._stale = NotReadyReason()
        self._status = StatusReporter(
            status_writer(dependencies.api, dependencies.clock, name),
            dependencies.clock,
            reason=reasons.INVALID_POLICY,
            idle="the spec is invalid: no pod is scheduled",
        )

    # --- the loop -------------------------------------------------------------------------------------------------

    async def _reconcile(self, policy: SchedulerPolicy) -> float:
        # 1. Claim the scheduler name. Another policy with the same name may be older.
        scheduler = policy.spec.scheduler_name
        owner, *others = self._names.claim(scheduler, policy, self.wake)
        # 2. Schedule pods with the filters and scores of the policy from the next cycle on.
        if owner != self.name:
            self._withdraw()
        elif self._applied is not policy:
            if self._applied is not None and self._applied.spec.scheduler_name != scheduler:
                self._withdraw()
            self._profile = profile_of(policy.spec)
            self._scheduler.set_profile(scheduler, self._profile, self._extenders(policy))
            self._applied = policy
        # 3. Report the queue and the reasons of unschedulable pods.
        self._report(scheduler, owner, tuple(others))
        return REPORT_PERIOD

    def _extenders(self, policy: SchedulerPolicy) -> ExtenderChain | None:
        spec = policy.spec
        if not spec.extenders:
            return None
        objects = ApiObjects(self._dependencies.api, self._dependencies.clock)
        return ExtenderChain(spec.extenders, objects, scale=extender_scale(spec))

    async def _invalid(self, problem: InputError) -> float | None:
        self._names.release(self.uid)
        self._withdraw()
        self._status.invalid(problem, generation=self.generation, queue=QueueCounts(), unschedulable=())
        return None

    async def _failed(self, error: Exception) -> float:
        self._status.failed(error, generation=self.generation)
        return REPORT_PERIOD

    async def _finish(self) -> None:
        self._names.release(self.uid)
        self._withdraw()
        await self._status.stop(everything=True)

    # --- its object -----------------------------------------------------------------------------------------------

    def _decode(self, body: Mapping[str, Any]) -> SchedulerPolicy:
        return decode_scheduler_policy(dict(body))

    def _requirements(self, obj: SchedulerPolicy) -> tuple[Requirement, ...]:
        del obj  # all policies need the same
        return required_permissions()

    def _resume(self, status: Mapping[str, Any]) -> None:
        self._status.resume(status)

    # --- the steps ------------------------------------------------------------------------------------------------

    def _withdraw(self) -> None:
        """Stop scheduling the pods of the policy's scheduler name, unless an older policy has already taken over."""
        if self._applied is not None:
            self._scheduler.remove_profile(self._applied.spec.scheduler_name, self._profile)
            self._applied = None

    def _report(self, scheduler: str, owner: str, others: tuple[str, ...]) -> None:
        clock, reporter = self._dependencies.clock, self._dependencies.reporter
        observed = PolicyObservation(
            now=clock.now(),
            generation=self.generation,
            scheduler=scheduler,
            owner="" if owner == self.name else owner,
            others=others if owner == self.name else (),
            stale=self._stale.lasting(self._dependencies.stale(), clock.monotonic()),
        )
        if owner == self.name:
            observed = replace(
                observed,
                queue=self._scheduler.queue_counts(scheduler),
                counts=reporter.counts(scheduler),
                unschedulable=reporter.unschedulable(scheduler),
            )
        self._status.put(build_status(observed, self._status.current, base=self._status.resumed.counts))

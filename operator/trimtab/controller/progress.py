"""Tracks the progress of the operator's components, so that health checks depend on work done and not on a heartbeat.

A component is a loop, a watch, a work queue or a status writer. It reports what it does::

    progress = Progress()
    PROGRESS_REGISTRY.set(progress)              # the composition root, before it starts tasks

    component = register_component("loop policy nightly")
    component.expect()                           # work arrived, which an idle component begins at once
    component.begin()                            # an iteration begins
    component.advance()                          # it made progress and continues
    component.allow_silence(300.0)               # it waits, for example for pods to terminate, for at most 300 s
    component.succeed(due_in=30.0)               # it succeeded; the next is due in 30 s (None: when something wakes it)
    component.fail(error, due_in=30.0)           # it failed; the retry is due in 30 s

    progress.problems(max_inactivity=600, max_failing_time=900)

A component is *inactive* while it makes no progress although progress is due. While work is in progress, the inactivity
starts at the last report of progress. Between two iterations, it starts at the time at which the next iteration is due.
A component whose task ended unexpectedly (:meth:`Component.mark_dead`) is a problem after :data:`RESTART_TIME` at the
latest, unless another component registers with the same name by then. cluster-autoscaler's ``--max-inactivity`` and
``--max-failing-time`` have the same meaning for its single loop.

A task of :class:`~trimtab.controller.loop.TaskSupervisor` reports to :func:`current_component`.

A context variable holds the registry and tasks inherit it, so no constructor has to pass it on. Without a registry, as
in most tests, a component's reports have no effect. A component belongs to one thread, but any thread may read the
registry.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeAlias
from weakref import WeakSet

from msgspec import Struct

from trimtab.api import reasons
from trimtab.kube.resources import Resource

RESTART_TIME: Final = 60.0
"""Seconds after which a task that ended unexpectedly is not expected to be restarted; the longest backoff is 45 s."""

TOLERATED_INTERVALS: Final = 3
"""Number of intervals by which a plan may be overdue before it is considered stale."""

MIN_TOLERANCE: Final = 60.0
MAX_TOLERANCE: Final = 180.0
"""Minimum and maximum of the resulting tolerance in seconds. Intervals range from a second to a day, and planning may
take as long as its deadline.
"""


Subject: TypeAlias = tuple[Resource, str]
"""The resource and name of a cluster-scoped custom object."""


class PlanSchedule(Struct, frozen=True):
    """The interval at which a component makes plans, and the custom object that they are for.

    Attributes:
        resource: the resource of the object.
        name: name of the object, which is cluster-scoped.
        interval: seconds between two plans.
    """

    resource: Resource
    name: str
    interval: float

    @property
    def tolerance(self) -> float:
        """Return the seconds by which a plan may be overdue."""
        return min(max(TOLERATED_INTERVALS * self.interval, MIN_TOLERANCE), MAX_TOLERANCE)


class Component:
    """The progress of one component. Only the component itself calls the reporting methods.

    Times are seconds on the monotonic clock.

    Attributes:
        name: name of the component.
        error: the latest failure; empty while the component succeeds.
        plan_schedule: the interval at which the component makes plans; ``None`` if it makes no plans.
        status_of: the object whose status the component writes; ``None`` if it writes none.
        allowed_silence: seconds for which the work in progress is expected to report no progress.
    """

    def __init__(self, name: str, now: Callable[[], float] = time.monotonic, *, kind: str = "") -> None:
        self.name = name
        self._kind = kind or name
        self.allowed_silence = 0.0
        self.error = ""
        self.plan_schedule: PlanSchedule | None = None
        self.status_of: Subject | None = None
        self._now = now
        self._active = now()
        self._began: float | None = None
        self._due: float | None = None
        self._failing: float | None = None
        self._planned: float | None = None
        self._waiting = False
        self._dead = False

    # --- reported by the component ------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Report that work begins. If the component makes plans, its next plan is due now."""
        self.allowed_silence, self._due, self._planned = 0.0, None, None
        self._active = self._began = self._now()

    def expect(self) -> None:
        """Report that work has arrived. It is due now, unless work is in progress or already due."""
        if self._began is None and (self._due is None or self._due > self._now()):
            self._due = self._now()

    def advance(self) -> None:
        """Report that the work in progress has made progress."""
        self._active = self._now()

    def allow_silence(self, seconds: float) -> None:
        """Expect no progress for this many seconds, for example while pods terminate."""
        self._active = self._now()
        self.allowed_silence = seconds

    def plan_made(self) -> None:
        """Report that the work in progress has made its plan.

        The next plan does not become overdue while this plan is carried out.
        """
        self._active = self._planned = self._now()

    def succeed(self, due_in: float | None = None) -> None:
        """Report success. The next work is due in ``due_in`` seconds, or on a wake-up (``None``)."""
        self.recover()
        self._end(due_in)

    def fail(self, error: object, due_in: float | None = None) -> None:
        """Report a failure. The retry is due in ``due_in`` seconds, or on a wake-up (``None``)."""
        self.error = str(error) or type(error).__name__
        if self._failing is None:
            self._failing = self._now()
        self._end(due_in)

    def recover(self) -> None:
        """Report that the component does not fail any longer, whatever it is doing."""
        self._failing, self.error = None, ""

    def mark_dead(self, error: object = "its task ended") -> None:
        """Report that the component's task ended unexpectedly."""
        self.fail(error, 0.0)
        self._dead = True

    def idle(self) -> None:
        """Report that no work is in progress and none is due. A failure remains until the next success."""
        self._end(None)

    @contextmanager
    def waiting_for_other(self) -> Iterator[None]:
        """Exclude the time in this context from inactivity.

        Use it while the component waits for another one, which reports its own progress.
        """
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False
            self.advance()
            if self._began is not None:
                self._began = self._active

    def _end(self, due_in: float | None) -> None:
        self._active = self._now()
        self._began, self._planned, self.allowed_silence = None, None, 0.0
        self._due = None if due_in is None else self._active + due_in

    # --- read from any thread -----------------------------------------------------------------------------------------

    @property
    def dead(self) -> bool:
        """Return whether the component's task ended unexpectedly."""
        return self._dead

    def inactive_seconds(self) -> float:
        """Return the seconds since progress was due; 0 if no progress is due."""
        began, due, since = self._began, self._due, self._active
        if self._waiting or (began is None and due is None):
            return 0.0
        if began is None and due is not None:
            since = max(since, due)
        return max(0.0, self._now() - since)

    def failing_seconds(self) -> float:
        """Return the seconds since the first failure after the latest success; 0 if the latest work succeeded."""
        failing = self._failing
        return 0.0 if failing is None else self._now() - failing

    def plan_overdue_seconds(self) -> float:
        """Return the seconds by which the next plan is overdue; 0 if it is not overdue."""
        began, due = self._began, self._due
        if self.plan_schedule is None or self._waiting or self._planned is not None:
            return 0.0
        since = began if began is not None else due
        return 0.0 if since is None else max(0.0, self._now() - since)

    @property
    def kind(self) -> str:
        """Return the component's name without the name of the object. It is the label of metrics."""
        plan_schedule = self.plan_schedule
        return self._kind if plan_schedule is None else plan_schedule.resource.kind

    def plan_is_stale(self) -> bool:
        """Return whether the next plan is overdue by more than the schedule tolerates."""
        plan_schedule = self.plan_schedule
        return plan_schedule is not None and self.plan_overdue_seconds() > plan_schedule.tolerance


class Problem(Struct, frozen=True):
    """A component that has been inactive or failing for too long.

    Attributes:
        component: name of the component.
        reason: :data:`~trimtab.api.reasons.INACTIVE` or :data:`~trimtab.api.reasons.FAILING`.
        seconds: seconds for which the component has been inactive or failing.
        error: the latest failure; empty if there is none.
    """

    component: str
    reason: str
    seconds: float
    error: str

    def __str__(self) -> str:
        error = f" ({self.error})" if self.error else ""
        return f"{self.reason}: {self.component} for {self.seconds:.0f} s{error}"


class Progress:
    """The registry of the components of one process.

    Args:
        now: returns seconds on a monotonic clock that all threads share.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._components: WeakSet[Component] = WeakSet()  # a live component unregisters when its owner is freed
        self._dead: dict[str, Component] = {}

    def component(self, name: str, *, kind: str = "") -> Component:
        """Register a component. It is unregistered when nothing else refers to it."""
        component = Component(name, self._now, kind=kind)
        with self._lock:
            self._components.add(component)
            self._dead.pop(name, None)
        return component

    def keep_dead(self, component: Component) -> None:
        """Keep a component registered although its task has ended, because it ended unexpectedly."""
        with self._lock:
            self._dead[component.name] = component

    def forget(self, component: Component) -> None:
        """Unregister a component that ended as intended."""
        with self._lock:
            self._components.discard(component)

    @property
    def components(self) -> list[Component]:
        """Return all registered components, sorted by name."""
        with self._lock:
            found = {*self._components, *self._dead.values()}
        return sorted(found, key=lambda component: component.name)

    def problems(self, *, max_inactivity: float, max_failing_time: float) -> list[Problem]:
        """Return the components that have been inactive or failing for too long.

        Args:
            max_inactivity: maximum seconds of inactivity. The ``allowed_silence`` of a component extends it, and
                :data:`RESTART_TIME` limits it for a component whose task has ended.
            max_failing_time: maximum seconds since the first failure.
        """
        found: list[Problem] = []
        for component in self.components:
            allowed_silence = component.allowed_silence  # read before the component's thread resets it
            inactive, failing = component.inactive_seconds(), component.failing_seconds()
            limit = max(max_inactivity, allowed_silence)
            if inactive > (min(limit, RESTART_TIME) if component.dead else limit):
                found.append(Problem(component.name, reasons.INACTIVE, inactive, component.error))
            elif failing > max_failing_time:
                found.append(Problem(component.name, reasons.FAILING, failing, component.error))
        return found

    def problem(self, *, max_inactivity: float, max_failing_time: float) -> str | None:
        """Return a description of :meth:`problems` for a health check; ``None`` if there are none."""
        found = self.problems(max_inactivity=max_inactivity, max_failing_time=max_failing_time)
        return "; ".join(str(each) for each in found) or None


PROGRESS_REGISTRY: Final[ContextVar[Progress | None]] = ContextVar("progress", default=None)
"""The registry of the process. Tasks inherit it from the task that starts them."""


def register_component(name: str, *, kind: str = "") -> Component:
    """Register a component in the registry of this context, if there is one.

    Args:
        name: name of the component.
        kind: ``name`` minus the name of the object, as a label of metrics; empty if ``name`` contains no object name.
    """
    progress = PROGRESS_REGISTRY.get()
    return Component(name, kind=kind) if progress is None else progress.component(name, kind=kind)


_CURRENT: Final[ContextVar[Component | None]] = ContextVar("component", default=None)


def set_current_component(component: Component) -> None:
    """Set the component of the current task, and of the tasks that it starts."""
    _CURRENT.set(component)


def current_component() -> Component:
    """Return the component of the current task. Without one, reports to the returned component have no effect."""
    return _CURRENT.get() or Component("none")


@contextmanager
def track_component(name: str, *, ends: Callable[[], bool] = lambda: False) -> Iterator[Component]:
    """Register a component for the duration of a task.

    Args:
        name: name of the component.
        ends: returns whether the task was asked to end. If it was not, the component is marked dead when the task ends.
    """
    component, progress = register_component(name), PROGRESS_REGISTRY.get()
    error: object = "its task ended"
    try:
        yield component
    except BaseException as failure:
        error = repr(failure)
        raise
    finally:
        if progress is not None:
            if ends():
                progress.forget(component)
            else:
                component.mark_dead(error)
                progress.keep_dead(component)

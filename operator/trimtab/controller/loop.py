"""The reconcile loop of a controller. It starts the iterations, handles their failures and cleans up at the end.

    class PolicyController(ControllerLoop[DeschedulerPolicy]):
        def _decode(self, body): return decode_policy(body)

        async def _reconcile(self, policy):     # observe, plan, act, report
            ...
            return 30.0                         # requeue after 30 s, unless something wakes the loop earlier

        async def _invalid(self, problem): ...  # the spec is invalid
        async def _failed(self, error): ...     # an iteration raised an exception

- An iteration starts after the delay that the previous one returned, on :meth:`Loop.wake`, and when the spec changes.
- An exception ends the iteration but not the loop. The loop logs it; the controller reports it and returns the delay of
  the retry.
- The loop ends when the process stops, the lease is lost or the object is deleted. The iteration in progress is
  interrupted and finishes its in-flight requests; then :meth:`ControllerLoop._finish` cleans up.
- A controller keeps its state in memory. After a restart, the next process resumes from the object's status.
"""

from __future__ import annotations

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from trimtab.controller.other_operators import other_operators
from trimtab.controller.permissions import ObjectKey, Requirement, permissions
from trimtab.controller.progress import (
    Component,
    PlanSchedule,
    current_component,
    register_component,
    set_current_component,
    track_component,
)
from trimtab.kube.clock import Clock, CpuTime
from trimtab.kube.errors import InputError
from trimtab.kube.resources import Resource
from trimtab.kube.retry import Backoff

if TYPE_CHECKING:
    from trimtab.controller.kopf_handlers import StopFlag  # Kopf takes a second to load, and the webhooks do without it

log = logging.getLogger(__name__)

T = TypeVar("T")

NOT_READY_DELAY: Final = 5.0
"""Seconds for which acting must be unsafe before the status reports it. Reconnecting a watch takes less time."""

TASK_RESTART: Final = Backoff(initial=1.0, maximum=30.0)
"""Backoff before a failed task is restarted. Such a failure is a bug, and must not stop the other tasks."""

STABLE_SECONDS: Final = 60.0
"""Seconds after which a running task is considered stable. If a stable task fails, it is restarted with the initial
backoff.
"""


class Wakeup:
    """An event that ends the wait of a loop between two iterations."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def wake(self) -> None:
        """End the current :meth:`wait`, or the next one."""
        self._event.set()

    def clear(self) -> None:
        """Reset the event, because the iteration that starts now covers all earlier calls of :meth:`wake`."""
        self._event.clear()

    async def wait(self, seconds: float | None) -> None:
        """Wait until :meth:`wake` is called, or until ``seconds`` have passed. ``None`` means no limit."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return


class Loop(ABC):
    """Runs iterations until it is closed.

    Args:
        name: name of the loop for logs, metrics and health checks.
        clock: provides the time.
        wakeup: the event that starts the next iteration early. By default, the loop creates its own.
        rest: minimum pause between two iterations in seconds, even if something wakes the loop.
        rest_share: minimum pause as a multiple of the CPU time of the last iteration. It leaves time for other
            controllers if the iterations are expensive. Time in which the iteration waited, for a response or for a
            CPU that other processes used, does not count: otherwise a busy machine would slow the loop down.
        max_rest: the longest pause in seconds that ``rest_share`` causes.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        wakeup: Wakeup | None = None,
        rest: float = 0.0,
        rest_share: float = 0.0,
        max_rest: float = math.inf,
    ) -> None:
        self._loop_name = name
        self._loop_clock = clock
        self._wakeup = wakeup or Wakeup()
        self._least_rest = rest
        self._rest_share = rest_share
        self._max_rest = max_rest
        self._closed = False
        self._component: Component = register_component(name)
        self._ending = Wakeup()  # ends the minimum pause, because wake() does not shorten it

    def wake(self) -> None:
        """Start the next iteration after the minimum pause."""
        self._wakeup.wake()

    def close(self) -> None:
        """End the loop after the iteration in progress."""
        self._closed = True
        self._ending.wake()
        self.wake()

    @property
    def closing(self) -> bool:
        """Return whether no further iteration starts."""
        return self._closed

    @abstractmethod
    async def _iterate(self) -> float | None:
        """Run one iteration.

        Returns:
            Seconds until the next iteration; ``None`` to wait for :meth:`wake`.
        """

    @abstractmethod
    async def _failed(self, error: Exception) -> float | None:
        """Report the exception of an iteration, which is already logged.

        Returns:
            Seconds until the retry; ``None`` to wait for :meth:`wake`.
        """

    @property
    def _plan_schedule(self) -> PlanSchedule | None:
        """Return for which object and at which interval the loop makes plans; ``None`` if it makes no plans."""
        return None

    async def _iterate_until_closed(self) -> None:
        with track_component(self._loop_name, ends=lambda: self.closing) as component:
            self._component = component
            await self._iterate_and_report(component)

    async def _iterate_and_report(self, component: Component) -> None:
        while not self.closing:
            self._wakeup.clear()
            component.plan_schedule = self._plan_schedule
            component.begin()
            cost = CpuTime(self._loop_clock)
            failure = None
            try:
                pause = await self._iterate()
            except Exception as error:
                log.exception("Iteration of %s failed", self._loop_name)
                pause, failure = await self._failed(error), error
            rest = max(self._least_rest, min(self._max_rest, cost.seconds * self._rest_share))
            due_in = None if pause is None else max(pause, rest)
            if failure is None:
                component.succeed(due_in)
            else:
                component.fail(failure, due_in)
            if rest:
                await self._ending.wait(rest)
            if not self.closing:
                await self._wakeup.wait(None if pause is None else max(0.0, pause - rest))


class ControllerLoop(Loop, Generic[T]):
    """The reconcile loop of one custom object.

    The arguments are those of :class:`Loop`.

    Attributes:
        object: the latest version of the object; ``None`` if its spec is invalid.
        problem: the error that makes the spec invalid; ``None`` if it is valid.
        generation: generation of the latest version of the object.
        uid: UID of the object.
        deleted: whether the object was deleted.
    """

    resource: ClassVar[Resource | None] = None
    """The custom resource of the object; ``None`` if its permissions are not checked."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        wakeup: Wakeup | None = None,
        rest: float = 0.0,
        rest_share: float = 0.0,
        max_rest: float = math.inf,
    ) -> None:
        super().__init__(name, clock, wakeup=wakeup, rest=rest, rest_share=rest_share, max_rest=max_rest)
        self._permissions = permissions()
        self._key: ObjectKey | None = None
        self.object: T | None = None
        self.problem: InputError | None = None
        self.generation = 0
        self.uid = ""
        self.deleted = False
        self._stopped: StopFlag | None = None

    # --- called by Kopf -----------------------------------------------------------------------------------------------

    def observe(self, body: Mapping[str, Any]) -> None:
        """Store the latest version of the object.

        If its generation is new, another iteration starts after the one in progress, which may end early.
        """
        metadata = body["metadata"]
        generation, uid = int(metadata.get("generation", 0)), str(metadata.get("uid", ""))
        if (generation, uid) == (self.generation, self.uid):
            return
        if uid != self.uid:
            self._resume(body.get("status") or {})
        self.generation, self.uid = generation, uid
        try:
            self.object, self.problem = self._decode(body), None
        except InputError as problem:
            self.object, self.problem = None, problem
        if self.resource is not None:
            self._key = ObjectKey(self.resource, str(metadata.get("name", "")))
            self._permissions.require(self._key, () if self.object is None else self._requirements(self.object))
        self._spec_changed()
        self._interrupt()

    def end(self) -> None:
        """End :meth:`run` because the object was deleted, with or without its finalizer."""
        self.deleted = True
        self._ending.wake()
        self._interrupt()

    async def run(self, stopped: StopFlag) -> None:
        """Run iterations until ``stopped`` is set, then finish the in-flight requests."""
        self._stopped = stopped
        watcher = asyncio.create_task(self._watch(stopped), name=f"stop of {self._loop_name}")
        try:
            with other_operators().listening(self.wake), self._permissions.listening(self.wake):
                await self._iterate_until_closed()
        finally:
            watcher.cancel()
            await self._finish()
            if self._key is not None:
                self._permissions.release(self._key)

    @property
    def closing(self) -> bool:
        """Return whether no further iteration starts."""
        return bool(self._stopped) or self.deleted or self._closed

    # --- implemented by controllers -----------------------------------------------------------------------------------

    @abstractmethod
    def _decode(self, body: Mapping[str, Any]) -> T:
        """Decode the object.

        Raises:
            InputError: the spec is invalid.
        """

    @abstractmethod
    def _resume(self, status: Mapping[str, Any]) -> None:
        """Restore the state from the status that an earlier process wrote.

        This is called once, before the first iteration.
        """

    @abstractmethod
    async def _reconcile(self, obj: T) -> float | None:
        """Run one iteration for a valid object.

        Returns:
            Seconds until the next iteration; ``None`` to wait for :meth:`wake`.
        """

    @abstractmethod
    async def _invalid(self, problem: InputError) -> float | None:
        """Run one iteration while the spec is invalid: stop acting and report the error.

        Returns:
            Seconds until the next iteration; ``None`` to wait for :meth:`wake`.
        """

    async def _finish(self) -> None:
        """Clean up at the end of :meth:`run`, even if it is cancelled."""

    def _requirements(self, obj: T) -> tuple[Requirement, ...]:
        """Return the permissions that the object needs, see :mod:`trimtab.controller.permissions`."""
        del obj
        return ()

    def _spec_changed(self) -> None:
        """Hook that is called when :attr:`object` or :attr:`problem` has changed."""

    def _interrupt(self) -> None:
        """End the iteration in progress early. By default the iteration finishes, and then another one starts."""
        self.wake()

    async def _iterate(self) -> float | None:
        if self.object is not None:
            return await self._reconcile(self.object)
        return None if self.problem is None else await self._invalid(self.problem)

    async def _watch(self, stopped: StopFlag) -> None:
        while not stopped:
            await stopped.wait()
        self._ending.wake()
        self._interrupt()


class NotReadyReason:
    """Delays reporting why acting is unsafe, such as a stale watch, until the problem has lasted for some time.

    Args:
        seconds: seconds for which acting must be unsafe before the reason is reported.
    """

    def __init__(self, seconds: float = NOT_READY_DELAY) -> None:
        self._seconds = seconds
        self._since: float | None = None

    def __bool__(self) -> bool:
        return self._since is not None

    def lasting(self, reason: str | None, now: float) -> str:
        """Return the reason if acting has been unsafe for long enough, and otherwise an empty string.

        Args:
            reason: the current reason why acting is unsafe; ``None`` if it is safe.
            now: seconds on the monotonic clock.
        """
        if reason is None:
            self._since = None
            return ""
        if self._since is None:
            self._since = now
        return reason if now - self._since >= self._seconds else ""


async def end_tasks(tasks: Iterable[asyncio.Future[Any]], seconds: float = 0.0) -> None:
    """Wait up to ``seconds`` for tasks, then cancel the others and wait until they have ended.

    Exceptions of the tasks are not raised.
    """
    ending = set(tasks)
    if ending and seconds:
        await asyncio.wait(ending, timeout=seconds)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


class BackgroundTasks:
    """Runs tasks in the background, each once. :class:`TaskSupervisor` is for tasks that run until they are stopped.

    The event loop keeps only weak references to tasks; this class keeps them alive.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        """Return the number of tasks that have not ended."""
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, Any], name: str | None = None) -> asyncio.Task[Any]:
        """Start a task, and return it."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def stop(self, seconds: float = 0.0) -> None:
        """Wait up to ``seconds`` for the tasks, then cancel the others and wait until they have ended.

        Tasks that are started while it waits for others are cancelled as well.
        """
        if self._tasks and seconds:
            await asyncio.wait(self._tasks, timeout=seconds)
        await end_tasks(self._tasks)


class TaskSupervisor:
    """Restarts tasks that fail or return. Each task has its own backoff.

    A task reports its progress to :func:`~trimtab.controller.progress.current_component`, or consists of a loop or a
    work queue, which report theirs. If it is cancelled from outside, it is not restarted, but ends the process.

    Args:
        name: name of the owner of the tasks, for logs and task names.
        clock: provides the time.

    Attributes:
        problems: the errors of the tasks that have failed and will be restarted, by task name.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self.problems: dict[str, str] = {}
        self._name = name
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closing: set[str] = set()

    def start(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Start a task and restart it whenever it fails or returns."""
        self._closing.discard(name)
        self._tasks[name] = asyncio.create_task(self._keep_running(name, run), name=f"{self._name}: {name}")

    def start_periodic(self, name: str, step: Callable[[], Awaitable[None]], period: float) -> None:
        """Start a task that calls ``step`` every ``period`` seconds."""

        async def repeat() -> None:
            component = current_component()
            while True:
                component.begin()
                await step()
                component.succeed(period)
                await self._clock.sleep(period)

        self.start(name, repeat)

    async def end(self, name: str, stop: Callable[[], Awaitable[None]], *, seconds: float) -> None:
        """Stop a task gracefully, then cancel it.

        Args:
            name: name of the task.
            stop: asks the task to end.
            seconds: timeout in seconds for ``stop`` and for the end of the task.
        """
        self._closing.add(name)
        task = self._tasks.get(name)
        try:
            async with asyncio.timeout(seconds):
                await stop()
                if task is not None:
                    await asyncio.wait({task})
        except TimeoutError:
            log.warning("Task %s did not stop within %g s; canceling the task", name, seconds)
        except Exception:
            log.exception("Error while stopping task %s; canceling the task", name)
        await self.cancel(name)

    async def cancel(self, name: str = "") -> None:
        """Cancel one task, or all tasks if ``name`` is empty, and wait until they have ended."""
        names = [name] if name else list(self._tasks)
        tasks = [self._tasks.pop(each) for each in names if each in self._tasks]
        for each in names:
            self.problems.pop(each, None)
        await end_tasks(tasks)

    async def _keep_running(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        with track_component(
            f"{self._name}: {name}", ends=lambda: name in self._closing or name not in self._tasks
        ) as component:
            set_current_component(component)
            await self._run_and_restart(name, run, component)

    async def _run_and_restart(self, name: str, run: Callable[[], Awaitable[None]], component: Component) -> None:
        failures = 0
        while True:
            began = self._clock.monotonic()
            component.idle()
            stable = asyncio.get_running_loop().call_later(STABLE_SECONDS, component.recover)
            try:
                await run()
            except Exception as error:
                log.exception("Task %s failed; restarting the task", name)
                self.problems[name] = f"{name}: {type(error).__name__}: {error}"
                component.fail(error, TASK_RESTART.delay(failures))
            finally:
                stable.cancel()
            if name in self._closing:
                return
            if self._clock.monotonic() - began >= STABLE_SECONDS:
                failures = 0
            await self._clock.sleep(TASK_RESTART.delay(failures))
            failures += 1
            self.problems.pop(name, None)

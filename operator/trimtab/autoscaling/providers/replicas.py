"""Acting on whatever has replicas and a scale subresource: both APIs of machines, told apart by their dialect.

The size is compared and set in one request: a JSON patch of the scale subresource that tests the target that the plan
was made on. So an edit in between is never overwritten, while changes of the status, which come all the time as
machines come and go, are no conflict, as they would be with a resource version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from trimtab.autoscaling.groups import GroupMachine, MachineState, NodeGroup
from trimtab.autoscaling.providers.checks import check_increase, check_lowering, check_there, going, sure_to_go
from trimtab.autoscaling.providers.outcome import Failed, Failure, Removal, Scaled, names
from trimtab.autoscaling.providers.provider import Dialect
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Conflict, Invalid, NotFound, ServerError, TooManyRequests, Unreachable

T = TypeVar("T")

REQUEST_SECONDS: Final = 10.0
"""For one request."""
GROUP_SECONDS: Final = 30.0
"""For all that is done for one group, until it counts as hanging."""
AT_ONCE: Final = 16
"""Requests at once for one group: each has its own, so that a group that hangs keeps no other one waiting."""
MARK: Final = "trimtab"
"""How the texts of our marks begin; with any text but an empty one a machine is marked."""


class Replicas:
    """A :class:`~trimtab.autoscaling.providers.provider.Provider` for one dialect."""

    def __init__(
        self, api: Api, dialect: Dialect, *, request_seconds: float = REQUEST_SECONDS, seconds: float = GROUP_SECONDS
    ) -> None:
        """Prepare.

        Args:
            api: the API server.
            dialect: of the groups.
            request_seconds: for one request.
            seconds: for a group in all.
        """
        self._api = api
        self._dialect = dialect
        self._request_seconds = request_seconds
        self._seconds = seconds

    async def increase(self, group: NodeGroup, to: int) -> Scaled:
        """See :class:`~trimtab.autoscaling.providers.provider.Provider`."""
        calls = _Calls()
        failed = None
        try:
            check_increase(group, to)
            await self._resize(group, to, calls)
        except Failed as error:
            failed = error
        return Scaled(group.id, group.target, to, **_told(failed), calls=calls.count)

    async def lower(self, group: NodeGroup, to: int) -> Scaled:
        """See :class:`~trimtab.autoscaling.providers.provider.Provider`."""
        calls = _Calls()
        failed = None
        try:
            check_lowering(group, to)
            there = _replicas(await self._scale(group, calls), "status")
            check_there(there, to)
            await self._resize(group, to, calls, there=there)
        except Failed as error:
            failed = error
        return Scaled(group.id, group.target, to, **_told(failed), calls=calls.count)

    async def remove(self, group: NodeGroup, machines: Sequence[GroupMachine], *, now: float) -> Removal:
        """See :class:`~trimtab.autoscaling.providers.provider.Provider`."""
        calls = _Calls()
        try:
            chosen = going(group, machines, failed_tie=self._dialect.failed_tie)
        except Failed as error:
            return Removal(group.id, group.target, group.target, **_told(error))
        marked = () if self._dialect.failed_tie and sure_to_go(chosen) else chosen
        mark = f"{MARK} {datetime.fromtimestamp(now, UTC).strftime('%Y-%m-%dT%H:%M:%SZ')}"
        failed: Failed | None = None
        left: tuple[str, ...] = ()
        try:
            await self._mark(group, marked, mark, calls)
            await self._resize(group, group.target - len(chosen), calls)
        except Failed as error:
            failed = error
            if not error.doubt:
                left = await self._unmarked(group, [each.name for each in marked if not each.marked], mark, calls)
        return Removal(
            group.id,
            group.target,
            group.target - len(chosen),
            **_told(failed),
            calls=calls.count,
            machines=names(chosen),
            added=tuple(sorted({each.name for each in chosen} - {each.name for each in machines})),
            others=_others(group, chosen),
            mark=mark if marked else "",
            left_marked=left,
        )

    async def unmark(self, group: NodeGroup, machines: Sequence[str], *, mark: str = "") -> tuple[str, ...]:
        """See :class:`~trimtab.autoscaling.providers.provider.Provider`."""
        return await self._unmarked(group, machines, mark, _Calls())

    async def _mark(self, group: NodeGroup, machines: Sequence[GroupMachine], mark: str, calls: _Calls) -> None:
        """Mark all of them, those that are marked already excepted.

        Raises:
            Failed: one at least was not marked; all others were tried.
        """
        patch = {"metadata": {"annotations": {self._dialect.mark: mark}}}

        async def one(machine: GroupMachine) -> Failed | None:
            try:
                await self._ask(
                    group, verbs.merge_patch, self._dialect.machine(group), machine.name, patch, calls=calls
                )
            except Failed as error:
                return Failed(error.failure, f"machine {machine.name} was not marked: {error.message}")
            return None

        answers = await asyncio.gather(*(one(machine) for machine in machines if not machine.marked))
        for failed in filter(None, answers):
            raise failed

    async def _unmarked(self, group: NodeGroup, machines: Sequence[str], mark: str, calls: _Calls) -> tuple[str, ...]:
        answers = await asyncio.gather(*(self._unmark(group, name, mark, calls) for name in machines))
        return tuple(sorted(name for name, done in zip(machines, answers, strict=True) if not done))

    async def _unmark(self, group: NodeGroup, name: str, mark: str, calls: _Calls) -> bool:
        """Take one mark back; whether nothing is left to do."""
        resource, key = self._dialect.machine(group), self._dialect.mark
        try:
            if not mark:
                found = await self._ask(group, verbs.get, resource, name, calls=calls)
                mark = (found["metadata"].get("annotations") or {}).get(key, "")
            if not mark.startswith(f"{MARK} "):
                return True
            path = f"/metadata/annotations/{key.replace('~', '~0').replace('/', '~1')}"
            operations = [{"op": "test", "path": path, "value": mark}, {"op": "remove", "path": path}]
            await self._ask(group, verbs.json_patch, resource, name, operations, calls=calls)
        except Failed as error:
            # Gone, or marked by somebody else by now: nothing of ours is there.
            return error.failure in (Failure.NOT_FOUND, Failure.CONFLICT)
        return True

    async def _resize(self, group: NodeGroup, to: int, calls: _Calls, *, there: int | None = None) -> None:
        """Set the target if it still is what the plan was made on, and if as many machines are there as was found.

        Raises:
            Failed: it was not set, or nobody knows.
        """
        # The server leaves a size of 0 out of a scale, and a test against null holds where there is nothing.
        operations: list[dict[str, Any]] = [
            {"op": "test", "path": "/spec/replicas", "value": group.target or None},
            {"op": "add", "path": "/spec/replicas", "value": to},
        ]
        if there is not None:
            operations.insert(0, {"op": "test", "path": "/status/replicas", "value": there})
        if group.uid:
            operations.insert(0, {"op": "test", "path": "/metadata/uid", "value": group.uid})
        resource = self._dialect.scaled(group)
        try:
            await self._ask(group, verbs.json_patch, resource, group.name, operations, subresource="scale", calls=calls)
        except Failed as error:
            if error.failure is Failure.NOT_FOUND:
                raise
            if there is not None and error.failure is Failure.CONFLICT:
                message = f"its target is not {group.target} any more, or it has not {there} machines"
                raise Failed(Failure.CONFLICT, message) from None
            await self._after_failure(group, to, error, calls)

    async def _after_failure(self, group: NodeGroup, to: int, error: Failed, calls: _Calls) -> None:
        """See what the size is, and say what that means.

        Raises:
            Failed: unless the size is what was asked for, and the answer was lost on the way.
        """
        lost = error.failure in (Failure.UNREACHABLE, Failure.TIMED_OUT)
        if error.failure is Failure.REFUSED:
            raise error
        try:
            scale = await self._scale(group, calls)
        except Failed:
            raise Failed(error.failure, error.message, doubt=lost) from None
        if group.uid and scale["metadata"].get("uid") != group.uid:
            raise Failed(Failure.NOT_FOUND, "another object has its name by now")
        found = _replicas(scale, "spec")
        if lost and found == to:
            return
        if found != group.target:
            message = f"the plan was made on a target of {group.target}, and it is {found} by now"
            raise Failed(Failure.CONFLICT, message)
        if lost:
            raise Failed(error.failure, error.message, doubt=True)
        raise Failed(Failure.REFUSED, error.message)

    async def _scale(self, group: NodeGroup, calls: _Calls) -> Any:
        """Read the group's size.

        Raises:
            Failed: it could not be read.
        """
        path = self._dialect.scaled(group).path(group.name, namespace=group.namespace, subresource="scale")
        return await self._ask(group, _get, path, calls=calls)

    async def _ask(
        self, group: NodeGroup, verb: Callable[..., Awaitable[T]], *words: Any, calls: _Calls, **more: Any
    ) -> T:
        """Send one request; what goes wrong is told in our terms.

        Raises:
            Failed: also when no answer comes in time. An answer that a test failed is a conflict.
        """
        if verb is not _get:
            more["namespace"] = group.namespace
        try:
            async with calls.at_once, asyncio.timeout(calls.left(self._seconds, self._request_seconds)):
                calls.count += 1
                return await verb(self._api, *words, timeout=self._request_seconds, **more)
        except NotFound as error:
            raise Failed(Failure.NOT_FOUND, error.message) from None
        except (Invalid, Conflict) as error:
            raise Failed(Failure.CONFLICT, error.message) from None
        except (TooManyRequests, ServerError) as error:
            raise Failed(Failure.UNREACHABLE, error.message) from None
        except ApiError as error:
            raise Failed(Failure.REFUSED, error.message) from None
        except Unreachable as error:
            raise Failed(Failure.UNREACHABLE, str(error)) from None
        except TimeoutError:
            raise Failed(Failure.TIMED_OUT, f"no answer within {self._request_seconds:g} s") from None


class _Calls:
    """Requests that were sent for one group, and since when."""

    def __init__(self) -> None:
        self.count = 0
        self.at_once = asyncio.Semaphore(AT_ONCE)
        self._began = asyncio.get_running_loop().time()

    def left(self, seconds: float, most: float) -> float:
        """Seconds that a request may take."""
        return max(0.0, min(most, self._began + seconds - asyncio.get_running_loop().time()))


async def _get(api: Api, path: str, *, timeout: float) -> Any:
    return await api.request("GET", path, timeout=timeout)


def _replicas(scale: Any, part: str) -> int:
    return int((scale.get(part) or {}).get("replicas", 0))


def _told(failed: Failed | None) -> dict[str, Any]:
    if failed is None:
        return {}
    return {"failure": failed.failure, "message": failed.message, "doubt": failed.doubt}


def _others(group: NodeGroup, chosen: Sequence[GroupMachine]) -> tuple[str, ...]:
    ours = {machine.name for machine in chosen}
    alive = [each for each in group.machines if each.state is not MachineState.DELETING]
    return tuple(sorted(each.name for each in alive if each.name and each.name not in ours))

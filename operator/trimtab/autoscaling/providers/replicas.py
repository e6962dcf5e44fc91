"""The provider for the groups of both machine APIs, which have replicas and a scale subresource.

The size is compared and set in one request: a JSON patch of the scale subresource that tests the target size that the
plan was based on. So a concurrent edit is never overwritten. A resource version would not work, because the status
changes whenever a machine is created or deleted, and each change would cause a conflict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from trimtab.autoscaling.groups import GroupMachine, MachineState, NodeGroup
from trimtab.autoscaling.providers.checks import (
    check_increase,
    check_lowering,
    check_provider_machines,
    check_ties,
    deleted_first_without_mark,
    live_machines,
    machines_to_delete,
)
from trimtab.autoscaling.providers.outcome import (
    MachineRemoval,
    MarkedMachines,
    ScaleError,
    ScaleFailure,
    ScaleResult,
    machine_names,
)
from trimtab.autoscaling.providers.provider import Dialect
from trimtab.kube import verbs
from trimtab.kube.api import (
    Api,
    ApiError,
    Unreachable,
)

T = TypeVar("T")

REQUEST_SECONDS: Final = 10.0
"""Timeout of one request in seconds."""
GROUP_SECONDS: Final = 30.0
"""Timeout of all requests for one group in seconds."""
AT_ONCE: Final = 16
"""Maximum concurrent requests per group. Each group has its own limit, so a hung group delays no other."""
MARK: Final = "trimtab"
"""Prefix of the annotation value of trimtab's marks. A machine is marked if the value is not empty."""


class ReplicasProvider:
    """A :class:`~trimtab.autoscaling.providers.provider.Provider` for one machine API."""

    def __init__(
        self, api: Api, dialect: Dialect, *, request_seconds: float = REQUEST_SECONDS, seconds: float = GROUP_SECONDS
    ) -> None:
        """Create the provider.

        Args:
            api: the API server.
            dialect: the machine API.
            request_seconds: timeout of one request.
            seconds: timeout of all requests for one group.
        """
        self._api = api
        self._dialect = dialect
        self._request_seconds = request_seconds
        self._seconds = seconds

    async def increase(self, group: NodeGroup, to: int) -> ScaleResult:
        """See :class:`~trimtab.autoscaling.providers.provider.Provider`."""
        calls = _Calls()
        failed = None
        try:
            check_increase(group, to)
            await self._resize(group, to, calls)
        except ScaleError as error:
            failed = error
        return ScaleResult(group.id, group.target, to, **_failure_fields(failed), calls=calls.count)

    async def lower(self, group: NodeGroup, to: int) -> ScaleResult:
        """See :class:`~trimtab.autoscaling.providers.provider.Provider`."""
        calls = _Calls()
        failed = None
        try:
            check_lowering(group, to)
            existing = _replicas(await self._scale(group, calls), "status")
            check_provider_machines(existing, to)
            await self._resize(group, to, calls, existing=existing)
        except ScaleError as error:
            failed = error
        return ScaleResult(group.id, group.target, to, **_failure_fields(failed), calls=calls.count)

    async def mark(self, group: NodeGroup, machines: Sequence[GroupMachine], *, now: float) -> MarkedMachines:
        """See :class:`~trimtab.autoscaling.providers.provider.Provider`."""
        calls = _Calls()
        try:
            chosen = machines_to_delete(group, machines, failed_tie=self._dialect.failed_tie)
        except ScaleError as error:
            return MarkedMachines(group.id, failure=error.failure, message=error.message)
        added = tuple(sorted({each.name for each in chosen} - {each.name for each in machines}))
        if self._dialect.failed_tie and deleted_first_without_mark(chosen):
            return MarkedMachines(group.id, chosen, added)
        text = f"{MARK} {datetime.fromtimestamp(now, UTC).strftime('%Y-%m-%dT%H:%M:%SZ')}"
        try:
            await self._mark(group, chosen, text, calls)
        except ScaleError as error:
            left = await self._unmarked(group, [each.name for each in chosen if not each.marked], text, calls)
            return MarkedMachines(
                group.id,
                text=text,
                failure=error.failure,
                message=error.message,
                calls=calls.count,
                left_marked=left,
            )
        return MarkedMachines(group.id, chosen, added, text, calls=calls.count)

    async def remove(self, group: NodeGroup, marked: MarkedMachines, *, count: int | None = None) -> MachineRemoval:
        """See :class:`~trimtab.autoscaling.providers.provider.Provider`."""
        calls = _Calls()
        existing = {each.name for each in live_machines(group)}
        chosen = tuple(each for each in marked.machines if each.name in existing)
        to = group.target - (len(chosen) if count is None else min(count, len(chosen)))
        failed: ScaleError | None = None
        left: tuple[str, ...] = ()
        try:
            check_ties(chosen, machines_to_delete(group, chosen, failed_tie=self._dialect.failed_tie))
            if marked.text:
                await self._check_marks(group, chosen, calls)
            await self._resize(group, to, calls)
        except ScaleError as error:
            failed = error
            if not error.doubt and marked.text:
                left = await self._unmarked(group, [each.name for each in chosen], marked.text, calls)
        return MachineRemoval(
            group.id,
            group.target,
            to,
            **_failure_fields(failed),
            calls=calls.count,
            machines=machine_names(chosen),
            added=marked.added,
            others=_others(group, chosen),
            mark=marked.text,
            left_marked=left,
        )

    async def unmark(self, group: NodeGroup, machines: Sequence[str], *, mark: str = "") -> tuple[str, ...]:
        """See :class:`~trimtab.autoscaling.providers.provider.Provider`."""
        return await self._unmarked(group, machines, mark, _Calls())

    async def _mark(self, group: NodeGroup, machines: Sequence[GroupMachine], mark: str, calls: _Calls) -> None:
        """Mark all machines that are not marked yet.

        Raises:
            ScaleError: at least one machine could not be marked. Marking was still attempted for all others.
        """
        patch = {"metadata": {"annotations": {self._dialect.mark: mark}}}

        async def one(machine: GroupMachine) -> ScaleError | None:
            try:
                await self._request(
                    group, verbs.merge_patch, self._dialect.machine(group), machine.name, patch, calls=calls
                )
            except ScaleError as error:
                return ScaleError(error.failure, f"machine {machine.name} was not marked: {error.message}")
            return None

        answers = await asyncio.gather(*(one(machine) for machine in machines if not machine.marked))
        for failed in filter(None, answers):
            raise failed

    async def _check_marks(self, group: NodeGroup, machines: Sequence[GroupMachine], calls: _Calls) -> None:
        """Read the machines from the API server and check their marks.

        Raises:
            ScaleError: a machine is no longer marked, has become a node, is being deleted, no longer exists, or could
                not be read.
        """

        async def one(machine: GroupMachine) -> ScaleError | None:
            try:
                found = await self._request(group, verbs.get, self._dialect.machine(group), machine.name, calls=calls)
            except ScaleError as error:
                failure = ScaleFailure.CONFLICT if error.failure is ScaleFailure.NOT_FOUND else error.failure
                return ScaleError(failure, f"machine {machine.name} was not read: {error.message}")
            metadata = found["metadata"]
            if metadata.get("deletionTimestamp"):
                return ScaleError(ScaleFailure.CONFLICT, f"machine {machine.name} is already being deleted")
            if not (metadata.get("annotations") or {}).get(self._dialect.mark):
                return ScaleError(ScaleFailure.CONFLICT, f"the mark of machine {machine.name} was removed")
            if not machine.node and (found.get("status") or {}).get("nodeRef"):
                return ScaleError(ScaleFailure.CONFLICT, f"machine {machine.name} has registered as a node")
            return None

        for failed in filter(None, await asyncio.gather(*map(one, machines))):
            raise failed

    async def _unmarked(self, group: NodeGroup, machines: Sequence[str], mark: str, calls: _Calls) -> tuple[str, ...]:
        answers = await asyncio.gather(*(self._unmark(group, name, mark, calls) for name in machines))
        return tuple(sorted(name for name, done in zip(machines, answers, strict=True) if not done))

    async def _unmark(self, group: NodeGroup, name: str, mark: str, calls: _Calls) -> bool:
        """Remove trimtab's deletion annotation from one machine.

        Returns:
            Whether the machine no longer has a deletion annotation that trimtab set.
        """
        resource, key = self._dialect.machine(group), self._dialect.mark
        try:
            if not mark:
                found = await self._request(group, verbs.get, resource, name, calls=calls)
                mark = (found["metadata"].get("annotations") or {}).get(key, "")
            if not mark.startswith(f"{MARK} "):
                return True
            path = f"/metadata/annotations/{key.replace('~', '~0').replace('/', '~1')}"
            operations = [{"op": "test", "path": path, "value": mark}, {"op": "remove", "path": path}]
            await self._request(group, verbs.json_patch, resource, name, operations, calls=calls)
        except ScaleError as error:
            # The machine was deleted, or another actor has marked it. In both cases trimtab's mark no longer exists.
            return error.failure in (ScaleFailure.NOT_FOUND, ScaleFailure.CONFLICT)
        return True

    async def _resize(self, group: NodeGroup, to: int, calls: _Calls, *, existing: int | None = None) -> None:
        """Set the group's target size, unless it or the number of machines has changed since they were read.

        Raises:
            ScaleError: the target size was not set, or the outcome is unknown.
        """
        # The API server omits a size of 0 in the scale subresource; a JSON patch test against null matches that.
        operations: list[dict[str, Any]] = [
            {"op": "test", "path": "/spec/replicas", "value": group.target or None},
            {"op": "add", "path": "/spec/replicas", "value": to},
        ]
        if existing is not None:
            operations.insert(0, {"op": "test", "path": "/status/replicas", "value": existing})
        if group.uid:
            operations.insert(0, {"op": "test", "path": "/metadata/uid", "value": group.uid})
        resource = self._dialect.scaled(group)
        try:
            await self._request(
                group, verbs.json_patch, resource, group.name, operations, subresource="scale", calls=calls
            )
        except ScaleError as error:
            if error.failure is ScaleFailure.NOT_FOUND:
                raise
            if existing is not None and error.failure is ScaleFailure.CONFLICT:
                message = f"the target size is no longer {group.target}, or the number of machines is not {existing}"
                raise ScaleError(ScaleFailure.CONFLICT, message) from None
            await self._after_failure(group, to, error, calls)

    async def _after_failure(self, group: NodeGroup, to: int, error: ScaleError, calls: _Calls) -> None:
        """Read the size after a failed request, and raise an error with the outcome.

        Raises:
            ScaleError: the size is not the requested one. If it is, only the response was lost.
        """
        lost = error.failure in (ScaleFailure.UNREACHABLE, ScaleFailure.TIMED_OUT)
        if error.failure in (ScaleFailure.REFUSED, ScaleFailure.FORBIDDEN):
            raise error
        try:
            scale = await self._scale(group, calls)
        except ScaleError:
            raise ScaleError(error.failure, error.message, doubt=lost) from None
        if group.uid and scale["metadata"].get("uid") != group.uid:
            raise ScaleError(ScaleFailure.NOT_FOUND, "another object has the same name now")
        found = _replicas(scale, "spec")
        if lost and found == to:
            return
        if found != group.target:
            message = f"the plan was based on a target of {group.target}, but the target is {found} now"
            raise ScaleError(ScaleFailure.CONFLICT, message)
        if lost:
            raise ScaleError(error.failure, error.message, doubt=True)
        raise ScaleError(ScaleFailure.REFUSED, error.message)

    async def _scale(self, group: NodeGroup, calls: _Calls) -> Any:
        """Read the group's scale subresource.

        Raises:
            ScaleError: it could not be read.
        """
        path = self._dialect.scaled(group).path(group.name, namespace=group.namespace, subresource="scale")
        return await self._request(group, _get, path, calls=calls)

    async def _request(
        self, group: NodeGroup, verb: Callable[..., Awaitable[T]], *args: Any, calls: _Calls, **kwargs: Any
    ) -> T:
        """Send one request for a group, and convert errors to :class:`ScaleError`.

        Raises:
            ScaleError: the request failed or timed out.
        """
        if verb is not _get:
            kwargs["namespace"] = group.namespace
        try:
            async with calls.at_once, asyncio.timeout(calls.left(self._seconds, self._request_seconds)):
                calls.count += 1
                return await verb(self._api, *args, timeout=self._request_seconds, **kwargs)
        except (ApiError, Unreachable) as error:
            raise ScaleError(ScaleFailure.from_error(error), str(error)) from None
        except TimeoutError:
            raise ScaleError(ScaleFailure.TIMED_OUT, f"no answer within {self._request_seconds:g} s") from None


class _Calls:
    """Counts and limits the requests for one group."""

    def __init__(self) -> None:
        self.count = 0
        self.at_once = asyncio.Semaphore(AT_ONCE)
        self._began = asyncio.get_running_loop().time()

    def left(self, seconds: float, maximum: float) -> float:
        """Return the timeout of the next request: ``maximum``, or what is left of ``seconds`` if that is less."""
        return max(0.0, min(maximum, self._began + seconds - asyncio.get_running_loop().time()))


async def _get(api: Api, path: str, *, timeout: float) -> Any:
    return await api.request("GET", path, timeout=timeout)


def _replicas(scale: Any, part: str) -> int:
    return int((scale.get(part) or {}).get("replicas", 0))


def _failure_fields(failed: ScaleError | None) -> dict[str, Any]:
    if failed is None:
        return {}
    return {"failure": failed.failure, "message": failed.message, "doubt": failed.doubt}


def _others(group: NodeGroup, chosen: Sequence[GroupMachine]) -> tuple[str, ...]:
    ours = {machine.name for machine in chosen}
    alive = [each for each in group.machines if each.state is not MachineState.DELETING]
    return tuple(sorted(each.name for each in alive if each.name and each.name not in ours))

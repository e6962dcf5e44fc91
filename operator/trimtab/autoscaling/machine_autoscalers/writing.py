"""What the controller of MachineAutoscalers writes: guarded by what was read, never where another process may lead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from trimtab.api.descheduler_status import status_patch
from trimtab.api.machine_autoscaler import MachineAutoscalerStatus
from trimtab.autoscaling.machine_autoscalers.annotations import Operation, patches
from trimtab.autoscaling.machine_autoscalers.registry import OPENSHIFT_FINALIZER, Entry, MachineAutoscalers
from trimtab.autoscaling.machine_autoscalers.targets import TargetKey, Targets
from trimtab.kube import verbs
from trimtab.kube.api import Api, Conflict, Invalid, NotFound
from trimtab.kube.objects import AnyMachineSet
from trimtab.kube.resources import MACHINE_AUTOSCALERS, Resource

REQUEST_SECONDS: Final = 10.0
"""For one request."""


class Outdated(Exception):
    """Nothing was written: what the request was made from is no longer so. What is now has been read."""


class NotLeading(Exception):
    """Nothing was sent: another process may lead by now."""


class Writing:
    """Writes, and shows the registry and the picture at once what the server answered.

    So whoever decides next, before a watch has told of it, decides on what was written.
    """

    def __init__(
        self, api: Api, *, leading: Callable[[], bool], autoscalers: MachineAutoscalers, targets: Targets
    ) -> None:
        self._api = api
        self._leading = leading
        self._autoscalers = autoscalers
        self._targets = targets

    async def annotate(self, target: AnyMachineSet, changes: Mapping[str, str | None]) -> None:
        """Change annotations of a target: in one request, but where it has none that means anything (two then).

        Raises:
            Outdated: it has changed meanwhile, or is gone.
            ApiError: the server refuses.
            Unreachable: no answer came.
        """
        resource = _resource(target)
        refusal: Exception | None = None
        for operations in patches(target, changes):
            self._may_write()
            try:
                answer = await verbs.json_patch(
                    self._api, resource, target.name, operations, namespace=target.namespace, timeout=REQUEST_SECONDS
                )
            except NotFound:
                self._targets.observe(target, None)
                raise Outdated(f"{target.kind} {target.key} is gone") from None
            except (Invalid, Conflict) as error:
                refusal = error
                continue
            self._targets.take(answer)
            return
        assert refusal is not None
        now = await self.look(target)
        if now is None or any(now.annotations.get(key) != target.annotations.get(key) for key in changes):
            raise Outdated(f"{target.kind} {target.key} has changed meanwhile") from refusal
        if now.uid != target.uid:
            raise Outdated(f"{target.kind} {target.key} is another one by now") from refusal
        raise refusal

    async def look(self, target: AnyMachineSet | TargetKey) -> AnyMachineSet | None:
        """Read a target itself, ``None`` where there is none.

        Raises:
            ApiError: the server refuses.
            Unreachable: no answer came.
        """
        if isinstance(target, TargetKey):
            found = self._targets.get(target)
            resource = target.resource() if found is None else _resource(found)
            namespace, _, name = target.key.partition("/")
        else:
            found, resource = target, _resource(target)
            namespace, name = target.namespace, target.name
        if resource is None:
            return None
        self._may_write()
        try:
            return self._targets.take(
                await verbs.get(self._api, resource, name, namespace=namespace, timeout=REQUEST_SECONDS)
            )
        except NotFound:
            if found is not None:
                self._targets.observe(found, None)
            return None

    async def keep(self, entry: Entry) -> None:
        """Put the finalizer on a MachineAutoscaler that has it not.

        Raises:
            Outdated: it has changed meanwhile.
            ApiError: the server refuses.
            Unreachable: no answer came.
        """
        if OPENSHIFT_FINALIZER not in entry.finalizers:
            await self._finalizers(entry, (*entry.finalizers, OPENSHIFT_FINALIZER))

    async def let_go(self, entry: Entry) -> None:
        """Take the finalizer off a MachineAutoscaler that has it.

        Raises:
            Outdated: it has changed meanwhile.
            ApiError: the server refuses.
            Unreachable: no answer came.
        """
        if OPENSHIFT_FINALIZER in entry.finalizers:
            await self._finalizers(entry, tuple(each for each in entry.finalizers if each != OPENSHIFT_FINALIZER))

    async def tell(self, entry: Entry, status: MachineAutoscalerStatus) -> None:
        """Write a status; one that is gone has nobody to tell.

        Raises:
            ApiError: the server refuses.
            Unreachable: no answer came.
        """
        body = {"metadata": {"uid": entry.metadata.uid}, "status": status_patch(status)}
        self._may_write()
        try:
            answer = await verbs.merge_patch(
                self._api,
                MACHINE_AUTOSCALERS,
                entry.metadata.name,
                body,
                namespace=entry.metadata.namespace,
                subresource="status",
                timeout=REQUEST_SECONDS,
            )
        except (NotFound, Conflict):  # a Conflict is another UID
            self._autoscalers.forget(entry.key, uid=entry.metadata.uid)
            return
        self._autoscalers.observe(answer)

    async def _finalizers(self, entry: Entry, wanted: tuple[str, ...]) -> None:
        path = "/metadata/finalizers"
        operations: list[Operation] = [
            {"op": "test", "path": "/metadata/uid", "value": entry.metadata.uid},
            {"op": "test", "path": path, "value": list(entry.finalizers) or None},
            {"op": "add", "path": path, "value": list(wanted)} if wanted else {"op": "remove", "path": path},
        ]
        name, namespace = entry.metadata.name, entry.metadata.namespace
        self._may_write()
        try:
            answer: dict[str, Any] = await verbs.json_patch(
                self._api, MACHINE_AUTOSCALERS, name, operations, namespace=namespace, timeout=REQUEST_SECONDS
            )
        except NotFound:
            self._autoscalers.forget(entry.key, uid=entry.metadata.uid)
            raise Outdated(f"MachineAutoscaler {entry.key} is gone") from None
        except (Invalid, Conflict) as error:
            if await self._has_changed(entry):
                raise Outdated(f"MachineAutoscaler {entry.key} has changed meanwhile") from error
            raise
        self._autoscalers.observe(answer)

    async def _has_changed(self, entry: Entry) -> bool:
        name, namespace = entry.metadata.name, entry.metadata.namespace
        self._may_write()
        try:
            answer = await verbs.get(self._api, MACHINE_AUTOSCALERS, name, namespace=namespace, timeout=REQUEST_SECONDS)
        except NotFound:
            self._autoscalers.forget(entry.key, uid=entry.metadata.uid)
            return True
        now = self._autoscalers.observe(answer)
        return (now.metadata.uid, now.finalizers, now.deleting) != (
            entry.metadata.uid,
            entry.finalizers,
            entry.deleting,
        )

    def _may_write(self) -> None:
        if not self._leading():
            raise NotLeading


def _resource(target: AnyMachineSet) -> Resource:
    """Where an object is, in the version that it was read in."""
    found = TargetKey.of(target).resource(target.api_version.rpartition("/")[2])
    assert found is not None
    return found

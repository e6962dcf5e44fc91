"""Writes objects for the MachineAutoscaler controller, based on the version that was read and only while leading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from trimtab.api.machine_autoscaler import MachineAutoscalerStatus
from trimtab.autoscaling.machine_autoscalers.annotations import Operation, patches_of
from trimtab.autoscaling.machine_autoscalers.registry import (
    OPENSHIFT_FINALIZER,
    MachineAutoscalerRegistry,
    RegistryEntry,
)
from trimtab.autoscaling.machine_autoscalers.targets import TargetKey, Targets
from trimtab.controller.status_writer import NO_RETRY, write_status
from trimtab.kube import verbs
from trimtab.kube.api import Api, Conflict, Invalid, NotFound
from trimtab.kube.objects import AnyMachineSet
from trimtab.kube.resources import MACHINE_AUTOSCALERS, Resource

REQUEST_SECONDS: Final = 10.0
"""Timeout of one request in seconds."""


class StaleObject(Exception):
    """Raised if nothing was written because the object has changed. The new version has been read."""


class LeadershipLost(Exception):
    """Raised if no request was sent because another process may be the leader."""


class ObjectWriter:
    """Writes objects, and updates the registry and the targets from the responses of the API server.

    So the next decision uses the written version, even if the watch lags behind.
    """

    def __init__(
        self, api: Api, *, leading: Callable[[], bool], autoscalers: MachineAutoscalerRegistry, targets: Targets
    ) -> None:
        self._api = api
        self._leading = leading
        self._autoscalers = autoscalers
        self._targets = targets

    async def annotate(self, target: AnyMachineSet, changes: Mapping[str, str | None]) -> None:
        """Change annotations of a target in one request, or in two if the cache contains none of its annotations.

        Raises:
            StaleObject: the target has changed in the meantime, or no longer exists.
            ApiError: the API server rejects the request.
            Unreachable: no response was received.
        """
        resource = _resource(target)
        refusal: Exception | None = None
        for operations in patches_of(target, changes):
            self._check_leading()
            try:
                answer = await verbs.json_patch(
                    self._api, resource, target.name, operations, namespace=target.namespace, timeout=REQUEST_SECONDS
                )
            except NotFound:
                self._targets.observe(target, None)
                raise StaleObject(f"{target.kind} {target.key} no longer exists") from None
            except (Invalid, Conflict) as error:
                refusal = error
                continue
            self._targets.put(answer)
            return
        assert refusal is not None
        now = await self.read_target(target)
        if now is None or any(now.annotations.get(key) != target.annotations.get(key) for key in changes):
            raise StaleObject(f"{target.kind} {target.key} has changed in the meantime") from refusal
        if now.uid != target.uid:
            raise StaleObject(f"{target.kind} {target.key} was replaced by another of the same name") from refusal
        raise refusal

    async def read_target(self, target: AnyMachineSet | TargetKey) -> AnyMachineSet | None:
        """Read a target from the API server. Return ``None`` if it does not exist.

        Raises:
            ApiError: the API server rejects the request.
            Unreachable: no response was received.
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
        self._check_leading()
        try:
            return self._targets.put(
                await verbs.get(self._api, resource, name, namespace=namespace, timeout=REQUEST_SECONDS)
            )
        except NotFound:
            if found is not None:
                self._targets.observe(found, None)
            return None

    async def add_finalizer(self, entry: RegistryEntry) -> None:
        """Add the finalizer to a MachineAutoscaler, unless it has it.

        Raises:
            StaleObject: the object has changed in the meantime.
            ApiError: the API server rejects the request.
            Unreachable: no response was received.
        """
        if OPENSHIFT_FINALIZER not in entry.finalizers:
            await self._finalizers(entry, (*entry.finalizers, OPENSHIFT_FINALIZER))

    async def remove_finalizer(self, entry: RegistryEntry) -> None:
        """Remove the finalizer from a MachineAutoscaler, if it has it.

        Raises:
            StaleObject: the object has changed in the meantime.
            ApiError: the API server rejects the request.
            Unreachable: no response was received.
        """
        if OPENSHIFT_FINALIZER in entry.finalizers:
            await self._finalizers(entry, tuple(each for each in entry.finalizers if each != OPENSHIFT_FINALIZER))

    async def write_status(self, entry: RegistryEntry, status: MachineAutoscalerStatus) -> None:
        """Write the status of a MachineAutoscaler, unless it was deleted.

        Raises:
            ApiError: the API server rejects the request.
            Unreachable: no response was received.
        """
        self._check_leading()
        try:
            answer = await write_status(
                self._api,
                MACHINE_AUTOSCALERS,
                entry.metadata.name,
                status,
                namespace=entry.metadata.namespace,
                uid=entry.metadata.uid,
                retry=NO_RETRY,  # the queue retries
            )
        except (NotFound, Conflict):  # a Conflict is another UID
            self._autoscalers.remove(entry.key, uid=entry.metadata.uid)
            return
        self._autoscalers.observe(answer)

    async def _finalizers(self, entry: RegistryEntry, wanted: tuple[str, ...]) -> None:
        path = "/metadata/finalizers"
        operations: list[Operation] = [
            {"op": "test", "path": "/metadata/uid", "value": entry.metadata.uid},
            {"op": "test", "path": path, "value": list(entry.finalizers) or None},
            {"op": "add", "path": path, "value": list(wanted)} if wanted else {"op": "remove", "path": path},
        ]
        name, namespace = entry.metadata.name, entry.metadata.namespace
        self._check_leading()
        try:
            answer: dict[str, Any] = await verbs.json_patch(
                self._api, MACHINE_AUTOSCALERS, name, operations, namespace=namespace, timeout=REQUEST_SECONDS
            )
        except NotFound:
            self._autoscalers.remove(entry.key, uid=entry.metadata.uid)
            raise StaleObject(f"MachineAutoscaler {entry.key} no longer exists") from None
        except (Invalid, Conflict) as error:
            if await self._has_changed(entry):
                raise StaleObject(f"MachineAutoscaler {entry.key} has changed in the meantime") from error
            raise
        self._autoscalers.observe(answer)

    async def _has_changed(self, entry: RegistryEntry) -> bool:
        name, namespace = entry.metadata.name, entry.metadata.namespace
        self._check_leading()
        try:
            answer = await verbs.get(self._api, MACHINE_AUTOSCALERS, name, namespace=namespace, timeout=REQUEST_SECONDS)
        except NotFound:
            self._autoscalers.remove(entry.key, uid=entry.metadata.uid)
            return True
        now = self._autoscalers.observe(answer)
        return (now.metadata.uid, now.finalizers, now.deleting) != (
            entry.metadata.uid,
            entry.finalizers,
            entry.deleting,
        )

    def _check_leading(self) -> None:
        if not self._leading():
            raise LeadershipLost


def _resource(target: AnyMachineSet) -> Resource:
    """Return the API resource of an object, in the version in which it was read."""
    found = TargetKey.of(target).resource(target.api_version.rpartition("/")[2])
    assert found is not None
    return found

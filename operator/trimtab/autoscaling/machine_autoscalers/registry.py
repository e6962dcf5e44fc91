"""The registry of all MachineAutoscalers, valid and invalid ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from trimtab.api.base import ObjectMeta
from trimtab.api.decode import decode_machine_autoscaler
from trimtab.api.machine_autoscaler import MachineAutoscaler, MachineAutoscalerStatus
from trimtab.autoscaling.machine_autoscalers.targets import TargetKey
from trimtab.kube.errors import InputError
from trimtab.kube.resource_versions import is_older

OPENSHIFT_FINALIZER: Final = "machinetarget.autoscaling.openshift.io"
"""Finalizer that delays the deletion of a MachineAutoscaler until its annotations are removed from its target.

OpenShift's operator uses the same one, so either operator can delete objects of the other.
"""


class RegistryEntry(Struct, frozen=True):
    """The last known version of a MachineAutoscaler.

    Attributes:
        metadata: its metadata.
        finalizers: its finalizers, in order.
        autoscaler: the decoded object; ``None`` if it is invalid.
        problem: the reason why the object is invalid; ``None`` if it is valid.
        status: its status on the API server.
    """

    metadata: ObjectMeta
    finalizers: tuple[str, ...] = ()
    autoscaler: MachineAutoscaler | None = None
    problem: InputError | None = None
    status: MachineAutoscalerStatus = MachineAutoscalerStatus()

    @property
    def key(self) -> str:
        """Return ``namespace/name`` of the MachineAutoscaler."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def deleting(self) -> bool:
        """Return whether the MachineAutoscaler is being deleted."""
        return self.metadata.deletion_timestamp is not None

    @property
    def claim(self) -> TargetKey | None:
        """Return the target that it references, or ``None`` if it is being deleted or invalid."""
        if self.deleting or self.autoscaler is None:
            return None
        return TargetKey.of_reference(self.autoscaler.spec.scale_target_ref, self.metadata.namespace)

    @property
    def managed_by_openshift(self) -> bool:
        """Return whether OpenShift's operator has written the status, and trimtab has not.

        Only trimtab writes conditions.
        """
        return self.status.last_target_ref is not None and not self.status.conditions

    @property
    def last_target(self) -> TargetKey | None:
        """Return the target in ``status.lastTargetRef``."""
        found = self.status.last_target_ref
        return None if found is None else TargetKey.of_reference(found, self.metadata.namespace)


class MachineAutoscalerRegistry:
    """The registry of all MachineAutoscalers, updated by watch events and lists.

    An older version of an object never replaces a newer one, regardless of its source.
    """

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        """Initialize an empty registry.

        Args:
            changed: called when :attr:`all` changes, except if only a status changes. It wakes the autoscaler's loop.
                It must be fast and must not raise.
        """
        self._changed = changed
        self._entries: dict[str, RegistryEntry] = {}
        self._claims: dict[TargetKey, set[str]] = {}
        self._all: tuple[MachineAutoscaler, ...] | None = None

    @property
    def all(self) -> tuple[MachineAutoscaler, ...]:
        """Return the valid MachineAutoscalers sorted by ``namespace/name``, including those that are being deleted."""
        if self._all is None:
            found = (self._entries[key].autoscaler for key in sorted(self._entries))
            self._all = tuple(each for each in found if each is not None)
        return self._all

    @property
    def invalid(self) -> Mapping[str, InputError]:
        """Return the errors of invalid MachineAutoscalers, by ``namespace/name``."""
        entries = sorted(self._entries.items())
        return {key: entry.problem for key, entry in entries if entry.problem is not None}

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._entries))

    def get(self, key: str) -> RegistryEntry | None:
        """Return the MachineAutoscaler with this ``namespace/name``."""
        return self._entries.get(key)

    def claiming(self, target: TargetKey) -> tuple[MachineAutoscaler, ...]:
        """Return the MachineAutoscalers that reference a target and are not being deleted, by ``namespace/name``."""
        found = (self._entries[key].autoscaler for key in sorted(self._claims.get(target, ())))
        return tuple(each for each in found if each is not None)

    def observe(self, body: Mapping[str, Any]) -> RegistryEntry:
        """Add or update a MachineAutoscaler, and return the newest known entry."""
        new = read(body)
        old = self._entries.get(new.key)
        if old is not None and _is_older_version(new.metadata, of=old.metadata):
            return old
        self._put(new.key, old, new)
        return new

    def remove(self, key: str, *, uid: str = "") -> None:
        """Remove a deleted MachineAutoscaler, unless a new one has the same name."""
        old = self._entries.get(key)
        if old is not None and uid in ("", old.metadata.uid):
            self._put(key, old, None)

    def replace(self, bodies: Iterable[Mapping[str, Any]], *, resource_version: str) -> tuple[str, ...]:
        """Replace all MachineAutoscalers with those of a list, and return the keys of the removed ones.

        Args:
            bodies: the listed objects.
            resource_version: the list's resource version. Objects with a later version are kept even if the list does
                not contain them.
        """
        there = {self.observe(body).key for body in bodies}
        deleted = [
            key
            for key, each in self._entries.items()
            if key not in there and not is_older(resource_version, each.metadata.resource_version)
        ]
        for key in deleted:
            self.remove(key)
        return tuple(deleted)

    def _put(self, key: str, old: RegistryEntry | None, new: RegistryEntry | None) -> None:
        if new is None:
            del self._entries[key]
        else:
            self._entries[key] = new
        for entry, put in ((old, set.discard), (new, set.add)):
            if entry is not None and entry.claim is not None:
                put(self._claims.setdefault(entry.claim, set()), key)
                if not self._claims[entry.claim]:
                    del self._claims[entry.claim]
        self._all = None
        if _planner_view(old) != _planner_view(new):
            self._changed()


def read(body: Mapping[str, Any]) -> RegistryEntry:
    """Decode a MachineAutoscaler. An invalid one raises no exception."""
    body = dict(body)
    raw = body["metadata"]
    metadata = msgspec.convert({key: raw[key] for key in _READ if raw.get(key) is not None}, ObjectMeta, strict=False)
    problem, autoscaler = None, None
    try:
        autoscaler = decode_machine_autoscaler(body)
    except InputError as error:
        problem = error
    return RegistryEntry(
        metadata=metadata,
        finalizers=tuple(raw.get("finalizers") or ()),
        autoscaler=autoscaler,
        problem=problem,
        status=_status(body.get("status")) if autoscaler is None else autoscaler.status,
    )


_READ: Final = tuple(field.encode_name for field in msgspec.structs.fields(ObjectMeta))


def _status(data: object) -> MachineAutoscalerStatus:
    """Decode a status, which OpenShift's operator may have written. An invalid status is treated as empty."""
    try:
        return msgspec.convert(data or {}, MachineAutoscalerStatus)
    except msgspec.ValidationError:
        return MachineAutoscalerStatus()


def _planner_view(entry: RegistryEntry | None) -> object:
    """Return the parts of an entry that planners use."""
    if entry is None or entry.autoscaler is None:
        return None
    metadata = entry.metadata
    return metadata.uid, metadata.deletion_timestamp, metadata.creation_timestamp, entry.autoscaler.spec


def _is_older_version(metadata: ObjectMeta, *, of: ObjectMeta) -> bool:
    return metadata.uid == of.uid and is_older(metadata.resource_version, of.resource_version)

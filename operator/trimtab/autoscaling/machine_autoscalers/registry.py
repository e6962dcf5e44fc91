"""The MachineAutoscalers that there are, as they were last heard of; bad ones beside the good ones."""

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

OPENSHIFT_FINALIZER: Final = "machinetarget.autoscaling.openshift.io"
"""Keeps a MachineAutoscaler until its target has its annotations no more.

OpenShift's operator has the same: objects that it has left behind can be deleted under trimtab, and those of trimtab
under it.
"""


class Entry(Struct, frozen=True):
    """One MachineAutoscaler.

    Attributes:
        metadata: what identifies this state of it.
        finalizers: in their order.
        autoscaler: what it says; ``None`` where that cannot be used.
        problem: why it cannot.
        status: as it stands on the server.
    """

    metadata: ObjectMeta
    finalizers: tuple[str, ...] = ()
    autoscaler: MachineAutoscaler | None = None
    problem: InputError | None = None
    status: MachineAutoscalerStatus = MachineAutoscalerStatus()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def deleting(self) -> bool:
        """Whether it waits for its finalizers only."""
        return self.metadata.deletion_timestamp is not None

    @property
    def claim(self) -> TargetKey | None:
        """The target it asks for; ``None`` where it is being deleted or cannot be used."""
        if self.deleting or self.autoscaler is None:
            return None
        return TargetKey.of_reference(self.autoscaler.spec.scale_target_ref, self.metadata.namespace)

    @property
    def is_openshifts(self) -> bool:
        """Whether OpenShift's operator has reported on it, and trimtab never has: conditions are ours alone."""
        return self.status.last_target_ref is not None and not self.status.conditions

    @property
    def last_target(self) -> TargetKey | None:
        """The target that ``status.lastTargetRef`` names."""
        found = self.status.last_target_ref
        return None if found is None else TargetKey.of_reference(found, self.metadata.namespace)


class MachineAutoscalers:
    """All of them, fed with events and lists.

    What arrives late changes nothing: the newest state of an object counts, whoever brings it.
    """

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        """Prepare.

        Args:
            changed: called whenever :attr:`all` says something else than before, changes of status excepted: what the
                autoscaler's loop wakes up for. It must be quick and must not raise.
        """
        self._changed = changed
        self._entries: dict[str, Entry] = {}
        self._claims: dict[TargetKey, set[str]] = {}
        self._all: tuple[MachineAutoscaler, ...] | None = None

    @property
    def all(self) -> tuple[MachineAutoscaler, ...]:
        """Those that can be used, by ``namespace/name``; those being deleted are among them, and say so."""
        if self._all is None:
            found = (self._entries[key].autoscaler for key in sorted(self._entries))
            self._all = tuple(each for each in found if each is not None)
        return self._all

    @property
    def invalid(self) -> Mapping[str, InputError]:
        """Those that cannot be used, by ``namespace/name``, each with the reason."""
        entries = sorted(self._entries.items())
        return {key: entry.problem for key, entry in entries if entry.problem is not None}

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._entries))

    def get(self, key: str) -> Entry | None:
        """The one of that ``namespace/name``."""
        return self._entries.get(key)

    def wanting(self, target: TargetKey) -> tuple[MachineAutoscaler, ...]:
        """Those that ask for a target and are not being deleted, by ``namespace/name``."""
        found = (self._entries[key].autoscaler for key in sorted(self._claims.get(target, ())))
        return tuple(each for each in found if each is not None)

    def observe(self, body: Mapping[str, Any]) -> Entry:
        """Take in one as it is written now; returns what is known of it then."""
        new = read(body)
        old = self._entries.get(new.key)
        if old is not None and old.metadata.uid == new.metadata.uid and _older(new.metadata, old.metadata):
            return old
        self._put(new.key, old, new)
        return new

    def forget(self, key: str, *, uid: str = "") -> None:
        """Take out one that is gone; one of another UID has its name by now and stays."""
        old = self._entries.get(key)
        if old is not None and uid in ("", old.metadata.uid):
            self._put(key, old, None)

    def replace(self, bodies: Iterable[Mapping[str, Any]], *, resource_version: str) -> tuple[str, ...]:
        """Take in a whole list; returns the keys of those that are gone.

        Args:
            bodies: all that the server has.
            resource_version: of the list: what is known from later is not gone because the list lacks it.
        """
        there = {self.observe(body).key for body in bodies}
        listed = ObjectMeta(resource_version=resource_version)
        gone = [key for key, each in self._entries.items() if key not in there and not _older(listed, each.metadata)]
        for key in gone:
            self.forget(key)
        return tuple(gone)

    def _put(self, key: str, old: Entry | None, new: Entry | None) -> None:
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
        if _meant(old) != _meant(new):
            self._changed()


def read(body: Mapping[str, Any]) -> Entry:
    """One MachineAutoscaler as the server has it. Nothing that it may hold raises anything."""
    body = dict(body)
    raw = body["metadata"]
    metadata = msgspec.convert({key: raw[key] for key in _READ if raw.get(key) is not None}, ObjectMeta, strict=False)
    problem, autoscaler = None, None
    try:
        autoscaler = decode_machine_autoscaler(body)
    except InputError as error:
        problem = error
    return Entry(
        metadata=metadata,
        finalizers=tuple(raw.get("finalizers") or ()),
        autoscaler=autoscaler,
        problem=problem,
        status=_status(body.get("status")) if autoscaler is None else autoscaler.status,
    )


_READ: Final = tuple(field.encode_name for field in msgspec.structs.fields(ObjectMeta))


def _status(data: object) -> MachineAutoscalerStatus:
    """A status as far as it can be read: OpenShift's operator writes one as well, and it is only a report."""
    try:
        return msgspec.convert(data or {}, MachineAutoscalerStatus)
    except msgspec.ValidationError:
        return MachineAutoscalerStatus()


def _meant(entry: Entry | None) -> object:
    """What planners read of one."""
    if entry is None or entry.autoscaler is None:
        return None
    metadata = entry.metadata
    return metadata.uid, metadata.deletion_timestamp, metadata.creation_timestamp, entry.autoscaler.spec


def _older(metadata: ObjectMeta, than: ObjectMeta) -> bool:
    """Whether one state is older than another, as far as their versions tell (they are numbers on every server)."""
    one, other = metadata.resource_version, than.resource_version
    return one.isdecimal() and other.isdecimal() and int(one) < int(other)

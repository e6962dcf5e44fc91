"""Own writes: the snapshot shows what this process has written before the watches report it.

Watches may be late by seconds. Without this, a planner would plan again what is already on its way: evict further pods
from a node whose pods are being evicted, or taint a node twice. Three kinds of writes are shown, each until the watch
reports it or a later change of the object:

- a pod that the scheduler binds counts on its node, the equivalent of kube-scheduler's ``AssumePod``;
- a pod whose eviction or deletion was granted is terminating, until the watch delivers its deletion. The resource
  version in the response (Kubernetes 1.38) is not needed for that;
- a changed object, such as a tainted node or a resized MachineSet, is as the API server returned it.

The stores of the informers do not show own writes: code that reads single objects sees what the watches delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from trimtab.cluster.kinds import NODE_GROUPS, SNAPSHOT_KINDS
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.errors import InputError
from trimtab.kube.objects import TYPES, KubeObject, Node, Pod
from trimtab.kube.resource_versions import is_older
from trimtab.kube.resources import PODS, Resource
from trimtab.kube.wire.decode import decode_object

if TYPE_CHECKING:
    from trimtab.cluster.snapshot import Snapshot

EXPIRY: Final = 600.0
"""Seconds after which a write that no watch has reported is no longer shown. This only limits the memory: the watch
reports every write that was granted, however late it is."""


class ReservedObject(Struct, frozen=True, gc=False):
    """A volume or claim that was changed in the snapshot when a pod was placed.

    Attributes:
        old: the object before the change.
        new: the object as it was put into the snapshot.
    """

    old: KubeObject
    new: KubeObject


class Assumption(Struct, eq=False):
    """A pod that is counted on a node although the watch reports it as pending.

    Attributes:
        pending: the latest version of the pod that the watch delivered.
        assumed: the pod in the snapshot.
        reserved: the volumes and claims that are reserved for the pod.
    """

    pending: Pod
    assumed: Pod
    reserved: Sequence[ReservedObject] = ()


class OwnWrite(Struct, frozen=True):
    """A write that the API server has granted.

    Attributes:
        kind: the type of the object.
        key: ``namespace/name``, or the name of a cluster-scoped object.
        uid: the UID of the object.
        effect: returns the written object, given the latest version from the watch.
        shown_by: returns whether a version from the watch includes the write.
        at: the time of the response in seconds on the monotonic clock.
    """

    kind: type[KubeObject]
    key: str
    uid: str
    effect: Callable[[KubeObject], KubeObject]
    shown_by: Callable[[KubeObject], bool]
    at: float

    @classmethod
    def of_ended_pod(cls, key: str, uid: str, *, now: float, at: float) -> OwnWrite:
        """Return the write of a granted eviction or deletion.

        Args:
            key: ``namespace/name`` of the pod.
            uid: UID of the pod.
            now: the time of the response in seconds since the epoch.
            at: the same on the monotonic clock.
        """

        def terminating(pod: KubeObject) -> KubeObject:
            assert isinstance(pod, Pod)
            return msgspec.structs.replace(pod, deleted=now + (pod.spec.termination_grace_period or 0))

        return cls(Pod, key, uid, terminating, lambda pod: isinstance(pod, Pod) and pod.deleted is not None, at)

    @classmethod
    def of_changed_object(cls, changed: KubeObject, *, at: float) -> OwnWrite:
        """Return the write of an object that the API server returned after a change."""
        reached = _has_reached(changed.resource_version)
        return cls(type(changed), changed.key, changed.uid, lambda _: changed, reached, at)

    @classmethod
    def of_size(cls, kind: type[KubeObject], scale: Mapping[str, Any], *, at: float) -> OwnWrite:
        """Return the write of a node group's size, from the response to a change of its ``scale`` subresource."""
        metadata, replicas = scale["metadata"], int((scale.get("spec") or {}).get("replicas", 0))
        version = metadata["resourceVersion"]

        def resized(group: KubeObject) -> KubeObject:
            return msgspec.structs.replace(group, replicas=replicas, resource_version=version)

        key = f"{metadata['namespace']}/{metadata['name']}"
        return cls(kind, key, metadata["uid"], resized, _has_reached(version), at)


def _has_reached(version: str) -> Callable[[KubeObject], bool]:
    """Return a function that tests whether an object has this resource version or a later one."""
    return lambda seen: not is_older(seen.resource_version, version)


class _Shown(Struct):
    """A write in the snapshot, and the latest version of the object that the watch delivered."""

    write: OwnWrite
    seen: KubeObject
    shown: KubeObject


class OwnWrites:
    """The own writes that one snapshot shows. All methods must be called while the snapshot may be changed.

    Args:
        snapshot: the snapshot.
        kinds: the kinds in the snapshot.
    """

    def __init__(self, snapshot: Snapshot, kinds: Sequence[Resource] = SNAPSHOT_KINDS) -> None:
        self._snapshot = snapshot
        self._kinds = {TYPES[resource.type_name] for resource in kinds}
        self._assumed: dict[str, Assumption] = {}
        self._writes: dict[tuple[type[KubeObject], str], _Shown] = {}  # in the order of the writes

    def __len__(self) -> int:
        return len(self._assumed) + len(self._writes)

    def record(self, write: OwnWrite) -> None:
        """Show a write. No-op if the watch has delivered it, or if the snapshot does not contain the object."""
        if write.kind not in self._kinds:
            return
        there = self._find(write.kind, write.key)
        if there is None or there.uid != write.uid or write.shown_by(there):
            return
        known = self._writes.pop((write.kind, write.key), None)
        shown = write.effect(there)
        self._writes[write.kind, write.key] = _Shown(write, there if known is None else known.seen, shown)
        self._snapshot.put(shown)

    def expire(self, at: float) -> None:
        """Return objects to the version from the watch if their write is older than :data:`EXPIRY`."""
        while self._writes:
            key, oldest = next(iter(self._writes.items()))
            if at - oldest.write.at < EXPIRY:
                return
            del self._writes[key]
            if self._find(*key) is oldest.shown:
                self._snapshot.put(oldest.seen)

    def assume(self, assumption: Assumption) -> None:
        """Keep a pod on the node to which a plan has assigned it in the snapshot."""
        self._assumed[assumption.pending.key] = assumption

    def forget(self, assumption: Assumption) -> None:
        """Make an assumed pod pending again, because it was not bound.

        No-op if the watch has since ended the assumption.
        """
        key = assumption.pending.key
        if self._assumed.get(key) is not assumption:
            return
        del self._assumed[key]
        if self._snapshot.pods.get(key) is assumption.assumed:
            self._snapshot.put(assumption.pending)
        self._release(assumption)

    def apply(self, old: KubeObject | None, new: KubeObject | None) -> KubeObject | None:
        """Process a change reported by a watch, and return the version of the object to store in the snapshot.

        The result is ``None`` for a deleted object.
        """
        if self._assumed and (isinstance(new, Pod) or isinstance(old, Pod)):
            new = self._with_assumption(old, new)  # type: ignore[arg-type]
        there = new if new is not None else old
        if there is None or (known := self._writes.get((type(there), there.key))) is None:
            return new
        if new is None or new.uid != known.write.uid or known.write.shown_by(new):
            del self._writes[type(there), there.key]
            return new
        known.seen, known.shown = new, known.write.effect(new)
        return known.shown

    def _with_assumption(self, old: Pod | None, new: Pod | None) -> Pod | None:
        """Keep a pod that is still pending on its assumed node, until the watch reports it on a node or as deleted."""
        pod = new or old
        assert pod is not None
        key = pod.key
        known = self._assumed.get(key)
        if known is None or known.pending.uid != pod.uid:
            return new
        if new is not None and not new.node:
            known.pending = new
            known.assumed = msgspec.structs.replace(new, node=known.assumed.node)
            return known.assumed
        del self._assumed[key]
        if new is None or new.node != known.assumed.node:
            self._release(known)
        return new

    def _release(self, assumption: Assumption) -> None:
        """Release the reserved volumes and claims, except those that the watch has updated in the meantime."""
        for each in assumption.reserved:
            objects = self._snapshot.objects.of(type(each.new))
            if objects.get(each.new.key) is each.new:
                self._snapshot.put(each.old)

    def _find(self, kind: type[KubeObject], key: str) -> KubeObject | None:
        if kind is Pod:
            return self._snapshot.pods.get(key)
        return self._snapshot.nodes.get(key) if kind is Node else self._snapshot.objects.of(kind).get(key)


_BY_PATH: Final = {(resource.group, resource.plural): TYPES[resource.type_name] for resource in SNAPSHOT_KINDS}
_SIZED: Final = frozenset(TYPES[resource.type_name] for resource in NODE_GROUPS)


class RecordingApi:
    """An :class:`~trimtab.kube.api.Api` that passes the writes that the API server has granted to a callback.

    Args:
        api: sends the requests.
        record: called with each write of an object that snapshots contain.
        clock: wall clock and monotonic clock.
    """

    def __init__(self, api: Api, record: Callable[[OwnWrite], None], clock: Clock) -> None:
        self._api = api
        self._record = record
        self._clock = clock

    async def request(self, method: str, path: str, *, body: Any = None, **options: Any) -> Any:
        """See :class:`~trimtab.kube.api.Api`."""
        answer = await self._api.request(method, path, body=body, **options)
        if method != "GET":
            write = _write_of(method, path, body, answer, now=self._clock.now(), at=self._clock.monotonic())
            if write is not None:
                self._record(write)
        return answer

    def stream(self, path: str, **options: Any) -> AbstractAsyncContextManager[Any]:
        """See :class:`~trimtab.kube.api.Api`."""
        return self._api.stream(path, **options)


def _write_of(method: str, path: str, body: Any, answer: Any, *, now: float, at: float) -> OwnWrite | None:
    """Return the write of a request that was granted, or ``None`` if it changed no object that snapshots contain."""
    group, plural, key, subresource = _parts(path)
    kind = _BY_PATH.get((group, plural))
    if kind is None or not key:
        return None
    if plural == PODS.plural and (method == "DELETE" or subresource == "eviction"):
        options = (body or {}).get("deleteOptions", body or {})
        uid = (options.get("preconditions") or {}).get("uid", "")
        return OwnWrite.of_ended_pod(key, uid, now=now, at=at) if uid else None
    if method not in ("PATCH", "PUT") or not isinstance(answer, Mapping):
        return None
    if subresource == "scale":
        return OwnWrite.of_size(kind, answer, at=at) if kind in _SIZED else None
    try:
        changed = decode_object(answer)
    except InputError:  # the informer reports an object that it cannot decode
        return None
    return None if changed is None else OwnWrite.of_changed_object(changed, at=at)


def _parts(path: str) -> tuple[str, str, str, str]:
    """Split the path of an object into API group, plural, ``namespace/name`` or name, and subresource."""
    _, root, *rest = path.split("/")
    group = rest.pop(0) if root == "apis" else ""
    rest = rest[1:]  # without the version
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    return group, plural, f"{namespace}/{name}" if namespace and name else name, subresource

r"""Decoding of pods from protobuf by what they share with pods before them.

Nine tenths of a large cluster's bytes are pods, and a pod differs from its siblings in little: name, UID, version,
node, times, restarts. The rest (spec, labels, owners) is taken by its bytes from the pod before, without a look
inside; conditions and states that are as on every healthy pod are known by the bytes that they begin with. Whatever is
else is read by the projection of all kinds (:mod:`trimtab.kube.wire.projection`), which alone knows what things mean:
the value is the same, at half the cost or less. Lists come ordered by namespace and name, so siblings come together and
the tables may stay small.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import DecodeError

from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects import KubeObject, OwnerReference, Pod, PodCondition, PodSpec
from trimtab.kube.wire import fields, quick_pod_pb2, slim_pb2
from trimtab.kube.wire.annotations import MEANINGFUL
from trimtab.kube.wire.container_status import Statuses, container_statuses
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.pod_spec import project_spec
from trimtab.kube.wire.projection import STANDARD_CONDITIONS, pod_conditions, with_status

_TABLE: Final = 1024
"""Entries of a table at which it is emptied. The keys are what pods' parts come as, a few KiB each at worst."""

_TRUE: Final = b"\x12\x04True"
"""A condition's status (field 2), which follows its type (field 1); the server writes fields in their order."""
_READY: Final = b"\n\x05Ready" + _TRUE
_AS_ALWAYS: Final = tuple(
    b"\n" + bytes([len(kind)]) + kind.encode() + _TRUE for kind in sorted(STANDARD_CONDITIONS) if kind != "Ready"
)

_RUNNING: Final = 0x12
"""The byte that a state begins with (field 2) of a container that runs; a state is one of three."""

_KEY: Final = b"\n"
"""What an entry of a map begins with: the key (field 1), after it its length."""
_LONG: Final = b"\x80"
"""A length from here on takes another byte."""
_MEANINGFUL: Final = tuple(key.encode() for key in MEANINGFUL)

_TOKEN_VOLUME: Final = "kube-api-access-"
"""What the name of a service account token's volume begins with; the rest is random, and containers mount it by it."""

_NAMED: Final = ("ephemeral", "empty_dir", "host_path")
"""Sources of volumes whose names mean something, see :class:`trimtab.kube.objects.pod.Volume`."""

_parse: Final = quick_pod_pb2.Pod.FromString
_parse_condition: Final = quick_pod_pb2.Condition.FromString
_parse_slim: Final = slim_pb2.Pod.FromString

Entries = tuple[bytes, ...]
General = Callable[[bytes], KubeObject]
EncodeSpec = Callable[[slim_pb2.PodSpec], bytes]


class QuickPods:
    """Decodes pods one after the other; as an :class:`~trimtab.kube.wire.intern.Interner`, for one thread."""

    __slots__ = ("_encode_spec", "_general", "_interner", "_metadata", "_specs")

    def __init__(self, interner: Interner, *, general: General, encode_spec: EncodeSpec) -> None:
        """Begin with empty tables.

        Args:
            interner: shares equal parts of pods.
            general: decodes any pod, or raises what is wrong with it.
            encode_spec: the key of a spec, see :data:`trimtab.kube.wire.projection.Key`.
        """
        self._interner = interner
        self._general = general
        self._encode_spec = encode_spec
        self._specs: dict[bytes, PodSpec] = {}
        self._metadata: dict[tuple[Entries, Entries], tuple[Labels, tuple[OwnerReference, ...]]] = {}

    def decode(self, raw: bytes) -> KubeObject:
        """Decode a pod out of its envelope.

        Raises:
            InputError: what the general decoder finds wrong with it.
        """
        try:
            message = _parse(raw)
            metadata, status = message.metadata, message.status
            name, nominated = metadata.name, status.nominated_node_name
            if not name or nominated or metadata.HasField("deletion_timestamp"):
                return self._general(raw)
            string = self._interner.string
            node = string(message.spec.node_name)  # read before the spec is stripped of it
            spec = self._spec(message.spec, raw)
            labels, owners = self._shared_metadata(metadata, raw)
            ready, ready_since, conditions = self._conditions(status, raw)
            annotations = self._annotations(metadata, raw)
            restarts, init_restarts, states = self._containers(status, raw)
            if conditions or status.qos_class != spec.qos:
                spec = with_status(spec, _parse_slim(raw).status, conditions, self._interner)
        except (DecodeError, TypeError, ValueError):  # the last two of text that is no UTF-8, too: it comes as bytes
            return self._general(raw)
        return Pod(  # by position, in the order of the fields: by name it takes half a microsecond longer
            string(metadata.namespace or "default"),
            name,
            metadata.uid,
            metadata.resource_version,
            labels,
            annotations,
            owners,
            float(metadata.creation_timestamp.seconds) or None,
            None,  # not deleted
            node,
            spec,
            string(status.phase),
            string(status.reason),
            ready,
            ready_since,
            float(status.start_time.seconds) or None,
            "",  # not nominated
            restarts,
            init_restarts,
            conditions,
            states,
        )

    def _spec(self, message: Any, raw: bytes) -> PodSpec:
        """The spec by its bytes without what differs between pods of one template."""
        message.ClearField("node_name")
        message.ClearField("hostname")
        if message.volumes:
            _forget_tokens(message)
        key = message.SerializeToString()
        spec = self._specs.get(key)
        if spec is None:
            slim, interner = _parse_slim(raw).spec, self._interner
            digest = hashlib.blake2b(self._encode_spec(slim), digest_size=16).digest()
            spec = interner.spec(digest, lambda: project_spec(slim, interner))
            if len(self._specs) >= _TABLE:
                self._specs.clear()
            self._specs[key] = spec
        return spec

    def _shared_metadata(self, metadata: Any, raw: bytes) -> tuple[Labels, tuple[OwnerReference, ...]]:
        """Labels and owners, which pods of one template share."""
        key = tuple(metadata.labels), tuple(metadata.owner_references)
        found = self._metadata.get(key)
        if found is None:
            slim = _parse_slim(raw).metadata
            found = fields.labels(slim.labels, self._interner), fields.owners(slim.owner_references, self._interner)
            if len(self._metadata) >= _TABLE:
                self._metadata.clear()
            self._metadata[key] = found
        return found

    def _annotations(self, metadata: Any, raw: bytes) -> Labels:
        for entry in metadata.annotations:
            if entry[:1] != _KEY or entry[1:2] >= _LONG or entry.startswith(_MEANINGFUL, 2):
                return fields.kept_annotations(_parse_slim(raw).metadata.annotations, self._interner)
        return NO_LABELS

    def _conditions(self, status: Any, raw: bytes) -> tuple[bool, float | None, tuple[PodCondition, ...]]:
        ready = None
        for condition in status.conditions:
            if condition.startswith(_READY):
                ready = condition
            elif not condition.startswith(_AS_ALWAYS):
                break
        else:
            if ready is not None:
                return True, float(_parse_condition(ready).last_transition_time.seconds) or None, ()
        return pod_conditions(_parse_slim(raw).status.conditions, self._interner)

    def _containers(self, status: Any, raw: bytes) -> Statuses:
        if not (status.HasField("init_container_statuses") or status.HasField("ephemeral_container_statuses")):
            restarts = 0
            for container in status.container_statuses:
                state = container.state
                if state and state[0] != _RUNNING:
                    break
                restarts += container.restart_count
            else:
                return restarts, 0, ()
        return container_statuses(_parse_slim(raw).status, self._interner)


def _forget_tokens(spec: Any) -> None:
    """Take the random names of token volumes out of a spec, and with them what containers mount."""
    found = False
    for volume in spec.volumes:
        if volume.name.startswith(_TOKEN_VOLUME) and not any(map(volume.volume_source.HasField, _NAMED)):
            volume.ClearField("name")
            found = True
    if found:
        for container in (*spec.containers, *spec.init_containers):
            container.ClearField("volume_mounts")

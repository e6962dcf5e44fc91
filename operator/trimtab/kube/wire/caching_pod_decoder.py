r"""Decodes pods from protobuf with a cache of the parts that pods of one template share.

Nine tenths of a large cluster's data are pods, and a pod differs from the other pods of its template in only a few
fields: name, UID, resource version, node, times, restarts. The decoder looks up the spec, the labels and the owners by
their bytes without parsing them, and recognizes the conditions and container states of a healthy pod by their first
bytes. The projection (:mod:`trimtab.kube.wire.projection.pod`) decodes everything else and yields the same value; the
cache saves at least half of the CPU time. A list is ordered by namespace and name, so pods of one template follow each
other and small caches suffice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import DecodeError

from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects import KubeObject, OwnerReference, Pod, PodCondition, PodSpec
from trimtab.kube.wire import slim_pb2
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.limits import size_of
from trimtab.kube.wire.projection import fields
from trimtab.kube.wire.projection.annotations import MEANINGFUL
from trimtab.kube.wire.projection.pod import (
    RESIZE_CONDITIONS,
    STANDARD_CONDITIONS,
    Statuses,
    container_statuses,
    pod_conditions,
    project_spec,
    with_status,
)

_TABLE: Final = 1024
"""Maximum number of entries of a cache. A full cache is cleared."""

_LONGEST_KEY: Final = 16_384
"""Maximum size in bytes of a cache key. Keys are encoded parts of pods, mostly of a few KiB."""

_TRUE: Final = b"\x12\x04True"
"""The encoded status True (field 2). It follows the type (field 1), because the server writes fields in order."""
_READY: Final = b"\n\x05Ready" + _TRUE
_STANDARD_TRUE: Final = tuple(
    b"\n" + bytes([len(kind)]) + kind.encode() + _TRUE for kind in sorted(STANDARD_CONDITIONS) if kind != "Ready"
)

_RUNNING: Final = 0x12
"""The first byte of the encoded state of a running container (field 2)."""

_KEY: Final = b"\n"
"""The first byte of an encoded map entry. It is the tag of the key (field 1), which is followed by the key's length."""
_LONG: Final = b"\x80"
"""The first byte of the smallest length whose encoding needs two bytes."""
_MEANINGFUL: Final = tuple(key.encode() for key in MEANINGFUL)

_NODE_NAME: Final = b'"f:nodeName"'
"""The key for ``spec.nodeName`` in managedFields. Labels and annotations with the same name have it, too."""

_TOKEN_VOLUME: Final = "kube-api-access-"
"""The prefix of the name of a service account token's volume. The rest is random, and volume mounts repeat it."""

_NAMED_SOURCES: Final = ("ephemeral", "empty_dir", "host_path")
"""Volume sources whose volume names are decoded (:class:`trimtab.kube.objects.pod.Volume`)."""

_parse: Final = slim_pb2.QuickPod.FromString
_parse_condition: Final = slim_pb2.QuickCondition.FromString
_parse_slim: Final = slim_pb2.Pod.FromString
_parse_slim_condition: Final = slim_pb2.Condition.FromString

Entries = tuple[bytes, ...]
FallbackDecoder = Callable[[bytes], KubeObject]
EncodeSpec = Callable[[slim_pb2.PodSpec], bytes]


class CachingPodDecoder:
    """Decodes pods from protobuf with caches.

    Like an :class:`~trimtab.kube.wire.intern.Interner`, it is not thread-safe.
    """

    __slots__ = ("__weakref__", "_encode_spec", "_general", "_interner", "_metadata", "_specs", "_times")

    def __init__(self, interner: Interner, *, general: FallbackDecoder, encode_spec: EncodeSpec) -> None:
        """Create a decoder with empty caches.

        Args:
            interner: shares identical parts of pods.
            general: decodes any pod without caches. It raises InputError if the pod is invalid.
            encode_spec: returns the key of a spec (:data:`trimtab.kube.wire.projection.pod.SpecKey`).
        """
        self._interner = interner
        interner.add_table(self)
        self._general = general
        self._encode_spec = encode_spec
        self._specs: dict[bytes, PodSpec] = {}
        self._metadata: dict[tuple[Entries, Entries], tuple[Labels, tuple[OwnerReference, ...]]] = {}
        self._times: dict[int, float | None] = {0: None}

    def clear(self) -> None:
        """Clear the caches. The next pods fill them again."""
        self._specs.clear()
        self._metadata.clear()
        self._times = {0: None}

    def decode(self, raw: bytes) -> KubeObject:
        """Decode a pod from its encoded bytes, without the envelope.

        Raises:
            InputError: the pod is invalid.
        """
        try:
            message = _parse(raw)
            metadata, status = message.metadata, message.status
            name, nominated = metadata.name, status.nominated_node_name
            limits = self._interner.limits
            if (
                not name
                or nominated
                or len(metadata.labels) > limits.labels
                or len(metadata.owner_references) > limits.items
            ):
                return self._general(raw)
            annotations = self._annotations(metadata, raw)
            if annotations is None:
                return self._general(raw)
            string = self._interner.string
            node = string(message.spec.node_name)  # read before the spec is stripped of it
            spec = self._spec(message.spec, raw)
            labels, owners = self._shared_metadata(metadata, raw)
            ready, ready_since, conditions = self._conditions(status)
            restarts, init_restarts, states = self._containers(status, raw)
            managed = bool(node) and _NODE_NAME in raw and _is_named(raw)
            if status.qos_class != spec.qos or any(each.type in RESIZE_CONDITIONS for each in conditions):
                spec = with_status(spec, _parse_slim(raw).status, conditions, self._interner)
        except (DecodeError, TypeError, ValueError):  # invalid UTF-8 raises one of the last two
            return self._general(raw)
        return Pod(  # by position, because keywords cost half a microsecond more
            string(metadata.namespace or "default"),
            name,
            metadata.uid,
            metadata.resource_version,
            labels,
            annotations,
            owners,
            self._time(metadata.creation_timestamp.seconds),
            self._time(metadata.deletion_timestamp.seconds),
            node,
            spec,
            string(status.phase),
            string(status.reason),
            ready,
            ready_since,
            self._time(status.start_time.seconds),
            "",  # not nominated
            restarts,
            init_restarts,
            conditions,
            states,
            metadata.generation,
            managed,
        )

    def _spec(self, message: Any, raw: bytes) -> PodSpec:
        """Look up the spec by its bytes, after clearing the fields that differ between pods of one template."""
        message.ClearField("node_name")
        message.ClearField("hostname")
        if message.volumes:
            _forget_tokens(message)
        key = message.SerializeToString()
        spec = self._specs.get(key)
        if spec is None:
            slim, interner = _parse_slim(raw).spec, self._interner
            encoded = self._encode_spec(slim)
            digest = hashlib.blake2b(encoded, digest_size=16).digest()
            spec = interner.spec(digest, lambda: project_spec(slim, interner, len(encoded)))
            if len(key) <= _LONGEST_KEY:
                if len(self._specs) >= _TABLE:
                    self._specs.clear()
                self._specs[key] = spec
        return spec

    def _shared_metadata(self, metadata: Any, raw: bytes) -> tuple[Labels, tuple[OwnerReference, ...]]:
        """Look up the labels and owners, which pods of one template share, by their bytes."""
        key = tuple(metadata.labels), tuple(metadata.owner_references)
        found = self._metadata.get(key)
        if found is None:
            slim = _parse_slim(raw).metadata
            found = fields.labels(slim.labels, self._interner), fields.owners(slim.owner_references, self._interner)
            if sum(map(len, (*metadata.labels, *metadata.owner_references))) <= _LONGEST_KEY:
                if len(self._metadata) >= _TABLE:
                    self._metadata.clear()
                self._metadata[key] = found
        return found

    def _time(self, seconds: int) -> float | None:
        """Return a time, which is one object for the pods that are listed next to each other.

        The pods of an owner are mostly created and started within the same few seconds.
        """
        found = self._times.get(seconds, 0.0)
        if found == 0.0:
            if len(self._times) >= _TABLE:
                self._times = {0: None}
            found = self._times[seconds] = float(seconds)
        return found

    def _annotations(self, metadata: Any, raw: bytes) -> Labels | None:
        """Return the annotations that trimtab reads, or ``None`` if they exceed the limits."""
        for entry in metadata.annotations:
            if entry[:1] != _KEY or entry[1:2] >= _LONG or entry.startswith(_MEANINGFUL, 2):
                kept = fields.kept_annotations(_parse_slim(raw).metadata.annotations, self._interner)
                return kept if size_of(kept) <= self._interner.limits.annotation_bytes else None
        return NO_LABELS

    def _conditions(self, status: Any) -> tuple[bool, float | None, tuple[PodCondition, ...]]:
        ready = None
        for condition in status.conditions:
            if condition.startswith(_READY):
                ready = condition
            elif not condition.startswith(_STANDARD_TRUE):
                break
        else:
            if ready is not None:
                return True, self._time(_parse_condition(ready).last_transition_time.seconds), ()
        return pod_conditions(map(_parse_slim_condition, status.conditions), self._interner)

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


def _is_named(raw: bytes) -> bool:
    return fields.sets_node_name(_parse_slim(raw).metadata.managed_fields)


def _forget_tokens(spec: Any) -> None:
    """Clear the random names of token volumes, and the volume mounts of containers that repeat them."""
    found = False
    for volume in spec.volumes:
        if volume.name.startswith(_TOKEN_VOLUME) and not any(map(volume.volume_source.HasField, _NAMED_SOURCES)):
            volume.ClearField("name")
            found = True
    if found:
        for container in (*spec.containers, *spec.init_containers):
            container.ClearField("volume_mounts")

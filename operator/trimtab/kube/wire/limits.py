"""The complexity limits of pods, which bound the memory and planning time that a tenant's pods can cost.

The API server accepts objects of up to 1.5 MiB with any number of terms, tolerations or resource names. For a pod
beyond a limit, trimtab decodes only a part of the spec, and neither moves nor places the pod. The pod still affects
plans: its requests are counted on its node, it prevents the removal of its node, and the first terms of its required
anti-affinity reject other pods.

The defaults are several times the values of the largest pods in real clusters, which have a few dozen labels and
selector values, ten containers, five affinity terms, ten tolerations and four kinds of devices.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from trimtab.kube.frozen import FrozenMap, Labels, ResourceList
from trimtab.kube.objects import Toleration


class ComplexityLimits(Struct, frozen=True, kw_only=True):
    """The complexity limits of one pod, and of all pods of a namespace together.

    Attributes:
        resource_names: maximum number of resource names in a pod's requests and limits.
        affinity_terms: maximum number of pod and node affinity terms and topology spread constraints.
        selector_values: maximum number of labels, expressions, values and namespaces in all selectors of a pod.
        topology_keys: maximum number of distinct topology keys of a pod.
        tolerations: maximum number of tolerations of a pod.
        items: maximum number of containers, volumes, host ports, ResourceClaims, scheduling gates or owner references.
        labels: maximum number of labels of a pod, or of a selector that is a map.
        annotation_bytes: maximum size of a pod's annotations that are read.
        spec_bytes: maximum encoded size of the part of a pod's spec that is read.
        namespace_terms: maximum number of pod affinity terms and topology spread constraints in all distinct pod specs
            of a namespace. Those that several specs share are counted once.
        namespace_selector_values: the same for ``selector_values``. Node selectors, preferred node affinity, pod
            affinity and topology spread that several specs share are counted once.
        namespace_annotation_bytes: maximum size of all distinct maps of annotations that the pods of a namespace have.
        namespace_spec_bytes: maximum encoded size of all distinct pod specs of a namespace that have at least
            :data:`LARGE_SPEC` bytes.
    """

    resource_names: int = 64
    affinity_terms: int = 64
    selector_values: int = 2_000
    topology_keys: int = 16
    tolerations: int = 128
    items: int = 256
    labels: int = 128
    annotation_bytes: int = 16_384
    spec_bytes: int = 65_536
    namespace_terms: int = 20_000
    namespace_selector_values: int = 200_000
    namespace_annotation_bytes: int = 4_194_304
    namespace_spec_bytes: int = 16_777_216


DEFAULT_LIMITS: Final = ComplexityLimits()

LARGE_SPEC: Final = 4_096
"""Encoded size in bytes of the smallest pod spec whose size counts for its namespace. The specs of most pods are
smaller than 1 KiB, and are not counted, because a namespace may have thousands of different ones.
"""

MESSAGE_LENGTH: Final = 4_096
"""Maximum length of a condition's message. kube-scheduler lists every missing resource in one message."""


def spec_excess(message: Any, limits: ComplexityLimits, size: int) -> str:
    """Return a description of the limits that a pod's spec exceeds, or an empty string.

    Args:
        message: the decoded spec.
        limits: the limits.
        size: the encoded size of the spec in bytes.
    """
    containers = (*message.containers, *message.init_containers)
    names: set[str] = set(message.overhead)
    for each in (*containers, message):
        if each.HasField("resources"):
            names.update(each.resources.requests, each.resources.limits)
    terms, values = 0, len(message.node_selector)
    keys: set[str] = set()
    for key, number in _terms(message):
        terms += 1
        values += number
        if key:
            keys.add(key)
    ports = sum(bool(port.host_port or message.host_network) for each in containers for port in each.ports)
    items = max(
        len(containers), len(message.volumes), ports, len(message.resource_claims), len(message.scheduling_gates)
    )
    return _excess(
        (len(names), limits.resource_names, "resource names"),
        (terms, limits.affinity_terms, "affinity terms and spread constraints"),
        (values, limits.selector_values, "values in selectors"),
        (len(keys), limits.topology_keys, "topology keys"),
        (len(message.tolerations), limits.tolerations, "tolerations"),
        (items, limits.items, "containers, host ports, volumes, claims or gates"),
        (size, limits.spec_bytes, "bytes of spec"),
    )


def metadata_excess(metadata: Any, limits: ComplexityLimits, annotations: Mapping[str, str]) -> str:
    """Return a description of the limits that a pod's metadata exceeds, or an empty string.

    ``annotations`` are the annotations that trimtab reads.
    """
    return _excess(
        (len(metadata.labels), limits.labels, "labels"),
        (len(metadata.owner_references), limits.items, "owner references"),
        (size_of(annotations), limits.annotation_bytes, "bytes of annotations"),
    )


def size_of(entries: Mapping[str, str]) -> int:
    """Return the total length of keys and values in characters."""
    return sum(len(key) + len(value) for key, value in entries.items())


def bounded_labels(labels: Mapping[str, str], most: int) -> Labels:
    """Return the first ``most`` labels in the order of their keys."""
    return FrozenMap({key: labels[key] for key in sorted(labels)[:most]})


def bounded_annotations(annotations: Mapping[str, str], most: int) -> dict[str, str]:
    """Return as many annotations as fit into a total of ``most`` characters, in the order of their keys."""
    kept, size = {}, 0
    for key in sorted(annotations):
        size += len(key) + len(annotations[key])
        if size <= most:
            kept[key] = annotations[key]
        else:
            size -= len(key) + len(annotations[key])
    return kept


_NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
_PACKED: Final = struct.Struct("<Iq")
"""The encoding of a request in :attr:`~trimtab.kube.objects.PodSpec.further_requests`: the name's CRC-32 and the
amount."""


def split_requests(requests: ResourceList, most: int) -> tuple[ResourceList, bytes]:
    """Split requests into the first ``most`` by name, and the others in packed form.

    The others are not dropped, because a tenant could otherwise hide requests for devices among thousands of names.
    Only the node table knows which names exist on nodes.
    """
    names = sorted(requests, key=lambda name: (name not in _NATIVE, name))
    kept = FrozenMap({name: requests[name] for name in names[:most]})
    packed = sorted((name_hash(name), requests[name]) for name in names[most:])
    return kept, b"".join(_PACKED.pack(*each) for each in packed)


def name_hash(name: str) -> int:
    """Return the hash of a resource name in packed requests."""
    return zlib.crc32(name.encode())


def bounded_tolerations(tolerations: tuple[Toleration, ...], most: int) -> tuple[Toleration, ...]:
    """Return at most ``most`` distinct tolerations.

    Tolerations that match all taints, and those of Kubernetes' own taints, come first.
    """
    distinct = dict.fromkeys(tolerations)
    ranked = sorted(distinct, key=lambda each: (each.key != "", not each.key.startswith("node.kubernetes.io/")))
    return tuple(ranked[:most])


def selector_size(selector: Any) -> int:
    """Return the number of labels, expressions and values of a decoded label selector."""
    return len(selector.match_labels) + sum(1 + len(each.values) for each in selector.match_expressions)


def _excess(*counts: tuple[int, int, str]) -> str:
    return ", ".join(f"{number:,} {what} (at most {most:,})" for number, most, what in counts if number > most)


def _terms(message: Any) -> Iterator[tuple[str, int]]:
    """Yield the topology key and the number of selector values of each term and constraint of a spec."""
    for spread in message.topology_spread_constraints:
        yield spread.topology_key, _selected(spread, "label_selector") + len(spread.match_label_keys)
    if not message.HasField("affinity"):
        return
    affinity = message.affinity
    for field in ("pod_affinity", "pod_anti_affinity"):
        if affinity.HasField(field):
            stated = getattr(affinity, field)
            for term in (*stated.required, *(each.pod_affinity_term for each in stated.preferred)):
                yield term.topology_key, term_size(term)
    if affinity.HasField("node_affinity"):
        of_nodes = affinity.node_affinity
        required = of_nodes.required.node_selector_terms if of_nodes.HasField("required") else ()
        for term in (*required, *(each.preference for each in of_nodes.preferred)):
            yield "", sum(1 + len(each.values) for each in (*term.match_expressions, *term.match_fields))


def term_size(term: Any) -> int:
    """Return the number of selector values of a decoded pod affinity term."""
    number = _selected(term, "label_selector") + _selected(term, "namespace_selector") + len(term.namespaces)
    return number + len(term.match_label_keys) + len(term.mismatch_label_keys)


def _selected(message: Any, field: str) -> int:
    return selector_size(getattr(message, field)) if message.HasField(field) else 0

"""Decodes the ConfigMaps of cluster-autoscaler's kwok provider. This module does no I/O.

One ConfigMap defines how node templates become groups. The other contains the templates as a List of Nodes. The
annotation ``cluster-autoscaler.kwok.nodegroup/name`` of a template contains the name of its group. If a template has no
such annotation, the name is the value of the label or annotation that the configuration names. Upstream appends its
start time to that value, and so loses track of its nodes at every restart. If several templates have the same group,
the first one is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

import msgspec
from msgspec import Struct

from trimtab.api import reasons
from trimtab.autoscaling.groups import ObjectProblem
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Node
from trimtab.kube.rules.node_labels import HOSTNAME
from trimtab.kube.rules.selectors import is_subdomain
from trimtab.kube.wire.decode import decode_object
from trimtab.kube.wire.files.documents import documents
from trimtab.kube.wire.files.strict_yaml import load_all

CONFIG: Final = "kwok-provider-config"
CONFIG_KEY: Final = "config"
TEMPLATES: Final = "kwok-provider-templates"
TEMPLATES_KEY: Final = "templates"

ANNOTATION: Final = "cluster-autoscaler.kwok.nodegroup/"
GROUP: Final = f"{ANNOTATION}name"
"""Annotation of a template and of each of its nodes, with the name of the group."""

MOST: Final = 200
"""Default maximum size of a group, as in upstream."""

_MANAGED: Final = "kwok.x-k8s.io/node"
_TAINT: Final = {"key": "kwok-provider", "value": "true", "effect": "NoSchedule"}
_COUNT: Final = re.compile(r"[0-9]{1,9}")
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")
_LONGEST: Final = 50
"""Maximum characters of the group's name in a node's name. A hostname label has at most 63 characters."""


class KwokConfig(Struct, frozen=True):
    """The configuration of the kwok provider: how node templates become groups.

    Attributes:
        label: the label whose value is the group's name; empty if an annotation is used.
        annotation: the annotation whose value is the group's name.
        skip_taint: whether to omit the taint that pods must tolerate from new nodes.
        templates: name of the ConfigMap with the templates.
    """

    label: str = ""
    annotation: str = ""
    skip_taint: bool = False
    templates: str = TEMPLATES


class KwokTemplate(Struct, frozen=True):
    """A group, and the template of its nodes.

    Attributes:
        group: name of the group.
        minimum: minimum size.
        maximum: maximum size.
        manifest: manifest of the template.
        node: a new node of the group.
    """

    group: str
    minimum: int
    maximum: int
    manifest: Mapping[str, Any]
    node: Node


class _NodeGroups(Struct, rename="camel"):
    from_node_label_key: str = ""
    from_node_annotation_key: str = ""
    from_node_annotation: str = ""


class _Nodes(Struct, rename="camel"):
    skip_taint: bool = False


class _ConfigMap(Struct):
    name: str = TEMPLATES


class _Config(Struct, rename="camel"):
    read_nodes_from: str = "configmap"
    nodegroups: _NodeGroups | None = None
    nodes: _Nodes | None = None
    configmap: _ConfigMap | None = None


def read_config(data: Mapping[str, str]) -> KwokConfig:
    """Decode ``kwok-provider-config``.

    Raises:
        InputError: the configuration is invalid. The error names the field.
    """
    field = f"data[{CONFIG_KEY}]"
    if CONFIG_KEY not in data:
        raise InputError(f"must have the key {CONFIG_KEY}", field="data")
    try:
        contents = load_all(data[CONFIG_KEY].encode(errors="replace"))
        found = msgspec.convert(contents[0] if len(contents) == 1 else None, _Config)
    except InputError as error:
        raise InputError(error.message, field=field) from None
    except msgspec.ValidationError as error:
        raise InputError(str(error), field=field) from None
    if found.read_nodes_from != "configmap":
        raise InputError(
            f"must be configmap, not {found.read_nodes_from!r}: trimtab reads node templates from a ConfigMap only",
            field=f"{field}.readNodesFrom",
        )
    groups = found.nodegroups or _NodeGroups()
    annotation = groups.from_node_annotation_key or groups.from_node_annotation
    if bool(groups.from_node_label_key) == bool(annotation):
        raise InputError(
            "must have one of fromNodeLabelKey and fromNodeAnnotationKey: the label or annotation of templates whose "
            "value is their group",
            field=f"{field}.nodegroups",
        )
    return KwokConfig(
        label=groups.from_node_label_key,
        annotation=annotation,
        skip_taint=(found.nodes or _Nodes()).skip_taint,
        templates=(found.configmap or _ConfigMap()).name,
    )


def read_templates(data: Mapping[str, str], config: KwokConfig) -> tuple[tuple[KwokTemplate, ...], tuple[str, ...]]:
    """Return the groups in ``kwok-provider-templates``, and a message for each invalid template.

    Raises:
        InputError: the ConfigMap cannot be decoded.
    """
    if TEMPLATES_KEY not in data:
        raise InputError(f"must have the key {TEMPLATES_KEY}", field="data")
    found: dict[str, KwokTemplate] = {}
    wrong = []
    try:
        for place, manifest in _manifests(data[TEMPLATES_KEY]):
            try:
                template = _template(manifest, config)
            except InputError as error:
                wrong.append(f"{place}: {error}")
                continue
            if template is not None:
                found.setdefault(template.group, template)
    except InputError as error:
        raise InputError(str(error), field=f"data[{TEMPLATES_KEY}]") from None
    return tuple(found[name] for name in sorted(found)), tuple(wrong)


def _manifests(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for document in documents(text.encode()):
        place = f"data[{TEMPLATES_KEY}]{f'.{document.place}' if document.place else ''}"
        content = document.content
        if document.fault is None and isinstance(content, msgspec.Raw):
            content = msgspec.json.decode(content)
        if document.fault is None and isinstance(content, Mapping) and content.get("kind", document.kind) == "Node":
            yield place, {**content, "apiVersion": "v1", "kind": "Node"}


def _template(manifest: dict[str, Any], config: KwokConfig) -> KwokTemplate | None:
    """Return the group of a template, or ``None`` if the template names no group, as in upstream.

    Raises:
        InputError: the template is not a valid node, or its sizes are invalid.
    """
    decode_object(manifest)
    metadata = manifest.get("metadata") or {}
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    named = labels.get(config.label, "") if config.label else annotations.get(config.annotation, "")
    group = annotations.get(GROUP, "") or named
    if not group or not named:
        return None
    minimum, maximum = _size(annotations, "min-count", 0), _size(annotations, "max-count", MOST)
    if maximum < minimum:
        raise InputError(
            f"{ANNOTATION}max-count must be at least {ANNOTATION}min-count: {maximum} is less than {minimum}"
        )
    template = KwokTemplate(group, minimum, maximum, manifest, Node(name=""))
    node = decode_object(new_node(template, "new", config))
    assert isinstance(node, Node)
    return msgspec.structs.replace(template, node=node)


def _size(annotations: Mapping[str, str], name: str, default: int) -> int:
    text = annotations.get(ANNOTATION + name, "")
    if text and not _COUNT.fullmatch(text):
        raise InputError(f"annotation {ANNOTATION}{name} must be a whole number from 0 on, not {text!r}")
    return int(text) if text else default


def new_name(group: str, suffix: str) -> str:
    """Return a valid name for a new node of a group."""
    name = f"{_NOT_IN_NAMES.sub('-', group.lower()).strip('-')[:_LONGEST]}-{suffix}".lstrip("-")
    assert is_subdomain(name)
    return name


def provider_id(name: str) -> str:
    """Return the provider ID of a node that trimtab created."""
    return f"kwok:{name}"


def new_node(template: KwokTemplate, name: str, config: KwokConfig) -> dict[str, Any]:
    """Return the manifest of a new node of a group.

    It is the template's manifest minus the fields that only templates have.
    """
    manifest = deepcopy(dict(template.manifest))
    old = manifest.get("metadata") or {}
    manifest["metadata"] = {
        "name": name,
        "labels": {**(old.get("labels") or {}), HOSTNAME: name},
        "annotations": {
            **(old.get("annotations") or {}),
            _MANAGED: "fake",
            GROUP: template.group,
            "metrics.k8s.io/resource-metrics-path": f"/metrics/nodes/{name}/metrics/resource",
        },
    }
    taints = [each for each in (manifest.get("spec") or {}).get("taints") or () if each.get("key") != _TAINT["key"]]
    if not config.skip_taint:
        taints.append(dict(_TAINT))
    manifest["spec"] = {"providerID": provider_id(name), **({"taints": taints} if taints else {})}
    status = manifest.get("status") or {}
    manifest["status"] = {key: status[key] for key in ("allocatable", "capacity") if key in status} | {
        "nodeInfo": {**(status.get("nodeInfo") or {}), "kubeletVersion": "fake"}
    }
    return manifest


def problem(namespace: str, name: str, message: str) -> ObjectProblem:
    """Return an :class:`ObjectProblem` for one of the ConfigMaps."""
    return ObjectProblem("ConfigMap", namespace, name, reasons.INVALID_PROVIDER_CONFIG, message)

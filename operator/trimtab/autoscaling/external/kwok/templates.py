"""The ConfigMaps of cluster-autoscaler's kwok provider, as values; pure.

One says how node templates become groups, the other holds the templates, a List of Nodes. A group is known by the
annotation ``cluster-autoscaler.kwok.nodegroup/name`` of a template, else by the value of the label or annotation that
the configuration names; upstream adds the time at which it started to the latter, and so loses its nodes with every
start. Templates of one group after its first are taken no notice of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

import msgspec
from msgspec import Struct

from trimtab.api import reasons
from trimtab.autoscaling.groups import Problem
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Node
from trimtab.kube.rules.node_labels import HOSTNAME
from trimtab.kube.wire.decode import decode_object
from trimtab.kube.wire.documents import documents
from trimtab.kube.wire.validation.names import is_subdomain

CONFIG: Final = "kwok-provider-config"
CONFIG_KEY: Final = "config"
TEMPLATES: Final = "kwok-provider-templates"
TEMPLATES_KEY: Final = "templates"

ANNOTATION: Final = "cluster-autoscaler.kwok.nodegroup/"
GROUP: Final = f"{ANNOTATION}name"
"""On a template and on each node: its group."""

MOST: Final = 200
"""The largest size where a template does not say it, as upstream."""

_MANAGED: Final = "kwok.x-k8s.io/node"
_TAINT: Final = {"key": "kwok-provider", "value": "true", "effect": "NoSchedule"}
_COUNT: Final = re.compile(r"[0-9]{1,9}")
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")
_LONGEST: Final = 50
"""Characters of a group's name that its nodes' names begin with; a hostname label holds 63 in all."""


class KwokConfig(Struct, frozen=True):
    """How templates become groups.

    Attributes:
        label: the label whose value is the group's name; empty where it is an annotation's.
        annotation: the annotation whose value is the group's name.
        skip_taint: whether nodes are made without the taint that keeps everybody off who does not tolerate it.
        templates: the ConfigMap with the templates.
    """

    label: str = ""
    annotation: str = ""
    skip_taint: bool = False
    templates: str = TEMPLATES


class KwokTemplate(Struct, frozen=True):
    """A group, and what its nodes are made of.

    Attributes:
        group: its name.
        minimum: its smallest size.
        maximum: its largest size.
        manifest: of the template.
        node: what a new node would be.
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
    """What ``kwok-provider-config`` says.

    Raises:
        InputError: it cannot be used; the field says where.
    """
    field = f"data[{CONFIG_KEY}]"
    if CONFIG_KEY not in data:
        raise InputError(f"must have the key {CONFIG_KEY}", field="data")
    try:
        found = msgspec.yaml.decode(data[CONFIG_KEY], type=_Config)
    except msgspec.DecodeError as error:
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
    """The groups of ``kwok-provider-templates``, and what is wrong with templates that become none, in words.

    Raises:
        InputError: nothing of it can be read.
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
    """The group of a template; ``None`` where it has no name, so that it is none, as upstream has it.

    Raises:
        InputError: it is no node, or its sizes are none.
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
    """A name for a node of a group, from what of the group's name may be in one."""
    name = f"{_NOT_IN_NAMES.sub('-', group.lower()).strip('-')[:_LONGEST]}-{suffix}".lstrip("-")
    assert is_subdomain(name)
    return name


def provider_id(name: str) -> str:
    """The provider ID of a node that was made here."""
    return f"kwok:{name}"


def new_node(template: KwokTemplate, name: str, config: KwokConfig) -> dict[str, Any]:
    """The manifest of a node of a group: the template without what is only the template's."""
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


def problem(namespace: str, name: str, message: str) -> Problem:
    """What is wrong with one of the ConfigMaps."""
    return Problem("ConfigMap", namespace, name, reasons.INVALID_PROVIDER_CONFIG, message)

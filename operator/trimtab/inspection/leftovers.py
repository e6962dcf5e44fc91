"""Finds what trimtab has left in a cluster, with the ``kubectl`` or ``helm`` command that removes each object or field.

An object belongs to trimtab if the chart, the kustomize base or OLM labelled it, if it is one of trimtab's custom
resources, or if ``metadata.managedFields`` names the operator as its only writer. Fields of nodes, node groups and
machines belong to trimtab if the operator wrote them.

Taints and conditions of Kubernetes itself (``node.kubernetes.io/…``), which the taint manager sets in place of
kube-controller-manager, are not reported: kube-controller-manager takes them over.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, structs

from trimtab.api.base import API_VERSION, GROUP
from trimtab.api.crds import DEFINITIONS, Definition
from trimtab.autoscaling.actuation.node_markers import CORDONED_BY, CORDONED_BY_US, REMOVING
from trimtab.autoscaling.machine_autoscalers.registry import OPENSHIFT_FINALIZER
from trimtab.cluster.disruption_signals import UNNEEDED_SINCE
from trimtab.kube.resources import (
    API_SERVICES,
    BUDGETS,
    CLUSTER_MACHINE_SETS,
    CLUSTER_MACHINES,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    LEASES,
    MACHINE_DEPLOYMENTS,
    MACHINE_POOLS,
    MACHINE_SETS,
    MACHINES,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    NODES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    Resource,
)
from trimtab.kube.rules.taints import DELETION_CANDIDATE, TO_BE_DELETED

Document = dict[str, Any]

_RBAC: Final = "rbac.authorization.k8s.io"
_REGISTRATION: Final = "admissionregistration.k8s.io"
_MONITORING: Final = "monitoring.coreos.com"
_OLM: Final = "operators.coreos.com"

CRDS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
SUBSCRIPTIONS: Final = Resource(_OLM, "v1alpha1", "subscriptions", "Subscription")
CLUSTER_SERVICE_VERSIONS: Final = Resource(_OLM, "v1alpha1", "clusterserviceversions", "ClusterServiceVersion")

LABELLED: Final = (
    DEPLOYMENTS,
    API_SERVICES,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    Resource(
        _REGISTRATION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", namespaced=False
    ),
    Resource(_REGISTRATION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False),
    Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    CLUSTER_ROLES,
    Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
    Resource(_RBAC, "v1", "roles", "Role"),
    Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
    BUDGETS,
    SERVICES,
    SERVICE_ACCOUNTS,
    SECRETS,
    CONFIG_MAPS,
    Resource(_MONITORING, "v1", "servicemonitors", "ServiceMonitor"),
    Resource(_MONITORING, "v1", "prometheusrules", "PrometheusRule"),
    NAMESPACES,
)
"""Kinds that the chart, the kustomize base and OLM install, in the order of their removal."""

INSTALLED_BY_OLM: Final = (SUBSCRIPTIONS, CLUSTER_SERVICE_VERSIONS)
WRITTEN: Final = (LEASES, CONFIG_MAPS)
"""Kinds of which the operator creates objects itself."""

NODE_GROUPS: Final = (
    MACHINE_SETS,
    MACHINE_DEPLOYMENTS,
    CLUSTER_MACHINE_SETS,
    MACHINE_POOLS,
    MACHINES,
    CLUSTER_MACHINES,
)
"""Kinds of which the operator annotates objects."""

WRITER: Final = "trimtab"
"""The field manager of the operator's writes."""

NAME_LABEL: Final = "app.kubernetes.io/name"
_NAMES: Final = ("trimtab", "trimtab-admission")
_CHART_LABEL: Final = "helm.sh/chart"
_OLM_LABEL: Final = f"{_OLM}/trimtab."
_RELEASE: Final = ("meta.helm.sh/release-namespace", "meta.helm.sh/release-name")
_ADMISSION: Final = "admission"
_COMPONENT: Final = "app.kubernetes.io/component"
_FINALIZERS: Final = (f"{GROUP}/finalizer", OPENSHIFT_FINALIZER)
_PREFIXES: Final = (f"{GROUP}/", f"pressure.{GROUP}/")
_MANY: Final = ("DeschedulingRun", "HistoryRecord")
"""Kinds whose objects the operator creates. They are reported as one entry, because there may be dozens."""

_PLATFORM: Final = "include.release.openshift.io/"
"""Prefix of the annotations of objects that belong to OpenShift's release, such as its two CRDs of autoscalers."""


class Leftover(Struct, frozen=True):
    """An object of trimtab that still exists, or a field that trimtab set.

    Attributes:
        kind: the kind of the object.
        namespace: its namespace; empty for cluster-scoped objects.
        name: its name; ``*`` for all objects of the kind.
        what: ``object``, or the field: ``finalizer``, ``taint``, ``cordon``, ``condition`` or ``annotation``, followed
            by its key.
        command: the command that removes it.
    """

    kind: str
    namespace: str
    name: str
    what: str
    command: str


class Found(Struct, frozen=True, kw_only=True):
    """The objects of a cluster that may belong to trimtab.

    Attributes:
        metadata: the metadata of objects by resource. For :data:`LABELLED` kinds, those with the label
            ``app.kubernetes.io/name`` suffice.
        custom: the metadata of trimtab's custom resources by CRD name.
        crds: the metadata of trimtab's CRDs by name.
        nodes: the nodes.
        releases: namespace and name of the releases that Helm stores.
        unchecked: the resources that could not be listed, with the reason.
    """

    metadata: Mapping[Resource, Sequence[Document]] = {}
    custom: Mapping[str, Sequence[Document]] = {}
    crds: Mapping[str, Document] = {}
    nodes: Sequence[Document] = ()
    releases: frozenset[tuple[str, str]] = frozenset()
    unchecked: Mapping[str, str] = {}


def leftovers(found: Found) -> list[Leftover]:
    """Return what is left of trimtab, in the order in which the commands must be run.

    While the operator runs, it removes the finalizers of its resources when they are deleted. Afterwards the list
    contains the finalizers, because a deletion would wait for them.
    """
    installed = [
        _installed(resource, each, found.releases)
        for resource in (*INSTALLED_BY_OLM, *LABELLED)
        for each in found.metadata.get(resource, ())
        if _is_installed(resource, each)
    ]
    running = any(each.kind == DEPLOYMENTS.kind for each in installed)
    written = [
        _object(resource, each)
        for resource in WRITTEN
        for each in found.metadata.get(resource, ())
        if _managers(each) == {WRITER}
    ]
    namespaces = [each for each in installed if each.kind == NAMESPACES.kind]
    return [
        *(left for each in DEFINITIONS for left in _custom(each, found, finalizers=not running)),
        *(each for each in installed if each.kind != NAMESPACES.kind),
        *(_crd(each) for each in DEFINITIONS if each.name in found.crds and not _is_platforms(found.crds[each.name])),
        *written,
        *(left for node in found.nodes for left in _on_node(node)),
        *(
            left
            for resource in NODE_GROUPS
            for each in found.metadata.get(resource, ())
            for left in _annotations(resource, each, sorted(_written_annotations(each)))
        ),
        *namespaces,
    ]


def leftovers_document(left: Sequence[Leftover], unchecked: Mapping[str, str]) -> Document:
    """Return the result as JSON: ``left``, what could not be checked, and ``clean``: whether both are empty."""
    return {
        "apiVersion": API_VERSION,
        "kind": "UninstallCheck",
        "clean": not left and not unchecked,
        "left": [structs.asdict(each) for each in left],
        "unchecked": [{"resource": name, "message": message} for name, message in unchecked.items()],
    }


def _is_installed(resource: Resource, metadata: Document) -> bool:
    labels = metadata.get("labels") or {}
    if resource == API_SERVICES and metadata["name"].endswith(".inspection.trimtab.dev"):
        return True
    if resource in INSTALLED_BY_OLM:
        return metadata["name"].startswith("trimtab.v") or any(key.startswith(_OLM_LABEL) for key in labels)
    return labels.get(NAME_LABEL) in _NAMES or labels.get(_CHART_LABEL, "").startswith("trimtab-")


def _installed(resource: Resource, metadata: Document, releases: frozenset[tuple[str, str]]) -> Leftover:
    annotations = metadata.get("annotations") or {}
    namespace, release = (annotations.get(key, "") for key in _RELEASE)
    left = _object(resource, metadata)
    if (namespace, release) in releases:
        return structs.replace(left, command=f"helm uninstall {release} --namespace {namespace}")
    return left


def _object(resource: Resource, metadata: Document) -> Leftover:
    return _left(resource, metadata, "object", f"kubectl delete {resource.name} {metadata['name']}")


def _left(resource: Resource, metadata: Document, what: str, command: str) -> Leftover:
    namespace = metadata.get("namespace", "")
    return Leftover(
        kind=resource.kind,
        namespace=namespace,
        name=metadata["name"],
        what=what,
        command=command + (f" --namespace {namespace}" if namespace else ""),
    )


def _crd(definition: Definition) -> Leftover:
    return _object(CRDS, {"name": definition.name})


def _is_platforms(crd: Document) -> bool:
    return any(key.startswith(_PLATFORM) for key in crd.get("annotations") or {})


def _custom(definition: Definition, found: Found, *, finalizers: bool) -> Iterable[Leftover]:
    objects = found.custom.get(definition.name, ())
    resource = Resource(definition.group, definition.version, definition.plural, definition.kind)
    platforms = _is_platforms(found.crds.get(definition.name, {}))
    for each in objects:
        ours = [
            name for name in each.get("finalizers") or () if name in _FINALIZERS and not _platforms_own(name, platforms)
        ]
        if ours and finalizers:
            kept = [name for name in each["finalizers"] if name not in ours]
            patch = shlex.quote(json.dumps({"metadata": {"finalizers": kept or None}}))
            command = f"kubectl patch {resource.name} {each['name']} --type=merge -p {patch}"
            yield _left(resource, each, f"finalizer {','.join(ours)}", command)
    if platforms:
        return
    if objects and definition.kind in _MANY:
        yield Leftover(definition.kind, "", "*", "object", f"kubectl delete {resource.name} --all")
        return
    for each in objects:
        yield _object(resource, each)


def _platforms_own(finalizer: str, platforms: bool) -> bool:
    return platforms and finalizer == OPENSHIFT_FINALIZER


def _on_node(node: Document) -> Iterable[Leftover]:
    """Return the fields of a node. The annotations are last, because they show which taints and cordons are ours."""
    metadata = node["metadata"]
    name, annotations = metadata["name"], metadata.get("annotations") or {}
    for taint in node.get("spec", {}).get("taints") or ():
        if _is_our_taint(taint, annotations):
            text = f"{taint['key']}:{taint['effect']}"
            yield _left(NODES, metadata, f"taint {text}", f"kubectl taint nodes {name} {text}-")
    if node.get("spec", {}).get("unschedulable") and annotations.get(CORDONED_BY) == CORDONED_BY_US:
        yield _left(NODES, metadata, "cordon", f"kubectl uncordon {name}")
    for condition in node.get("status", {}).get("conditions") or ():
        if condition["type"].startswith(_PREFIXES):
            deleted = {"status": {"conditions": [{"type": condition["type"], "$patch": "delete"}]}}
            command = f"kubectl patch nodes {name} --subresource=status -p {shlex.quote(json.dumps(deleted))}"
            yield _left(NODES, metadata, f"condition {condition['type']}", command)
    yield from _annotations(NODES, metadata, [key for key in sorted(annotations) if key.startswith(_PREFIXES)])


def _is_our_taint(taint: Document, annotations: Mapping[str, str]) -> bool:
    if taint["key"] == TO_BE_DELETED:
        return REMOVING in annotations and annotations[REMOVING] == taint.get("value", "")
    if taint["key"] == DELETION_CANDIDATE:
        return UNNEEDED_SINCE in annotations
    return bool(taint["key"].startswith(_PREFIXES))


def _annotations(resource: Resource, metadata: Document, keys: Sequence[str]) -> Iterable[Leftover]:
    for key in keys:
        command = f"kubectl annotate {resource.name} {metadata['name']} {key}-"
        yield _left(resource, metadata, f"annotation {key}", command)


def _managers(metadata: Document) -> set[str]:
    return {each.get("manager", "") for each in metadata.get("managedFields") or ()}


def _written_annotations(metadata: Document) -> set[str]:
    """Return the annotations that the operator wrote last, whatever their keys are."""
    written: set[str] = set()
    for each in metadata.get("managedFields") or ():
        if each.get("manager") == WRITER:
            fields = each.get("fieldsV1", {}).get("f:metadata", {}).get("f:annotations", {})
            written |= {key.removeprefix("f:") for key in fields if key != "."}
    return written & set(metadata.get("annotations") or {})

"""Projection of services and of pods' owners, of which the selectors are read, and of DaemonSets.

A large cluster has several ReplicaSets a Deployment, most of them of former templates. Their selectors all differ, in
the hash of the template, so it is keys and values that are shared, not selectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.kube.frozen import NO_LABELS, FrozenMap, Labels
from trimtab.kube.objects import DaemonSet, LabelSelector, ReplicaSet, ReplicationController, Service, StatefulSet
from trimtab.kube.wire import fields
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.pod_spec import project_spec


def project_service(message: Any, interner: Interner) -> Service:
    """Project a service.

    Raises:
        FieldError: where the name is missing.
    """
    return Service(*_identity(message, interner), selector=_labels(message.spec.selector, interner) or None)


def project_replication_controller(message: Any, interner: Interner) -> ReplicationController:
    """Project a ReplicationController.

    Raises:
        FieldError: where the name is missing.
    """
    return ReplicationController(
        *_identity(message, interner), selector=_labels(message.spec.selector, interner) or None
    )


def project_replica_set(message: Any, interner: Interner) -> ReplicaSet:
    """Project a ReplicaSet.

    Raises:
        FieldError: where the name is missing.
    """
    return ReplicaSet(*_identity(message, interner), selector=_label_selector(message.spec, interner))


def project_stateful_set(message: Any, interner: Interner) -> StatefulSet:
    """Project a StatefulSet.

    Raises:
        FieldError: where the name is missing.
    """
    return StatefulSet(*_identity(message, interner), selector=_label_selector(message.spec, interner))


def _identity(message: Any, interner: Interner) -> tuple[str, str, str, str]:
    """Namespace, name, UID and resource version."""
    metadata = message.metadata
    return (
        interner.string(metadata.namespace or "default"),
        fields.required(metadata.name, "metadata.name"),
        metadata.uid,
        metadata.resource_version,
    )


def project_daemon_set(message: Any, interner: Interner) -> DaemonSet:
    """Project a DaemonSet with the pods that it makes.

    Raises:
        FieldError: where the name is missing, or a quantity of the template cannot be read.
    """
    metadata, template = message.metadata, message.spec.template
    try:
        spec = interner.share(project_spec(template.spec, interner))
    except fields.FieldError as error:
        raise fields.FieldError(f"spec.template.{error.path}", error.message) from None
    return DaemonSet(
        namespace=interner.string(metadata.namespace or "default"),
        name=fields.required(metadata.name, "metadata.name"),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        deleted=fields.seconds(metadata, "deletion_timestamp"),
        pod_labels=fields.labels(template.metadata.labels, interner),
        pod_spec=spec,
    )


def _label_selector(spec: Any, interner: Interner) -> LabelSelector | None:
    if not spec.HasField("selector"):
        return None
    selector = spec.selector
    return LabelSelector(
        match_labels=_labels(selector.match_labels, interner),
        match_expressions=fields.requirements(selector.match_expressions),
    )


def _labels(mapping: Mapping[str, str], interner: Interner) -> Labels:
    string = interner.string
    return FrozenMap({string(key): string(value) for key, value in mapping.items()}) if mapping else NO_LABELS

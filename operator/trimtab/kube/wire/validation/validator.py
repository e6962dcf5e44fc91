"""Checking what a read of files brings, each distinct part once."""

from __future__ import annotations

from typing import Any, Final

from trimtab.kube.objects import Pod
from trimtab.kube.wire import json
from trimtab.kube.wire.fields import FieldError
from trimtab.kube.wire.validation.checks import (
    COUNT32,
    COUNT64,
    INT32,
    Check,
    Shape,
    alternatives,
    below,
    each,
    must_be,
)
from trimtab.kube.wire.validation.kinds import KINDS, check_annotations, check_owners
from trimtab.kube.wire.validation.names import DNS_LABEL, SUBDOMAIN, check_labels, is_subdomain
from trimtab.kube.wire.validation.pod import POD_SPEC

PHASES: Final = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
QOS_CLASSES: Final = ("Guaranteed", "Burstable", "BestEffort")
_PHASES: Final = frozenset({"", *PHASES})
_QOS_CLASSES: Final = frozenset({"", *QOS_CLASSES})
_TERMINATED: Final = Shape(json.ContainerStateTerminated, exit_code=INT32)
_STATE: Final = Shape(json.ContainerState, terminated=_TERMINATED)
_CONTAINER_STATUSES: Final = each(Shape(json.ContainerStatus, restart_count=COUNT32, state=_STATE))


class Validator:
    """Remembers what has passed; belongs to one read, and to one interner.

    A file may hold 150,000 pods of a few hundred templates: what pods share by the interner is checked once, and of
    the rest only what differs from pod to pod by its nature.
    """

    __slots__ = ("_annotations", "_labels", "_namespaces", "_nodes", "_owners")

    def __init__(self) -> None:
        # By identity, which is equality for what an interner gives; held, so that no other object gets the number.
        self._labels: dict[int, object] = {}
        self._annotations: dict[int, object] = {}
        self._owners: dict[int, object] = {}
        self._namespaces: set[str] = set()
        self._nodes: set[str] = {""}

    def message(self, kind: str, message: Any) -> None:
        """Check an object of any kind but Pod.

        Raises:
            FieldError: of the first fault.
        """
        KINDS[kind](message)

    def pod_spec(self, message: Any) -> None:
        """Check a pod's spec but for ``nodeName``: what pods of one template share.

        Raises:
            FieldError: of the first fault.
        """
        _check(POD_SPEC, message, "spec")

    def pod(self, message: Any, pod: Pod) -> None:
        """Check what is the pod's own, its spec left out.

        Args:
            message: on the wire.
            pod: the same, projected, whose labels, owners and annotations the interner shares.

        Raises:
            FieldError: of the first fault.
        """
        metadata = message.metadata
        if not is_subdomain(pod.name):
            _check(SUBDOMAIN, pod.name, "metadata.name")
        if pod.namespace not in self._namespaces:
            _check(DNS_LABEL, pod.namespace, "metadata.namespace")
            self._namespaces.add(pod.namespace)
        if id(pod.labels) not in self._labels:
            _check(check_labels, pod.labels, "metadata.labels")
            self._labels[id(pod.labels)] = pod.labels
        if id(pod.annotations) not in self._annotations:
            _check(check_annotations, pod.annotations, "metadata.annotations")
            self._annotations[id(pod.annotations)] = pod.annotations
        if id(pod.owners) not in self._owners:
            _check(check_owners, metadata.owner_references, "metadata.ownerReferences")
            self._owners[id(pod.owners)] = pod.owners
        if metadata.generation:
            _check(COUNT64, metadata.generation, "metadata.generation")
        if pod.node not in self._nodes:
            self._node(pod.node, "spec.nodeName")
        self._status(message.status, pod)

    def _status(self, status: Any, pod: Pod) -> None:
        if pod.nominated_node not in self._nodes:
            self._node(pod.nominated_node, "status.nominatedNodeName")
        if pod.phase not in _PHASES:
            raise below("status.phase", must_be(alternatives(PHASES), pod.phase))
        if status.qos_class not in _QOS_CLASSES:
            raise below("status.qosClass", must_be(alternatives(QOS_CLASSES), status.qos_class))
        if pod.restarts or pod.container_states:
            _check(_CONTAINER_STATUSES, status.container_statuses, "status.containerStatuses")
        if pod.init_restarts or pod.container_states:
            _check(_CONTAINER_STATUSES, status.init_container_statuses, "status.initContainerStatuses")
        if pod.container_states:
            _check(_CONTAINER_STATUSES, status.ephemeral_container_statuses, "status.ephemeralContainerStatuses")

    def _node(self, name: str, path: str) -> None:
        _check(SUBDOMAIN, name, path)
        self._nodes.add(name)


def _check(check: Check, value: Any, path: str) -> None:
    try:
        check(value)
    except FieldError as error:
        raise below(path, error) from None

"""PodNodeSelector: adds the node selector of a namespace to its pods, and checks them against its whitelist.

Sources: k8s.io/kubernetes v1.36, ``plugin/pkg/admission/podnodeselector``, which reads
``scheduler.alpha.kubernetes.io/node-selector``, and OpenShift's ``nodeenv``, which reads ``openshift.io/node-selector``
in namespaces without the former. The messages are those of the plugin that reads the annotation.

Differences from the in-tree plugin:

- The validating webhook also refuses pods that lack the node selector, as ``nodeenv`` does. The in-tree plugin does not
  notice if a webhook has removed it.
- Updates are checked if they change the node selector, which only pods with scheduling gates permit. The plugin of
  Kubernetes 1.11 checks all updates, so it refuses to remove the finalizers of a pod that is older than the annotation.
- An annotation that cannot be parsed refuses pods with status 403. In-tree it is an internal error.

**DaemonSets.** The DaemonSet controller compares nodes with the pod template, to which nothing is added, and pins a pod
to each node that matches. On nodes that do not match the namespace's node selector, the kubelet rejects the pod, and
the controller creates the next one. The rule warns the author of such a DaemonSet. With ``exemptDaemonSetPods`` it
does not apply to pods of DaemonSets that kube-controller-manager creates. An owner reference alone exempts no pod,
because tenants can write owner references.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.admission.requests import DAEMON_SET, UPDATE, Attributes, NamespaceInfo, PodSpec
from trimtab.admission.rules import Refusal, RuleDefaults
from trimtab.admission.users import is_workload_controller
from trimtab.api.placement_admission import (
    POD_NODE_SELECTOR,
    FailurePolicy,
    PodNodeSelector,
    RuleName,
    parse_node_selector,
)
from trimtab.kube.errors import InputError

KUBERNETES_ANNOTATION: Final = "scheduler.alpha.kubernetes.io/node-selector"
OPENSHIFT_ANNOTATION: Final = "openshift.io/node-selector"

CONFLICT: Final = "pod node label selector conflicts with its namespace node label selector"
NOT_EXTENDED: Final = "pod node label selector does not extend its namespace node label selector"
PROJECT_CONFLICT: Final = "pod node label selector conflicts with its project node label selector"
PROJECT_NOT_EXTENDED: Final = "pod node label selector does not extend project node label selector"
WHITELIST_CONFLICT: Final = "pod node label selector labels conflict with its namespace whitelist"

_MAX_CACHED: Final = 4096
"""Maximum length of an annotation whose parsed form is cached."""


class NamespaceSelector(Struct, frozen=True):
    """The node selector of a namespace, and the messages for pods that do not have it.

    Attributes:
        labels: the node labels; empty if the namespace has no node selector.
        conflict: the message for pods that select another value.
        not_extended: the message for pods that lack a label.
    """

    labels: Mapping[str, str]
    conflict: str = CONFLICT
    not_extended: str = NOT_EXTENDED


class PodNodeSelectorRule(RuleDefaults):
    """Adds the node selector of the namespace to pods, and refuses pods that conflict with it or with the whitelist.

    Raises:
        InputError: a node selector in the block is invalid.
    """

    def __init__(self, block: PodNodeSelector) -> None:
        self._default = NamespaceSelector(_configured(block.cluster_default_node_selector))
        self._whitelists = {name: _configured(text) for name, text in block.namespace_whitelists.items()}
        self._check_updates = block.check_updates
        self._exempt_daemon_set_pods = block.exempt_daemon_set_pods
        self.name: RuleName = POD_NODE_SELECTOR
        self.failure_policy: FailurePolicy = block.failure_policy

    def mutate(self, request: Attributes, spec: PodSpec) -> PodSpec:
        """Merge the node selector of the namespace into that of the pod.

        Raises:
            Refusal: the pod conflicts with the node selector of the namespace or with its whitelist, or the annotation
                of the namespace is invalid.
        """
        if not self._applies_to(request):
            return spec
        merged = self._merge(request.namespace, spec)
        return spec if merged == (spec.node_selector or {}) else replace(spec, node_selector=merged)

    def validate(self, request: Attributes) -> Iterator[Refusal]:
        """Check that the final pod has the node selector of its namespace, and labels on the whitelist only."""
        if not self._applies_to(request):
            return
        try:
            merged = self._merge(request.namespace, request.pod.spec)
            if merged != (request.pod.spec.node_selector or {}):
                yield Refusal(self.selector_of(request.namespace).not_extended)
        except Refusal as refusal:
            yield refusal

    def warnings(self, request: Attributes) -> Iterator[str]:
        """Warn the author of a pod template whose pods would be refused, or rejected by kubelets."""
        if request.is_pod or request.same_template or is_workload_controller(request.user):
            return
        if request.kind == DAEMON_SET and self._exempt_daemon_set_pods:
            return
        namespace, spec = request.namespace, request.pod.spec
        try:
            self._merge(namespace, spec)
            labels = self.selector_of(namespace).labels.items()
        except Refusal as refusal:
            yield f"pods of this {request.kind} will be refused in namespace {namespace.name}: {refusal.message}"
            return
        missing = ",".join(sorted(f"{key}={value}" for key, value in labels - (spec.node_selector or {}).items()))
        if request.kind == DAEMON_SET and missing:
            yield (
                f"pods of this DaemonSet get the node selector {missing} of namespace {namespace.name}, but the "
                "DaemonSet controller does not consider it: on nodes without these labels, kubelets reject pods again "
                "and again. Add the labels to the node selector of the pod template"
            )

    def selector_of(self, namespace: NamespaceInfo) -> NamespaceSelector:
        """Return the node selector of a namespace: of an annotation, even if that is empty, or the cluster's default.

        Raises:
            Refusal: the annotation is invalid.
        """
        text = namespace.annotations.get(KUBERNETES_ANNOTATION)
        if text is not None:
            return NamespaceSelector(_annotated(namespace, KUBERNETES_ANNOTATION, text))
        text = namespace.annotations.get(OPENSHIFT_ANNOTATION)
        if text is not None:
            labels = _annotated(namespace, OPENSHIFT_ANNOTATION, text)
            return NamespaceSelector(labels, PROJECT_CONFLICT, PROJECT_NOT_EXTENDED)
        return self._default

    def _applies_to(self, request: Attributes) -> bool:
        if not request.is_pod or request.subresource:
            return False
        if request.operation == UPDATE:
            old = request.old.spec.node_selector if request.old else None
            return self._check_updates and (request.pod.spec.node_selector or {}) != (old or {})
        exempt = self._exempt_daemon_set_pods and request.of_daemon_set and is_workload_controller(request.user)
        return not exempt

    def _merge(self, namespace: NamespaceInfo, spec: PodSpec) -> dict[str, str]:
        selector, own = self.selector_of(namespace), spec.node_selector or {}
        if any(own.get(key, value) != value for key, value in selector.labels.items()):
            raise Refusal(selector.conflict)
        merged = {**selector.labels, **own}
        whitelist = self._whitelists.get(namespace.name)
        if whitelist and not merged.items() <= whitelist.items():
            raise Refusal(WHITELIST_CONFLICT)
        return merged


def _configured(text: str) -> Mapping[str, str]:
    try:
        return parse_node_selector(text)
    except ValueError as error:
        raise InputError(str(error), field="spec.podNodeSelector") from error


def _annotated(namespace: NamespaceInfo, key: str, text: str) -> Mapping[str, str]:
    try:
        return _parsed(text) if len(text) <= _MAX_CACHED else parse_node_selector(text)
    except ValueError as error:
        raise Refusal(f"annotation {key} of namespace {namespace.name} is invalid: {error}") from None


_parsed = lru_cache(maxsize=1024)(parse_node_selector)

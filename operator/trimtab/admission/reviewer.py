"""Applies the rules of a PlacementAdmission to admission requests, without I/O.

    reviewer = Reviewer(spec, own_namespace="trimtab-system")
    decision = reviewer.decide(request, namespace, stage=MUTATE, failure_policy="Fail")

**Mutating webhook.** Every rule sees the pod spec with the changes of the rules before it. The patch is the difference.
The webhook with failure policy Fail also applies :func:`~trimtab.admission.rule_scopes.shared_rules` with Ignore.
**Validating webhook.** Every rule checks the final object, so that a webhook of another operator cannot undo a change.
**Warning webhook.** Every rule warns about pod templates that it admits, but whose pods it would refuse. The failure
policy is always Ignore: a missing warning must not refuse a workload.

In Warn mode nothing is changed or refused. The mutating webhook warns about the changes that it would make. The
validating webhook makes these changes in memory before it checks the object, so that it does not refuse the object
because the changes are missing.
Refusals of the mutating webhook are dropped, because the validating one finds them again.

No rule applies to some requests: other kinds and subresources, exempt namespaces, and mirror pods. A kubelet creates a
mirror pod for a static pod that already runs on its node, so a refusal would only hide the pod from the cluster.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from sys import getsizeof
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, defstruct
from msgspec.structs import replace

from trimtab.admission.patch import json_patch
from trimtab.admission.requests import (
    CREATE,
    EPHEMERAL_CONTAINERS,
    KUBE_SYSTEM,
    MIRROR_ANNOTATION,
    NULL,
    POD,
    REVIEW_PATHS,
    TEMPLATE_PATHS,
    UPDATE,
    Attributes,
    Metadata,
    NamespaceInfo,
    PatchOperation,
    PodSpec,
    PodTemplate,
    UserInfo,
    WireRequest,
    is_null,
    pointer,
)
from trimtab.admission.rule_scopes import MUTATE, VALIDATE, WARN, Stage, shared_rules
from trimtab.admission.rules import AdmissionRule, Refusal, Review
from trimtab.admission.rules.dedicated_nodes import DedicatedNodesRule
from trimtab.admission.rules.extended_resources import ExtendedResourceTolerationRule
from trimtab.admission.rules.node_constraints import PodNodeConstraintsRule
from trimtab.admission.rules.node_selector import KUBERNETES_ANNOTATION, OPENSHIFT_ANNOTATION, PodNodeSelectorRule
from trimtab.admission.rules.special_hardware import SpecialHardwareRule
from trimtab.admission.rules.toleration_restriction import (
    DEFAULTS_ANNOTATION,
    WHITELIST_ANNOTATION,
    PodTolerationRestrictionRule,
)
from trimtab.admission.rules.toleration_seconds import DefaultTolerationSecondsRule, api_server_defaults
from trimtab.admission.users import NODE_PREFIX, is_node
from trimtab.api.placement_admission import POD_NODE_CONSTRAINTS, FailurePolicy, PlacementAdmissionSpec, RuleName
from trimtab.kube.errors import InputError

log = logging.getLogger(__name__)

NODE_SELECTOR: Final = "nodeSelector"

MAX_SHOWN: Final = 200
"""Maximum length of a value in a warning."""

CACHED_REVIEWS: Final = 1024
MAX_CACHED: Final = 4096
"""Maximum number of cached reviews, and maximum size in bytes of a review and its key, see :func:`_size`. Tenants can
therefore fill the cache with 4 MiB, or 4.5 MiB with the dictionary, tuples and structs that contain the texts. The
reviews of larger pods are not cached: with a larger maximum, the same memory would hold fewer reviews of usual pods."""
REFUSAL_BYTES: Final = 512
"""More bytes of memory than a refusal needs, without its message."""

READ_ANNOTATIONS: Final = (KUBERNETES_ANNOTATION, OPENSHIFT_ANNOTATION, DEFAULTS_ANNOTATION, WHITELIST_ANNOTATION)
"""The annotations of namespaces that rules read."""


# --- Decoding ---------------------------------------------------------------------------------------------------------


class _Content(Struct, frozen=True):
    """Decodes whether a pod template has a spec."""

    spec: Raw = NULL


def _workload_decoder(path: Sequence[str]) -> msgspec.json.Decoder[Any]:
    """Return a decoder for objects with a pod template at the path. It leaves the template encoded."""
    found: Any = Raw
    for depth, part in reversed(list(enumerate(path))):
        fields: list[Any] = [(part, Raw, NULL) if found is Raw else (part, found | None, None)]
        if not depth:
            fields.append(("metadata", Metadata | None, None))
        found = defstruct("_".join(("Object", *path[:depth])), fields, frozen=True)
    return msgspec.json.Decoder(found)


_pod_decoder: Final = msgspec.json.Decoder(PodTemplate)
_content_decoder: Final = msgspec.json.Decoder(_Content)
_encoder: Final = msgspec.json.Encoder()
_paths: Final = {**TEMPLATE_PATHS, **REVIEW_PATHS}
_workload_decoders: Final = {path: _workload_decoder(path) for path in set(_paths.values())}


def attributes(request: WireRequest, namespace: NamespaceInfo) -> Attributes | None:
    """Decode the parts of a request that rules use; ``None`` if no rule applies to its kind or subresource.

    Args:
        request: the request.
        namespace: its namespace.

    Raises:
        InputError: a field that rules read has a type that Kubernetes does not permit. A missing field or ``null`` is
            no error.
    """
    group, kind = request.kind.group, request.kind.kind
    is_pod = kind == POD and not group
    path = _paths.get((group, kind))
    if request.operation not in (CREATE, UPDATE) or is_null(request.object) or not (is_pod or path):
        return None
    if request.sub_resource and not (is_pod and request.sub_resource == EPHEMERAL_CONTAINERS):
        return None
    old_object = request.old_object if request.operation == UPDATE else NULL
    try:
        if path is None:
            template, old_template = request.object, old_object
        else:
            metadata, template = _template(request.object, path)
            _, old_template = _template(old_object, path)
            if is_null(template):
                return None
        pod: PodTemplate = _decode(template, _pod_decoder)
        old: PodTemplate | None = None if is_null(old_template) else _decode(old_template, _pod_decoder)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise InputError(f"{kind} cannot be decoded: {error}") from error
    if path is None:
        metadata = pod.metadata
    return Attributes(
        kind=kind,
        group=group,
        operation=request.operation,
        subresource=request.sub_resource,
        name=request.name or metadata.name or metadata.generate_name,
        namespace=namespace,
        user=request.user_info,
        pod=pod,
        old=old,
        path="" if path is None else pointer(path),
        same_template=path is not None and template == old_template,
        controlled=any(each.controller for each in metadata.owner_references or ()),
    )


def _template(raw: Raw, path: tuple[str, ...]) -> tuple[Metadata, Raw]:
    """Return the metadata of a workload, and its pod template; null if the template has no spec."""
    if is_null(raw):
        return Metadata(), NULL
    top = _decode(raw, _workload_decoders[path])
    found: Any = top
    for part in path:
        found = getattr(found, part, NULL)
    if is_null(found) or is_null(_decode(found, _content_decoder).spec):
        found = NULL
    return top.metadata or Metadata(), found


def _decode(raw: Raw, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Decode an object in which fields may be ``null``, which is the same as a missing field in Kubernetes.

    A ``null`` in a node selector is an empty value, as Go decodes it: the label is selected nevertheless.
    """
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        return decoder.decode(msgspec.json.encode(_without_nulls(msgspec.json.decode(raw))))


def _without_nulls(value: Any, *, empty: Any = None) -> Any:
    """Remove map entries that are null, at every depth.

    Null values in a node selector become empty strings. ``empty`` is the replacement for null values in this map;
    ``None`` removes them.
    """
    if isinstance(value, dict):
        values = {key: empty if each is None else each for key, each in value.items()}
        return {
            key: _without_nulls(each, empty="" if key == NODE_SELECTOR else None)
            for key, each in values.items()
            if each is not None
        }
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


# --- Rules ------------------------------------------------------------------------------------------------------------


def compile_rules(spec: PlacementAdmissionSpec) -> list[AdmissionRule]:
    """Return the rules that are configured, in the order of :data:`~trimtab.api.placement_admission.RuleName`.

    Raises:
        InputError: a rule is invalid.
    """
    rules: list[AdmissionRule] = []
    if spec.pod_node_selector is not None:
        rules.append(PodNodeSelectorRule(spec.pod_node_selector))
    if spec.default_toleration_seconds is not None:
        rules.append(DefaultTolerationSecondsRule(spec.default_toleration_seconds))
    if spec.pod_toleration_restriction is not None:
        rules.append(PodTolerationRestrictionRule(spec.pod_toleration_restriction, spec))
    if spec.extended_resource_toleration is not None:
        rules.append(ExtendedResourceTolerationRule(spec.extended_resource_toleration))
    if spec.dedicated_nodes is not None:
        rules.append(DedicatedNodesRule(spec.dedicated_nodes))
    if spec.special_hardware is not None:
        rules.append(SpecialHardwareRule(spec.special_hardware))
    if spec.pod_node_constraints is not None:
        defaults = api_server_defaults(spec.default_toleration_seconds)
        rules.insert(0, PodNodeConstraintsRule(spec.pod_node_constraints, tuple(rules), defaults))
    return rules


class Decision(Struct, frozen=True):
    """What the rules of one webhook decide about one request.

    Attributes:
        review: the results of the rules.
        kind: kind of the object.
        name: its name, or its generateName.
        is_pod: whether the object is a pod.
    """

    review: Review
    kind: str = ""
    name: str = ""
    is_pod: bool = True


class Reviewer:
    """The compiled rules of a PlacementAdmission.

    Rules decide only by the attributes of a request. Fields that no rule reads are dropped before the rules get the
    request: names, identifiers of the user, and most labels and annotations. The remaining fields are the same for
    similar pods, so the last reviews are cached. The key of a review is all that the rules get, as JSON.

    Args:
        spec: the rules.
        own_namespace: the namespace of the operator, which is exempt; ``""`` if it runs outside the cluster.

    Raises:
        InputError: a rule is invalid.
    """

    def __init__(self, spec: PlacementAdmissionSpec, *, own_namespace: str = "") -> None:
        self.rules: Final = tuple(compile_rules(spec))
        self._warn_only = spec.mode == "Warn"
        self._exempt = frozenset({KUBE_SYSTEM, own_namespace, *spec.exempt_namespaces} - {""})
        classes = spec.special_hardware.classes if spec.special_hardware is not None else ()
        self._read_labels = frozenset(key for each in classes for key in each.pod_labels or ())
        self._shared = shared_rules(spec)
        # Not functools.lru_cache of a method: a reference cycle would keep the cache in memory after a change of rules.
        self._reviews: OrderedDict[tuple[bytes, Stage, FailurePolicy], Review] = OrderedDict()

    def is_exempt(self, request: Attributes) -> bool:
        """Return whether no rule applies to a request, because of its namespace or because it is a mirror pod."""
        return request.namespace.name in self._exempt or _is_own_mirror_pod(request)

    def decide(
        self, request: WireRequest, namespace: NamespaceInfo, *, stage: Stage, failure_policy: FailurePolicy
    ) -> Decision:
        """Apply the rules with a failure policy to a request.

        An object that cannot be decoded is refused, whatever the failure policy: otherwise its author could choose to
        be exempt from the rules whose failure policy is Ignore.

        Args:
            request: the request.
            namespace: its namespace.
            stage: :data:`MUTATE`, :data:`VALIDATE` or :data:`WARN`.
            failure_policy: the failure policy of the webhook.
        """
        rules = self._rules(request.kind.group, request.kind.kind, stage, failure_policy)
        kind = request.kind.kind
        empty = Decision(Review(), kind=kind, name=request.name, is_pod=kind == POD)
        try:
            found = attributes(request, namespace) if rules else None
        except InputError as error:
            names = tuple(each.name for each in rules)
            if stage == WARN or namespace.name in self._exempt:
                return replace(empty, review=Review(applied=() if stage == WARN else names))
            refused = ((names[0], Refusal(str(error))),)
            return replace(empty, review=Review(refusals=refused, applied=names[:1]))
        if found is None or self.is_exempt(found):
            return empty
        review = self._cached_review(self._without_unread(found), rules, stage, failure_policy)
        return Decision(review, kind=kind, name=found.name, is_pod=kind == POD)

    def _without_unread(self, found: Attributes) -> Attributes:
        """Drop the fields that no rule reads, in which similar pods may differ.

        Of all rules, only SpecialHardware reads labels. Whether the user may bind pods is not decided here.
        """
        metadata, annotations = found.pod.metadata, found.namespace.annotations
        labels = {key: value for key, value in (metadata.labels or {}).items() if key in self._read_labels}
        owners = tuple(replace(each, name="") for each in metadata.owner_references or ())
        return replace(
            found,
            name="",
            namespace=NamespaceInfo(
                found.namespace.name,
                annotations={key: annotations[key] for key in READ_ANNOTATIONS if key in annotations},
            ),
            user=UserInfo(found.user.username, groups=found.user.groups),
            pod=replace(found.pod, metadata=Metadata(labels=labels, owner_references=owners)),
            old=None if found.old is None else replace(found.old, metadata=Metadata()),
        )

    def _cached_review(
        self, found: Attributes, rules: Sequence[AdmissionRule], stage: Stage, failure_policy: FailurePolicy
    ) -> Review:
        """Return the review of a request from the cache, or apply rules.

        Large requests are reviewed in another thread at the same time. Each access is therefore a single call of the
        dictionary.
        """
        content = _encoder.encode(found)
        if len(content) > MAX_CACHED:
            return self._review(found, rules, stage, failure_policy)
        key = (content, stage, failure_policy)
        review = self._reviews.get(key)
        if review is not None:
            with suppress(KeyError):  # the other thread has dropped it
                self._reviews.move_to_end(key)
            return review
        review = self._review(found, rules, stage, failure_policy)
        if review.failed or _size(content, review) > MAX_CACHED:
            return review
        review = replace(review, patch=_exact(review.patch))
        self._reviews[_exact(content), stage, failure_policy] = review
        if len(self._reviews) > CACHED_REVIEWS:
            self._reviews.popitem(last=False)
        return review

    def _rules(self, group: str, kind: str, stage: Stage, failure_policy: FailurePolicy) -> list[AdmissionRule]:
        rules = [each for each in self.rules if stage == WARN or each.failure_policy == failure_policy]
        if stage == MUTATE and failure_policy == "Fail":
            rules += (each for each in self.rules if each.name in self._shared)
        if (group, kind) in REVIEW_PATHS:
            # Mutating webhooks are not called for these templates, so other rules must not check them.
            rules = [each for each in rules if each.name == POD_NODE_CONSTRAINTS]
        return rules

    def _review(
        self, found: Attributes, rules: Sequence[AdmissionRule], stage: Stage, failure_policy: FailurePolicy
    ) -> Review:
        if stage == WARN:
            return Review(warnings=_warnings(found, rules))
        if stage == VALIDATE:
            return self.validate(found, rules)
        spec, review = self.mutate(found, rules, failure_policy=failure_policy)
        patch = () if self._warn_only else json_patch(found.pod.spec, spec, path=found.path)
        return replace(review, patch=_encoder.encode(patch)) if patch else review

    def mutate(
        self, request: Attributes, rules: Sequence[AdmissionRule], *, failure_policy: FailurePolicy
    ) -> tuple[PodSpec, Review]:
        """Apply the changes of rules, in order. A rule that refuses the request changes nothing.

        If a rule with Ignore fails in the webhook with Fail, it is logged and skipped: an error of the webhook would
        refuse the request.

        Args:
            request: the request.
            rules: the rules.
            failure_policy: the failure policy of the webhook.

        Returns:
            The pod spec with all changes, and the review without a patch.
        """
        spec = request.pod.spec
        refusals: list[tuple[RuleName, Refusal]] = []
        warnings: list[str] = []
        mutated: list[RuleName] = []
        failed: list[RuleName] = []
        for rule in rules:
            try:
                changed = rule.mutate(request, spec)
            except Refusal as refusal:
                refusals.append((rule.name, _without_frames(refusal)))
                continue
            except Exception:
                if rule.failure_policy == failure_policy:
                    raise
                message = "Failed to apply rule %s to a %s in namespace %s; it is skipped (failurePolicy Ignore)"
                log.exception(message, rule.name, request.kind, request.namespace.name)
                failed.append(rule.name)
                continue
            if changed is spec or changed == spec:
                continue
            mutated.append(rule.name)
            if self._warn_only:
                warnings += _would_change(rule.name, json_patch(spec, changed, path=request.path))
            spec = changed
        if spec == request.pod.spec:
            # PodTolerationRestriction drops covered tolerations, and ExtendedResourceToleration adds them again.
            mutated, warnings = [], []
        if refusals and not self._warn_only:
            mutated = []  # no change is stored
        return spec, Review(
            refusals=() if self._warn_only else tuple(refusals),
            warnings=tuple(warnings),
            mutated=tuple(mutated),
            applied=(*mutated, *(name for name, _ in refusals)),
            failed=tuple(failed),
        )

    def validate(self, request: Attributes, rules: Sequence[AdmissionRule]) -> Review:
        """Check the final object of a request with rules, in order."""
        refusals: list[tuple[RuleName, Refusal]] = []
        if self._warn_only:
            spec, conflicts = self._final_spec(request)
            request = replace(request, pod=replace(request.pod, spec=spec))
            refusals += (each for each in conflicts if any(each[0] == rule.name for rule in rules))
        refused = {name for name, _ in refusals}
        for rule in rules:
            if rule.name not in refused:
                refusals += ((rule.name, _without_frames(refusal)) for refusal in rule.validate(request))
        return Review(
            refusals=tuple(refusals),
            warnings=_warnings(request, rules),
            applied=tuple(each.name for each in rules),
        )

    def _final_spec(self, request: Attributes) -> tuple[PodSpec, list[tuple[RuleName, Refusal]]]:
        """Return the pod spec as all mutating webhooks would leave it, and their refusals."""
        spec, refusals = request.pod.spec, []
        for rule in self.rules:
            try:
                spec = rule.mutate(request, spec)
            except Refusal as refusal:
                refusals.append((rule.name, _without_frames(refusal)))
        return spec, refusals


def _without_frames(refusal: Refusal) -> Refusal:
    """Drop the frames of a refusal. They refer to the request, and to the list that contains the refusal."""
    refusal.__context__ = None
    return refusal.with_traceback(None)


def _exact(content: bytes) -> bytes:
    """Return a copy that needs no more memory than its content. msgspec's encoder allocates up to twice as much."""
    return bytes(memoryview(content))


def _size(content: bytes, review: Review) -> int:
    """Return the bytes of memory that the key of a review, its patch, its warnings and its refusals need."""
    messages = [refusal.message for _, refusal in review.refusals]
    return sum(map(getsizeof, (content, review.patch, *review.warnings, *messages))) + REFUSAL_BYTES * len(messages)


def _warnings(request: Attributes, rules: Sequence[AdmissionRule]) -> tuple[str, ...]:
    return tuple(warning for rule in rules for warning in rule.warnings(request))


def _is_own_mirror_pod(request: Attributes) -> bool:
    """Return whether a kubelet creates a mirror pod for its own node.

    Any user can write the annotation, so the user of the request must be the node's kubelet. The NodeRestriction plugin
    requires the same.
    """
    annotations = request.pod.metadata.annotations
    return (
        annotations is not None
        and MIRROR_ANNOTATION in annotations
        and request.is_pod
        and is_node(request.user)
        and request.pod.spec.node_name != ""
        and request.user.username == NODE_PREFIX + request.pod.spec.node_name
    )


def _would_change(rule: RuleName, patch: Sequence[PatchOperation]) -> Iterator[str]:
    for each in patch:
        value = "" if each.value is UNSET else f" with value {msgspec.json.encode(each.value).decode()[:MAX_SHOWN]}"
        yield f"{rule} would {each.op} {each.path}{value}"

"""The webhook configurations that a PlacementAdmission needs, and their registration.

A mutating and a validating webhook exist for each failure policy that a rule has, unless the mutating webhook with
failurePolicy Fail also applies the rules with Ignore, see :func:`~trimtab.admission.rule_scopes.joined_rules`. Their
paths tell the server which rules to apply::

    /mutate/fail      /mutate/ignore       changes of pods and pod templates
    /validate/fail    /validate/ignore     refusals, with the final object after all mutating webhooks
    /warn                                  warnings about pod templates that are admitted; failurePolicy Ignore
    /validate/resources                    objects of trimtab's own kinds

The API server calls a webhook only for requests that may concern one of its rules. It never calls one for kube-system,
the operator's namespace, exempt namespaces, or requests of nodes (mirror pods), so that an outage of the webhooks stops
neither the control plane nor the webhooks themselves.

The chart creates both webhook configurations without webhooks. Server-side apply sets the webhooks, and only if they
differ, so that several replicas can do it. ``helm uninstall`` removes the objects.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from trimtab.admission.requests import CREATE, KUBE_SYSTEM, TEMPLATE_RESOURCES, UPDATE
from trimtab.admission.rule_scopes import MUTATE, VALIDATE, RuleScope, Scope, Stage, scopes_of_webhook
from trimtab.api.base import GROUP
from trimtab.api.placement_admission import FailurePolicy, PlacementAdmissionSpec
from trimtab.kube import verbs
from trimtab.kube.api import Api
from trimtab.kube.errors import InputError
from trimtab.kube.objects.meta import ClusterScoped
from trimtab.kube.resources import MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS, Resource

FIELD_MANAGER: Final = "trimtab-admission"

WARN_PATH: Final = "/warn"
RESOURCES_PATH: Final = "/validate/resources"

DOMAIN: Final = f"placement.{GROUP}"
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""The label of namespaces with their name, which the API server sets."""

TIMEOUTS: Final[Mapping[FailurePolicy, int]] = {"Fail": 5, "Ignore": 3}
"""Seconds for which the API server waits for a webhook. Two SubjectAccessReviews take at most two."""

_FAILURE_POLICIES: Final[tuple[FailurePolicy, ...]] = ("Fail", "Ignore")

_REVIEWS: Final = (
    "podsecuritypolicyreviews",
    "podsecuritypolicyselfsubjectreviews",
    "podsecuritypolicysubjectreviews",
)
_OWN_RESOURCES: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    (GROUP, "v1alpha1", ("deschedulerpolicies", "nodepressurepolicies", "placementadmissions", "schedulerpolicies",
                         "taintmanagers")),
    ("autoscaling.openshift.io", "v1", ("clusterautoscalers",)),
    ("autoscaling.openshift.io", "v1beta1", ("machineautoscalers",)),
)  # fmt: skip

_NOT_A_NODE: Final = {
    "name": "not-a-node",
    "expression": "!(request.userInfo.username.startsWith('system:node:') && has(request.userInfo.groups) && "
    "'system:nodes' in request.userInfo.groups)",
}
"""The NodeRestriction plugin permits kubelets to create only mirror pods of their own static pods."""
_SPEC_CHANGED: Final = {
    "name": "spec-changed",
    "expression": "request.operation != 'UPDATE' || !has(object.spec) || !has(oldObject.spec) || "
    "object.spec != oldObject.spec",
}
"""Controllers often update only annotations of workloads and pods. A PodTemplate has no spec."""
_TEMPLATE_CHANGED: Final = {
    "name": "template-changed",
    "expression": "request.operation != 'UPDATE' || request.resource.resource == 'pods' || !has(object.spec) || "
    "!has(object.spec.template) || !has(oldObject.spec) || !has(oldObject.spec.template) || "
    "object.spec.template != oldObject.spec.template",
}
"""No rule concerns an update that leaves the pod template as it is, such as those that scale a workload. An outage of
the webhooks must not stop them. The template of a CronJob is in another place.
"""
_CHANGED: Final = (_NOT_A_NODE, _SPEC_CHANGED, _TEMPLATE_CHANGED)


class Endpoint(Struct, frozen=True):
    """Where the API server reaches the webhooks: a Service, or a URL outside the cluster.

    Attributes:
        url: base URL (``https://host:port``); ``""`` for a Service.
        service: name of the Service.
        namespace: namespace of the Service.
        port: port of the Service.
    """

    url: str = ""
    service: str = ""
    namespace: str = ""
    port: int = 443

    def client_config(self, path: str, bundle: bytes) -> dict[str, Any]:
        """Return the ``clientConfig`` of a webhook."""
        found: dict[str, Any] = (
            {"url": self.url.rstrip("/") + path}
            if self.url
            else {
                "service": {"name": self.service, "namespace": self.namespace, "path": path, "port": self.port},
            }
        )
        return found | ({"caBundle": base64.b64encode(bundle).decode()} if bundle else {})


class Webhooks(Struct, frozen=True):
    """The webhooks of both configurations.

    Attributes:
        mutating: the items of the MutatingWebhookConfiguration.
        validating: the items of the ValidatingWebhookConfiguration.
    """

    mutating: tuple[dict[str, Any], ...] = ()
    validating: tuple[dict[str, Any], ...] = ()


def webhooks(
    spec: PlacementAdmissionSpec | None,
    endpoint: Endpoint,
    bundle: bytes,
    *,
    own_namespace: str = "",
) -> Webhooks:
    """Return the webhooks that the rules of a PlacementAdmission need.

    Args:
        spec: the rules; ``None`` if there is no PlacementAdmission.
        endpoint: where the API server reaches the webhooks.
        bundle: the ``caBundle``; empty if the certificate is issued by a CA that the API server knows.
        own_namespace: namespace of the operator, which is exempt.
    """
    mutating, validating = ([], []) if spec is None else _of_rules(spec, endpoint, bundle, own_namespace)
    rules = [_rule(group, version, resources, "*") for group, version, resources in _OWN_RESOURCES]
    common = {"failurePolicy": "Ignore", "namespaceSelector": {}, "timeoutSeconds": TIMEOUTS["Ignore"]}
    config = endpoint.client_config(RESOURCES_PATH, bundle)
    validating.append(_webhook(f"resources.{DOMAIN}", config, rules, [_SPEC_CHANGED], common))
    return Webhooks(tuple(mutating), tuple(validating))


def _of_rules(
    spec: PlacementAdmissionSpec, endpoint: Endpoint, bundle: bytes, own_namespace: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    exempt = sorted({KUBE_SYSTEM, *spec.exempt_namespaces, *([own_namespace] if own_namespace else [])})
    selector = {"matchExpressions": [{"key": NAMESPACE_NAME, "operator": "NotIn", "values": exempt}]}
    mutating: list[dict[str, Any]] = []
    validating: list[dict[str, Any]] = []
    stages: tuple[tuple[Stage, list[dict[str, Any]]], ...] = ((MUTATE, mutating), (VALIDATE, validating))
    for policy in _FAILURE_POLICIES:
        # In Warn mode, an outage must not refuse requests either.
        effective: FailurePolicy = "Ignore" if spec.mode == "Warn" else policy
        common = {"failurePolicy": effective, "namespaceSelector": selector, "timeoutSeconds": TIMEOUTS[effective]}
        for stage, found in stages:
            group = scopes_of_webhook(spec, stage, policy)
            if not group:
                continue
            name, path = f"{stage}-{policy.lower()}.{DOMAIN}", f"/{stage}/{policy.lower()}"
            rules = _rules(frozenset().union(*(each.resources(stage) for each in group)))
            found.append(_webhook(name, endpoint.client_config(path, bundle), rules, _conditions(group), common))
    for each in mutating:
        each["reinvocationPolicy"] = "IfNeeded"
    if spec.pod_node_selector is not None:  # it warns about templates, which it never refuses
        common = {"failurePolicy": "Ignore", "namespaceSelector": selector, "timeoutSeconds": TIMEOUTS["Ignore"]}
        templates = _rules({Scope.TEMPLATES, Scope.DAEMON_SETS})
        config = endpoint.client_config(WARN_PATH, bundle)
        validating.append(_webhook(f"warn.{DOMAIN}", config, templates, [*_CHANGED], common))
    return mutating, validating


def _webhook(
    name: str,
    client_config: Mapping[str, Any],
    rules: Sequence[Mapping[str, Any]],
    conditions: Sequence[Mapping[str, str]],
    common: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a webhook with a value for every field, so that the stored one can be compared with it."""
    return {
        "name": name,
        "clientConfig": client_config,
        "rules": rules,
        "matchConditions": conditions,
        "matchPolicy": "Equivalent",
        "objectSelector": {},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **common,
    }


def _rules(scopes: Collection[Scope]) -> list[dict[str, Any]]:
    """Return the rules of a webhook for some resources."""
    rules = []
    if Scope.PODS in scopes:
        rules.append(_rule("", "v1", ("pods",), "Namespaced"))
    if Scope.EPHEMERAL_CONTAINERS in scopes:
        rules.append(_rule("", "v1", ("pods/ephemeralcontainers",), "Namespaced", operations=(UPDATE,)))
    for group, resources in TEMPLATE_RESOURCES if Scope.TEMPLATES in scopes else ():
        rules.append(_rule(group, "v1", resources, "Namespaced"))
    if Scope.DAEMON_SETS in scopes:
        rules.append(_rule("apps", "v1", ("daemonsets",), "Namespaced"))
    if Scope.REVIEWS in scopes:
        rules.append(_rule("security.openshift.io", "v1", _REVIEWS, "Namespaced"))
    return rules


def _rule(
    group: str, version: str, resources: Sequence[str], scope: str, *, operations: Sequence[str] = (CREATE, UPDATE)
) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": list(operations),
        "resources": list(resources),
        "scope": scope,
    }


def _conditions(scopes: Sequence[RuleScope]) -> list[dict[str, str]]:
    """Return the match conditions of a webhook. A false one means that no rule can concern the request."""
    conditions = [*_CHANGED]
    expressions = [each.concerns_pod for each in scopes]
    if all(expressions):
        concerns = " || ".join(dict.fromkeys(f"({each})" for each in expressions))
        conditions.append(
            {"name": "concerns-a-rule", "expression": f"request.resource.resource != 'pods' || {concerns}"}
        )
    return conditions


# ── Registration ────────────────────────────────────────────────────────────────────────────────────────────────────


class WebhookConfiguration(ClusterScoped, frozen=True):
    """A webhook configuration of the API server, with its webhooks as plain data."""

    webhooks: tuple[dict[str, Any], ...] = ()

    @property
    def bundles(self) -> tuple[bytes, ...]:
        """Return the ``caBundle`` of each of trimtab's webhooks; empty for one that is missing or invalid."""
        return tuple(_bundle(each) for each in self.webhooks if str(each.get("name", "")).endswith(f".{DOMAIN}"))


class _WireMetadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class _WireConfiguration(Struct, frozen=True):
    metadata: _WireMetadata
    webhooks: tuple[dict[str, Any], ...] | None = field(default=None)


def decode_configuration(raw: Any) -> WebhookConfiguration:
    """Decode a webhook configuration from JSON.

    Raises:
        InputError: it is not a webhook configuration.
    """
    try:
        found = msgspec.json.decode(raw, type=_WireConfiguration)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not a webhook configuration: {error}") from error
    metadata = found.metadata
    return WebhookConfiguration(metadata.name, metadata.uid, metadata.resource_version, found.webhooks or ())


def differs(stored: WebhookConfiguration | None, wanted: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the stored webhooks of trimtab differ from the wanted ones. Webhooks of others are ignored."""
    return stored is None or _ours(stored) != {each["name"]: each for each in wanted}


def with_additions(
    stored: WebhookConfiguration | None, wanted: Sequence[Mapping[str, Any]]
) -> tuple[Mapping[str, Any], ...]:
    """Return the wanted webhooks with what other programs have added to the stored namespace selectors.

    Platforms add requirements that exempt their own namespaces, for example the admissions enforcer of AKS. They would
    add them again after each write.
    """
    ours = {} if stored is None else _ours(stored)
    return tuple(
        {**each, "namespaceSelector": _extended(each["namespaceSelector"], ours[each["name"]].get("namespaceSelector"))}
        if each["name"] in ours
        else each
        for each in wanted
    )


def _extended(wanted: Mapping[str, Any], stored: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return a namespace selector with the requirements of the stored one that exclude further namespaces."""
    required, found = wanted.get("matchExpressions", []), (stored or {}).get("matchExpressions") or []
    missing = [each for each in required if each not in found]
    kept = [
        each
        for each in found
        if each in required
        or (
            # A requirement for the name may be trimtab's own of an earlier version of exemptNamespaces.
            (each.get("operator") == "NotIn" and not (missing and each.get("key") == NAMESPACE_NAME))
            # All namespaces have a name.
            or (each.get("operator") == "DoesNotExist" and each.get("key") != NAMESPACE_NAME)
        )
    ]
    return {**wanted, "matchExpressions": [*missing, *kept]} if missing or kept else wanted


def _ours(stored: WebhookConfiguration) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in stored.webhooks if str(each.get("name", "")).endswith(f".{DOMAIN}")}


async def apply_webhooks(api: Api, resource: Resource, name: str, wanted: Sequence[Mapping[str, Any]]) -> None:
    """Register the webhooks of one configuration with server-side apply.

    Raises:
        ApiError: the API server refused it, for example because the role has no permission.
        Unreachable: there was no response.
    """
    await verbs.apply(api, resource, name, {"webhooks": list(wanted)}, field_manager=FIELD_MANAGER)


CONFIGURATIONS: Final[tuple[Resource, Resource]] = (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)


def _bundle(webhook: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode((webhook.get("clientConfig") or {}).get("caBundle") or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        return b""

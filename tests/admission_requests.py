"""Admission requests for pods and workloads, and tolerations in short notation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from trimtab.admission.requests import (
    CREATE,
    UPDATE,
    AdmissionReview,
    Attributes,
    NamespaceInfo,
    PodSpec,
    PodTemplate,
    Toleration,
    UserInfo,
    WireRequest,
)
from trimtab.admission.rules import AdmissionRule, Refusal
from trimtab.api.placement_admission import PlacementAdmissionSpec

_TOLERATION: Final = re.compile(r"(\*|[^=:@]+)(?:=([^:@]*))?(?::([A-Za-z]+))?(?:@(-?[0-9]+))?")

NAMESPACE: Final = NamespaceInfo("shop")

GROUPS: Final[Mapping[str, str]] = {
    "ReplicationController": "",
    "PodTemplate": "",
    "Job": "batch",
    "CronJob": "batch",
    "DeploymentConfig": "apps.openshift.io",
}


def wire(
    content: Any,
    *,
    kind: str = "Pod",
    group: str = "",
    old: Any = None,
    user: str = "alice",
    groups: tuple[str, ...] = ("system:authenticated",),
    **fields: Any,
) -> WireRequest:
    """A request as kube-apiserver sends it: an update if there is an ``old`` object, else a creation."""
    request = {
        "uid": "1",
        "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": f"{kind.lower()}s"},
        "operation": "CREATE" if old is None else "UPDATE",
        "namespace": NAMESPACE.name,
        "userInfo": {"username": user, "groups": groups},
        "object": content,
        "oldObject": old,
        "dryRun": False,
        "options": {"kind": "CreateOptions"},
        **fields,
    }
    body = msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    return msgspec.json.decode(body, type=AdmissionReview).request


def nest(template: Any, path: tuple[str, ...]) -> Any:
    """An object that has the template at the path."""
    for part in reversed(path):
        template = {part: template}
    return template


def toleration(text: str) -> Toleration:
    """``key=value:Effect@seconds`` is Equal, and Exists without a value. The key ``*`` is empty."""
    match = _TOLERATION.fullmatch(text)
    assert match is not None, text
    key, value, effect, seconds = match.groups()
    return Toleration(
        key="" if key == "*" else key,
        operator="Exists" if value is None else "Equal",
        value=value or "",
        effect=effect or "",
        toleration_seconds=None if seconds is None else int(seconds),
    )


def tolerations(*texts: str) -> tuple[Toleration, ...]:
    return tuple(map(toleration, texts))


def admission_spec(text: str) -> PlacementAdmissionSpec:
    """The spec of a PlacementAdmission, in YAML."""
    return msgspec.yaml.decode(text, type=PlacementAdmissionSpec)


def pod_spec(*tolerated: str | Toleration, **fields: Any) -> PodSpec:
    """A pod spec with these tolerations. Other fields are as in JSON."""
    given = tuple(toleration(each) if isinstance(each, str) else each for each in tolerated)
    return replace(msgspec.convert(fields, PodSpec), tolerations=given or None)


def container(name: str = "main", *, image: str = "", **resources: Mapping[str, str]) -> dict[str, Any]:
    """A container as in JSON, with ``requests`` and ``limits``."""
    encoded = {
        kind: {key: msgspec.json.encode(each) for key, each in given.items()} for kind, given in resources.items()
    }
    return {
        "name": name,
        "image": image,
        "resources": {kind: {key: msgspec.Raw(each) for key, each in given.items()} for kind, given in encoded.items()},
    }


def request(
    spec: PodSpec | None = None,
    *,
    old: PodSpec | None = None,
    kind: str = "Pod",
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
    user: str = "alice",
    groups: Iterable[str] = ("system:authenticated",),
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **attributes: Any,
) -> Attributes:
    """A request of a user: an update if there is an ``old`` pod spec, else a creation."""
    described = msgspec.convert({"metadata": {"labels": dict(labels or {}), **(metadata or {})}}, PodTemplate)
    given = {
        "group": "" if kind == "Pod" else GROUPS.get(kind, "apps"),
        "operation": CREATE if old is None else UPDATE,
        "old": None if old is None else replace(described, spec=old),
        **attributes,
    }
    return Attributes(
        kind=kind,
        namespace=NamespaceInfo(name=namespace, annotations=dict(annotations or {})),
        user=UserInfo(username=user, groups=tuple(groups)),
        pod=replace(described, spec=spec or PodSpec()),
        **given,
    )


def with_spec(of: Attributes, spec: PodSpec) -> Attributes:
    return replace(of, pod=replace(of.pod, spec=spec))


def mutate(rule: AdmissionRule, of: Attributes) -> PodSpec:
    """The pod spec that the rule makes of a request. Applying the rule again changes nothing."""
    changed = rule.mutate(of, of.pod.spec)
    again = rule.mutate(with_spec(of, changed), changed)
    assert again == changed, "the rule is not idempotent"
    return changed


def refusals(rule: AdmissionRule, of: Attributes) -> list[Refusal]:
    """Why the request is refused: in the mutating webhook, or by validation of what that webhook has made of it."""
    try:
        changed = mutate(rule, of)
    except Refusal as refusal:
        return [refusal]
    return list(rule.validate(with_spec(of, changed)))

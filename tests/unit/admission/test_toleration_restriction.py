"""PodTolerationRestriction: Kubernetes' own cases, annotations, updates, and tolerations that others add."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admission_requests import (
    admission_spec,
    container,
    mutate,
    pod_spec,
    refusals,
    request,
    toleration,
    tolerations,
    with_spec,
)
from trimtab.admission.pod_resources import is_best_effort
from trimtab.admission.requests import Attributes, Toleration
from trimtab.admission.rules import Refusal
from trimtab.admission.rules.toleration_restriction import (
    CONFLICT_WITH_CLUSTER,
    CONFLICT_WITH_NAMESPACE,
    DEFAULTS_ANNOTATION,
    MEMORY_PRESSURE_TOLERATION,
    WHITELIST_ANNOTATION,
    PodTolerationRestrictionRule,
    parse_tolerations,
)
from trimtab.admission.tolerations import MAX_TOLERATIONS, TOO_MANY
from trimtab.api.placement_admission import (
    POD_TOLERATION_RESTRICTION,
    PlacementAdmissionSpec,
    PodToleration,
    PodTolerationRestriction,
)

BEST_EFFORT = [container()]
BURSTABLE = [container(requests={"cpu": "500m"}, limits={"cpu": "1000m"})]
GUARANTEED = [container(requests={"cpu": "1000m"}, limits={"cpu": "1000m"})]

VALUE = "testKey=testValue:NoSchedule"
VALUE_1 = "testKey=testValue1:NoSchedule"
VALUE_2 = "testKey=testValue2:NoSchedule"
MEMORY_PRESSURE = "node.kubernetes.io/memory-pressure:NoSchedule"

UPSTREAM: dict[str, dict[str, Any]] = {
    "cluster default": {"cluster": [VALUE], "merged": [VALUE]},
    "cluster default with pod tolerations": {"cluster": [VALUE], "namespace": [], "pod": [VALUE], "merged": [VALUE]},
    "namespace default": {"namespace": [VALUE], "pod": [VALUE], "merged": [VALUE]},
    "no pod tolerations": {"namespace": [VALUE], "merged": [VALUE]},
    "duplicate key in pod and namespace": {"namespace": [VALUE], "pod": [VALUE_1], "merged": [VALUE, VALUE_1]},
    "conflicting cluster default, overridden by the namespace": {
        "cluster": [VALUE_2],
        "namespace": [],
        "pod": [VALUE_1],
        "merged": [VALUE_1],
    },
    "whitelist is satisfied": {"namespace": [VALUE], "whitelist": [VALUE], "merged": [VALUE]},
    "cluster default, overridden by an empty one": {"cluster": [VALUE], "namespace": [], "merged": []},
    "cluster whitelist, overridden by an empty one": {
        "whitelist": [],
        "cluster_whitelist": [VALUE_1],
        "pod": [VALUE],
        "merged": [VALUE],
    },
    "conflict with the whitelist": {"namespace": [VALUE], "whitelist": [VALUE_1]},
    "Burstable": {
        "containers": BURSTABLE,
        "namespace": [VALUE],
        "whitelist": [],
        "merged": [MEMORY_PRESSURE, VALUE],
    },
    "duplicate key in the pod": {
        "namespace": [],
        "whitelist": [],
        "pod": [VALUE, VALUE_1],
        "merged": [VALUE, VALUE_1],
    },
    "Guaranteed": {
        "containers": GUARANTEED,
        "namespace": [VALUE],
        "whitelist": [],
        "merged": [MEMORY_PRESSURE, VALUE],
    },
}
"""All 13 cases of TestPodAdmission (kubernetes v1.36.3). The pod is refused if there is no ``merged``."""


def api(text: str) -> PodToleration:
    given_ = toleration(text)
    return PodToleration(
        key=given_.key,
        operator=given_.operator,
        value=given_.value,
        effect=given_.effect,
        toleration_seconds=given_.toleration_seconds,
    )


def rule(
    *, cluster: list[str] | None = None, whitelist: list[str] | None = None, allow: bool = False, others: str = "{}"
) -> PodTolerationRestrictionRule:
    block = PodTolerationRestriction(
        default_tolerations=tuple(map(api, cluster or ())),
        tolerations_whitelist=tuple(map(api, whitelist or ())),
        allow_api_server_defaults=allow,
    )
    return PodTolerationRestrictionRule(block, admission_spec(others))


def annotations(namespace: list[str] | None = None, whitelist: list[str] | None = None) -> dict[str, str]:
    lists = {DEFAULTS_ANNOTATION: namespace, WHITELIST_ANNOTATION: whitelist}
    return {
        key: json.dumps([msgspec.to_builtins(toleration(each)) for each in texts])
        for key, texts in lists.items()
        if texts is not None
    }


def messages(of: PodTolerationRestrictionRule, asked: Attributes) -> list[str]:
    return [refusal.message for refusal in refusals(of, asked)]


@pytest.mark.parametrize("case", UPSTREAM.values(), ids=UPSTREAM)
def test_upstream_cases(case: Mapping[str, Any]) -> None:
    restricting = rule(cluster=case.get("cluster"), whitelist=case.get("cluster_whitelist"))
    asked = request(
        pod_spec(*case.get("pod", ()), containers=case.get("containers", BEST_EFFORT)),
        annotations=annotations(case.get("namespace"), case.get("whitelist")),
    )
    if "merged" in case:
        found = mutate(restricting, asked).tolerations or ()
        assert sorted(map(repr, found)) == sorted(map(repr, tolerations(*case["merged"])))
        assert not refusals(restricting, asked)
    else:
        assert messages(restricting, asked) == [CONFLICT_WITH_NAMESPACE]


def test_upstream_ignores_default_tolerations_in_updates() -> None:
    """TestIgnoreUpdatingInitializedPod."""
    spec = pod_spec(VALUE_1)
    asked = request(spec, old=spec, annotations=annotations([VALUE_2]))
    assert mutate(rule(), asked) is spec
    assert not refusals(rule(), asked)


def test_only_pods_are_checked() -> None:
    """TestHandles: creations and updates; of pods and of no subresource."""
    restricting = rule(cluster=["b"], whitelist=["b"])
    for asked in (
        request(pod_spec("a"), kind="Deployment"),
        request(pod_spec("a"), old=pod_spec(), subresource="status"),
    ):
        assert mutate(restricting, asked) is asked.pod.spec
        assert not refusals(restricting, asked)


def test_messages() -> None:
    """Those of the in-tree plugin, word for word."""
    for scope, restricting, listed in (
        ("namespace", rule(), annotations(whitelist=["b"])),
        ("cluster", rule(whitelist=["b"]), {}),
    ):
        (message,) = messages(restricting, request(pod_spec("a"), annotations=listed))
        assert message == (
            f"pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
        )


def test_an_empty_whitelist_permits_everything_and_overrides() -> None:
    assert not refusals(rule(), request(pod_spec("a")))
    assert messages(rule(whitelist=["b"]), request(pod_spec("a"))) == [CONFLICT_WITH_CLUSTER]
    for empty in ("", "[]", "null", " null "):
        asked = request(pod_spec("a"), annotations={WHITELIST_ANNOTATION: empty})
        assert not refusals(rule(whitelist=["b"]), asked)


def test_an_empty_annotation_overrides_the_default_tolerations() -> None:
    for empty in ("", "[]", "null"):
        asked = request(pod_spec("a"), annotations={DEFAULTS_ANNOTATION: empty})
        assert mutate(rule(cluster=["b"]), asked) is asked.pod.spec


def test_narrower_tolerations_are_removed_from_new_pods() -> None:
    asked = request(pod_spec("a=x:NoSchedule", "b"), annotations=annotations(["a"]))
    assert mutate(rule(), asked).tolerations == tolerations("b", "a")
    assert mutate(rule(), request(pod_spec("a=x", "a"))).tolerations == tolerations("a=x", "a"), "nothing is merged"


def test_a_pod_keeps_newer_operators() -> None:
    comparing = Toleration("sla", "Gt", "900", "NoExecute", 30)
    asked = request(pod_spec(comparing), annotations=annotations(["sla=950:NoExecute"]))
    assert mutate(rule(), asked).tolerations == (comparing, toleration("sla=950:NoExecute"))
    listed = annotations(whitelist=["sla=950:NoExecute"])
    assert messages(rule(), request(pod_spec(comparing), annotations=listed)) == [CONFLICT_WITH_NAMESPACE]
    assert not refusals(rule(), request(pod_spec(comparing), annotations=annotations(whitelist=["sla"])))


@pytest.mark.parametrize(
    ("spec", "best_effort"),
    [
        ({}, True),
        ({"containers": BEST_EFFORT}, True),
        ({"containers": BURSTABLE}, False),
        ({"containers": BEST_EFFORT, "initContainers": BURSTABLE}, False),
        ({"containers": [container(limits={"memory": "1Gi"})]}, False),
        ({"containers": [container(requests={"cpu": "0", "memory": "0Mi"})]}, True),
        ({"containers": [container(requests={"cpu": "1n"})]}, False),
        ({"containers": [container(requests={"nvidia.com/gpu": "1", "ephemeral-storage": "1Gi"})]}, True),
        ({"containers": [container(requests={"cpu": "lots"})]}, True),
        ({"containers": BURSTABLE, "resources": {}}, True),
        ({"containers": BEST_EFFORT, "resources": {"limits": {"cpu": msgspec.Raw(b'"1"')}}}, False),
        ({"containers": BEST_EFFORT, "resources": {"requests": {"cpu": msgspec.Raw(b"2")}}}, False),
    ],
)
def test_memory_pressure_is_tolerated_unless_best_effort(spec: dict[str, Any], best_effort: bool) -> None:
    """Quantities are strings or numbers. Pod-level resources, even empty, replace those of the containers."""
    assert is_best_effort(pod_spec(**spec)) is best_effort
    added = () if best_effort else (MEMORY_PRESSURE_TOLERATION,)
    for old in (None, pod_spec(**spec)):
        assert (mutate(rule(), request(pod_spec(**spec), old=old)).tolerations or ()) == added


def test_memory_pressure_must_be_on_the_whitelist_unless_defaults_are_allowed() -> None:
    asked = request(pod_spec("b", containers=BURSTABLE), annotations=annotations(whitelist=["b"]))
    assert messages(rule(), asked) == [CONFLICT_WITH_NAMESPACE]
    assert not refusals(rule(allow=True), asked)
    best_effort = request(pod_spec(MEMORY_PRESSURE), annotations=annotations(whitelist=["b"]))
    assert messages(rule(allow=True), best_effort) == [CONFLICT_WITH_NAMESPACE]


def test_updates_only_add_tolerations() -> None:
    """The API server refuses updates that remove a toleration, even a redundant one."""
    old = pod_spec("a=x", "a", containers=BURSTABLE)
    asked = request(old, old=old, annotations=annotations(["c"]))
    assert mutate(rule(), asked).tolerations == tolerations("a=x", "a", MEMORY_PRESSURE)
    covering = pod_spec("*:NoSchedule", containers=BURSTABLE)
    assert mutate(rule(), request(covering, old=covering)) is covering


def test_updates_check_only_new_tolerations() -> None:
    """Otherwise no user could remove the finalizers of a pod that is older than the whitelist."""
    listed = annotations(whitelist=["b:NoExecute"])
    old = pod_spec("a")
    assert not refusals(rule(), request(old, old=old, annotations=listed))
    assert not refusals(rule(), request(pod_spec("a", "b:NoExecute@5"), old=old, annotations=listed))
    assert messages(rule(), request(pod_spec("a", "c"), old=old, annotations=listed)) == [CONFLICT_WITH_NAMESPACE]
    longer = request(pod_spec("a:NoExecute@9"), old=pod_spec("a:NoExecute@5"), annotations=listed)
    assert messages(rule(), longer) == [CONFLICT_WITH_NAMESPACE]


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("", ()),
        ("[]", ()),
        ('[{"key": "a", "operator": "Exists"}]', tolerations("a")),
        ('[{"Key": "a", "OPERATOR": "Exists"}]', tolerations("a")),
        ('[{"key": "a", "value": null, "operator": "Exists", "later": {"x": [1]}}]', tolerations("a")),
        ('[{"key":"a","value":"x","operator":"Equal","effect":"NoExecute","tolerationSeconds":-1}]',) * 2,
        ("[null]", (Toleration(),)),
    ],
)
def test_annotations_are_parsed_as_leniently_as_in_go(text: str, parsed: Any) -> None:
    if parsed == text:
        parsed = tolerations("a=x:NoExecute@-1")
    assert parse_tolerations(text) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[",
        "[{]",
        "a",
        '"a"',
        '[{"key": 1}]',
        '["a"]',
        '[{"tolerationSeconds": "5"}]',
        '[{"tolerationSeconds": 1.5}]',
        "[{'key': 'a'}]",
        "[" * 100_000,
        '[{"later": ' + "[" * 100_000,
        f"[{'{},' * MAX_TOLERATIONS}{{}}]",
        "\ud800",
    ],
    ids=range(14),
)
def test_pods_are_refused_if_an_annotation_is_invalid(text: str) -> None:
    for key, of in ((DEFAULTS_ANNOTATION, rule(cluster=["a"])), (WHITELIST_ANNOTATION, rule(whitelist=["a"]))):
        (message,) = messages(of, request(pod_spec("a"), namespace="shop", annotations={key: text}))
        assert key in message
        assert "namespace shop" in message
        assert len(message) < 500
    asked = request(pod_spec("a"), old=pod_spec("a"), annotations={DEFAULTS_ANNOTATION: text})
    assert not refusals(rule(), asked), "updates need no default tolerations"


API_SERVER = ("node.kubernetes.io/not-ready:NoExecute@300", "node.kubernetes.io/unreachable:NoExecute@300")
OTHERS = """
defaultTolerationSeconds: {notReadyTolerationSeconds: 60, apiServerDefaultSeconds: 120}
extendedResourceToleration: {ignoredResources: [example.com/license]}
dedicatedNodes: {pools: [{name: a, namespaces: [team-a], taint: {key: dedicated, value: a}}]}
specialHardware: {classes: [{name: ssd, podLabels: {disk: fast}, taint: {key: disk, value: ssd}}]}
"""


@pytest.mark.parametrize(
    ("tolerated", "permitted"),
    [
        (API_SERVER, True),
        (("node.kubernetes.io/not-ready:NoExecute@120", "node.kubernetes.io/not-ready:NoExecute@60"), True),
        (("node.kubernetes.io/not-ready:NoExecute@90",), False),
        (("node.kubernetes.io/not-ready:NoExecute",), False),
        (("example.com/gpu:NoSchedule",), True),
        (("example.com/license:NoSchedule",), False),
        (("example.com/other:NoSchedule",), False),
        (("dedicated=a:NoSchedule",), True),
        (("dedicated:NoSchedule",), False),
        (("disk=ssd:NoSchedule",), True),
        (("disk=ssd:NoExecute",), False),
        ((*API_SERVER, "b"), True),
        ((*API_SERVER, "c"), False),
    ],
)
def test_tolerations_of_kube_apiserver_and_of_other_rules_are_permitted(
    tolerated: tuple[str, ...], permitted: bool
) -> None:
    spec = pod_spec(*tolerated, containers=[container(requests={"example.com/gpu": "1", "example.com/license": "1"})])
    asked = request(spec, namespace="team-a", labels={"disk": "fast"}, annotations=annotations(whitelist=["b"]))
    assert messages(rule(allow=True, others=OTHERS), asked) == ([] if permitted else [CONFLICT_WITH_NAMESPACE])
    if tolerated:
        assert messages(rule(others=OTHERS), asked) == [CONFLICT_WITH_NAMESPACE]


def test_without_other_rules_only_the_defaults_of_kube_apiserver_are_permitted() -> None:
    listed = annotations(whitelist=["b"])
    assert not refusals(rule(allow=True), request(pod_spec(*API_SERVER), annotations=listed))
    for other in ("node.kubernetes.io/not-ready:NoExecute@60", "example.com/gpu:NoSchedule", "dedicated=a:NoSchedule"):
        assert refusals(rule(allow=True), request(pod_spec(other), namespace="team-a", annotations=listed))


def test_the_final_pod_is_checked() -> None:
    """Another webhook may add tolerations after this one."""
    asked = request(pod_spec("b"), annotations=annotations(whitelist=["b"]))
    changed = mutate(rule(), asked)
    assert [each.message for each in rule().validate(with_spec(asked, changed))] == []
    later = with_spec(asked, pod_spec("b", "c"))
    assert [each.message for each in rule().validate(later)] == [CONFLICT_WITH_NAMESPACE]


def test_too_many_tolerations_are_refused_quickly() -> None:
    many = pod_spec(*(f"k{number}" for number in range(50_000)))
    asked = request(many, annotations=annotations(["a"], ["b"]))
    started = time.process_time()
    assert messages(rule(), asked) == [TOO_MANY]
    assert not refusals(rule(), request(many, old=many, annotations=annotations(["a"], ["b"])))
    assert time.process_time() - started < 2


TEXTS = st.lists(
    st.sampled_from(["a", "a=x", "a=x:NoExecute@5", "a:NoExecute", "b", "b:NoSchedule", "*:NoSchedule", *API_SERVER]),
    max_size=5,
)


@given(TEXTS, st.none() | TEXTS, st.none() | TEXTS, st.none() | TEXTS, st.booleans(), st.booleans())
def test_validate_accepts_what_mutate_produced(
    tolerated: list[str],
    old: list[str] | None,
    namespace: list[str] | None,
    whitelist: list[str] | None,
    allow: bool,
    burstable: bool,
) -> None:
    containers = BURSTABLE if burstable else BEST_EFFORT
    asked = request(
        pod_spec(*(old or ()), *tolerated, containers=containers),
        old=None if old is None else pod_spec(*old, containers=containers),
        annotations=annotations(namespace, whitelist),
    )
    restricting = rule(cluster=["a"], whitelist=["b", "a"], allow=allow)
    try:
        changed = mutate(restricting, asked)
    except Refusal:
        return
    assert not list(restricting.validate(with_spec(asked, changed)))
    if old is not None:
        assert set(tolerations(*old)) <= set(changed.tolerations or ())


def test_name_and_failure_policy() -> None:
    restricting = PodTolerationRestrictionRule(PodTolerationRestriction(), PlacementAdmissionSpec())
    assert (restricting.name, restricting.failure_policy) == (POD_TOLERATION_RESTRICTION, "Fail")

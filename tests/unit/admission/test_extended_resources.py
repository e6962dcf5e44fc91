"""ExtendedResourceToleration: Kubernetes' own cases, names of extended resources, ignored resources."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admission_requests import container, mutate, pod_spec, refusals, request, toleration, tolerations
from trimtab.admission.pod_resources import is_extended_resource
from trimtab.admission.rules.extended_resources import ExtendedResourceTolerationRule
from trimtab.api.placement_admission import EXTENDED_RESOURCE_TOLERATION, ExtendedResourceToleration

EK = "example.com/device-ek"
DO = "example.com/device-do"
CPU_CONTAINER = container(requests={"cpu": "2"})
MEMORY_CONTAINER = container(requests={"memory": "2048"})
EK_CONTAINER = container(requests={EK: "1"})
DO_CONTAINER = container(requests={DO: "2"})

UPSTREAM: dict[str, tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]] = {
    "empty pod": ({}, (), ()),
    "container without": ({"containers": [CPU_CONTAINER]}, (), ()),
    "init container without": ({"initContainers": [MEMORY_CONTAINER]}, (), ()),
    "container": ({"containers": [EK_CONTAINER]}, (), (f"{EK}:NoSchedule",)),
    "init container": ({"initContainers": [DO_CONTAINER]}, (), (f"{DO}:NoSchedule",)),
    "existing tolerations are preserved": (
        {"containers": [CPU_CONTAINER, EK_CONTAINER]},
        ("foo=bar:NoSchedule",),
        ("foo=bar:NoSchedule", f"{EK}:NoSchedule"),
    ),
    "several resources, sorted": (
        {"containers": [MEMORY_CONTAINER, EK_CONTAINER], "initContainers": [CPU_CONTAINER, DO_CONTAINER]},
        (),
        (f"{DO}:NoSchedule", f"{EK}:NoSchedule"),
    ),
    "existing correct toleration": (
        {"containers": [CPU_CONTAINER, MEMORY_CONTAINER, EK_CONTAINER]},
        (f"{EK}:NoSchedule",),
        (f"{EK}:NoSchedule",),
    ),
    "same key, other effect and value": (
        {"containers": [CPU_CONTAINER, MEMORY_CONTAINER, EK_CONTAINER]},
        (f"{EK}=foo:NoExecute",),
        (f"{EK}=foo:NoExecute", f"{EK}:NoSchedule"),
    ),
    "wildcard": (
        {"containers": [CPU_CONTAINER, MEMORY_CONTAINER, EK_CONTAINER]},
        ("*",),
        ("*", f"{EK}:NoSchedule"),
    ),
}
"""All 10 cases of TestAdmit (kubernetes v1.36.3): the pod's containers, its tolerations before, and after."""


def rule(*ignored: str) -> ExtendedResourceTolerationRule:
    return ExtendedResourceTolerationRule(ExtendedResourceToleration(ignored_resources=ignored))


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize(("containers", "before", "after"), UPSTREAM.values(), ids=UPSTREAM)
def test_upstream_cases(
    containers: dict[str, Any], before: tuple[str, ...], after: tuple[str, ...], operation: str
) -> None:
    spec = pod_spec(*before, **containers)
    asked = request(spec, old=spec) if operation == "UPDATE" else request(spec)
    assert (mutate(rule(), asked).tolerations or ()) == tolerations(*after)
    assert not refusals(rule(), asked)


def test_only_pods_are_changed() -> None:
    """TestHandles: creations and updates; of pods and of no subresource."""
    spec = pod_spec(containers=[EK_CONTAINER])
    for asked in (request(spec, kind="Job"), request(spec, old=spec, subresource="ephemeralcontainers")):
        assert mutate(rule(), asked) is spec


def test_ignored_resources_and_limits_without_requests() -> None:
    """kube-apiserver copies limits to requests before it calls plugins and webhooks."""
    spec = pod_spec(containers=[EK_CONTAINER, DO_CONTAINER, container(limits={"example.com/other": "1"})])
    assert mutate(rule(EK), request(spec)).tolerations == tolerations(f"{DO}:NoSchedule")


def test_seconds_of_the_same_toleration_are_removed_in_place() -> None:
    spec = pod_spec("a", toleration(f"{EK}:NoSchedule@5"), "b", containers=[EK_CONTAINER])
    assert mutate(rule(), request(spec)).tolerations == tolerations("a", f"{EK}:NoSchedule", "b")


@pytest.mark.parametrize(
    ("name", "extended"),
    [
        ("nvidia.com/gpu", True),
        ("example.com/A_b.c-9", True),
        ("cpu", False),
        ("hugepages-2Mi", False),
        ("kubernetes.io/batch-cpu", False),
        ("attachable.kubernetes.io/x", False),
        ("requests.nvidia.com/gpu", False),
        ("Example.com/gpu", False),
        ("example..com/gpu", False),
        ("example.com/", False),
        ("/gpu", False),
        ("example.com/gpu/0", False),
        ("example.com/gpu\n", False),
        (f"example.com/{'x' * 63}", True),
        (f"example.com/{'x' * 64}", False),
        (f"{'x' * 244}/gpu", True),
        (f"{'x' * 245}/gpu", False),
    ],
)
def test_names_of_extended_resources(name: str, extended: bool) -> None:
    assert is_extended_resource(name) is extended


def test_name_and_failure_policy() -> None:
    assert (rule().name, rule().failure_policy) == (EXTENDED_RESOURCE_TOLERATION, "Ignore")

"""SpecialHardware: which pods use hardware, what they get, and who else may tolerate the taints."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.admission_requests import admission_spec, container, mutate, pod_spec, refusals, request, with_spec
from tests.fixtures.golden import Golden
from tests.unit.admission.test_dedicated_nodes import (
    DAEMON_SETS,
    DEPLOYMENTS,
    IMPOSTORS,
    KINDS,
    OWNED_BY_DAEMON_SET,
    REPLICA_SETS,
)
from trimtab.admission.requests import PodSpec
from trimtab.admission.rules.dedicated_nodes import NODE_NAME_BYPASSES_TAINTS
from trimtab.admission.rules.special_hardware import SpecialHardwareRule
from trimtab.admission.tolerations import MAX_TOLERATIONS, TOO_MANY, tolerations_for
from trimtab.api.placement_admission import SPECIAL_HARDWARE, NodeTaint

CLASSES = """
specialHardware:
  classes:
  - name: gpu
    resources: [nvidia.com/gpu, amd.com/gpu]
    taint: {key: nvidia.com/gpu}
    nodeLabel: {key: accelerator, value: gpu}
    exclusive: true
  - name: ssd
    podLabels: {disk: fast, tier: "1"}
    taint: {key: disktype, value: ssd, effect: PreferNoSchedule}
"""
GPU, SSD = "nvidia.com/gpu=:NoSchedule", "disktype=ssd:PreferNoSchedule"
GPU_TAINT = NodeTaint(key="nvidia.com/gpu")
GPU_AFFINITY: dict[str, Any] = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "accelerator", "operator": "In", "values": ["gpu"]}]},
            ]
        }
    }
}


def gpu(name: str = "nvidia.com/gpu", count: str = "1", *, limit: bool = False) -> dict[str, Any]:
    return container(**{"limits" if limit else "requests": {name: count}})


def rule(text: str = CLASSES) -> SpecialHardwareRule:
    block = admission_spec(text).special_hardware
    assert block is not None
    return SpecialHardwareRule(block)


@pytest.mark.parametrize(
    "using",
    [
        {"containers": [container(), gpu()]},
        {"containers": [gpu(limit=True)]},
        {"containers": [gpu("amd.com/gpu", "2")]},
        {"initContainers": [gpu()]},
        {"resources": gpu()["resources"]},
    ],
)
def test_pods_that_request_a_resource_are_completed(using: dict[str, Any]) -> None:
    assert mutate(rule(), request(pod_spec("x", **using))) == pod_spec("x", GPU, **using, affinity=GPU_AFFINITY)
    assert not refusals(rule(), request(pod_spec("x", **using)))


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"containers": [gpu(count="0")]},
        {"containers": [gpu(count="many")]},
        {"containers": [gpu("nvidia.com/gpu2")]},
        {"ephemeralContainers": [gpu()]},
    ],
)
def test_other_pods_are_neither_completed_nor_admitted_to_exclusive_nodes(other: dict[str, Any]) -> None:
    spec = pod_spec(**other)
    assert mutate(rule(), request(spec)) is spec
    for form in (GPU, "nvidia.com/gpu:NoSchedule", "nvidia.com/gpu", "*", "*:NoSchedule"):
        (refusal,) = refusals(rule(), request(pod_spec(form, **other)))
        assert "nvidia.com/gpu:NoSchedule" in refusal.message
        assert not refusal.unless_may_bind
    assert not refusals(rule(), request(pod_spec("nvidia.com/gpu:NoExecute", SSD, **other)))


def test_refusal_names_taint_and_hardware(golden: Golden) -> None:
    (refusal,) = refusals(rule(), request(pod_spec(GPU)))
    golden(refusal.message)


@pytest.mark.parametrize(
    ("labels", "uses"),
    [
        ({"disk": "fast", "tier": "1", "a": "b"}, True),
        ({"disk": "fast"}, False),
        ({"disk": "slow", "tier": "1"}, False),
    ],
)
def test_pods_need_all_labels(labels: dict[str, str], uses: bool) -> None:
    spec = pod_spec()
    assert mutate(rule(), request(spec, labels=labels)) == (pod_spec(SSD) if uses else spec)


def test_a_class_with_resources_and_labels_has_pods_with_either() -> None:
    either = rule(CLASSES.replace("resources:", "podLabels: {gpu: shared}\n    resources:"))
    assert mutate(either, request(pod_spec(), labels={"gpu": "shared"})) == pod_spec(GPU, affinity=GPU_AFFINITY)
    assert mutate(either, request(pod_spec(containers=[gpu()]))).tolerations == pod_spec(GPU).tolerations


def test_pods_of_two_classes_get_both() -> None:
    changed = mutate(rule(), request(pod_spec(containers=[gpu()]), labels={"disk": "fast", "tier": "1"}))
    assert changed == pod_spec(GPU, SSD, containers=[gpu()], affinity=GPU_AFFINITY)


@pytest.mark.parametrize("kind", KINDS)
def test_of_templates_only_those_of_daemon_sets_are_completed(kind: str) -> None:
    """The DaemonSet controller compares the template with the taints of nodes before it creates pods."""
    asked = request(pod_spec(containers=[gpu()]), kind=kind)
    changed = pod_spec(GPU, containers=[gpu()], affinity=GPU_AFFINITY)
    assert mutate(rule(), asked) == (changed if kind in ("Pod", "DaemonSet") else asked.pod.spec)
    unchanged = replace(asked, operation="UPDATE", old=asked.pod, same_template=kind != "Pod")
    assert mutate(rule(), unchanged) is asked.pod.spec


@pytest.mark.parametrize("kind", KINDS)
def test_templates_of_other_pods_are_refused(kind: str) -> None:
    asked = request(pod_spec("*"), kind=kind)
    assert [refusal.unless_may_bind for refusal in refusals(rule(), asked)] == [kind == "DaemonSet"]
    if kind != "Pod":
        assert not refusals(rule(), replace(asked, operation="UPDATE", old=asked.pod, same_template=True))
        assert refusals(rule(), replace(asked, operation="UPDATE", old=asked.pod))


@pytest.mark.parametrize("user", [REPLICA_SETS, DEPLOYMENTS, *IMPOSTORS])
def test_only_pods_of_daemon_sets_may_tolerate_everything(user: str) -> None:
    """Whether a pod uses hardware does not depend on the user, so that other controllers need no trust."""
    assert refusals(rule(), request(pod_spec("*"), user=user))
    owned = request(pod_spec("*", containers=[gpu(count="0")]), user=user, metadata=OWNED_BY_DAEMON_SET)
    assert bool(refusals(rule(), owned)) is (user not in (REPLICA_SETS, DEPLOYMENTS))
    by_controller = request(pod_spec("*", containers=[gpu()]), user=DAEMON_SETS, metadata=OWNED_BY_DAEMON_SET)
    assert not refusals(rule(), by_controller)
    assert mutate(rule(), by_controller) is by_controller.pod.spec, "it is pinned to a node already"


def test_mirror_pods_are_admitted_unchanged() -> None:
    asked = request(pod_spec("*", nodeName="n1"), user="system:node:n1", groups=["system:nodes"])
    assert mutate(rule(), asked) is asked.pod.spec
    assert not refusals(rule(), asked)


@pytest.mark.parametrize(
    ("new", "old", "refused"),
    [(("*",), ("*",), 0), (("*",), (), 1), (("x",), (), 0), (("*", GPU), ("*",), 1), ((SSD,), (), 0)],
)
def test_updates_of_pods_must_not_add_tolerations(new: tuple[str, ...], old: tuple[str, ...], refused: int) -> None:
    asked = request(pod_spec(*new), old=pod_spec(*old))
    assert mutate(rule(), asked) is asked.pod.spec
    assert len(refusals(rule(), asked)) == refused
    using = request(pod_spec(*new, containers=[gpu()]), old=pod_spec(*old, containers=[gpu()]))
    assert not refusals(rule(), using)


def test_node_names_bypass_the_taints_of_exclusive_classes() -> None:
    for kind in KINDS:
        found = refusals(rule(), request(pod_spec(nodeName="n1"), kind=kind))
        assert [(each.message, each.unless_may_bind) for each in found] == [(NODE_NAME_BYPASSES_TAINTS, True)]
    assert not refusals(rule(), request(pod_spec(nodeName="n1", containers=[gpu()])))
    assert not refusals(rule(), request(pod_spec(nodeName="n1"), user=REPLICA_SETS))
    assert not refusals(rule(), request(pod_spec(nodeName="n1"), old=pod_spec(nodeName="n1")))
    executing = rule(CLASSES.replace("taint: {key: nvidia.com/gpu}", "taint: {key: nvidia.com/gpu, effect: NoExecute}"))
    assert not refusals(executing, request(pod_spec(nodeName="n1"))), "kubelets check these taints"
    assert not refusals(rule(CLASSES.replace("exclusive: true", "exclusive: false")), request(pod_spec(nodeName="n1")))


def test_subresources_are_ignored() -> None:
    asked = request(pod_spec("*"), old=pod_spec(), subresource="ephemeralcontainers")
    assert mutate(rule(), asked) is asked.pod.spec
    assert not refusals(rule(), asked)


def test_too_many_tolerations_are_refused() -> None:
    many = pod_spec(*(f"k{number}" for number in range(MAX_TOLERATIONS + 1)))
    assert [each.message for each in refusals(rule(), request(many))] == [TOO_MANY]
    assert not refusals(rule(), request(many, old=many))


SPECS = st.builds(
    lambda tolerated, using: pod_spec(*tolerated, containers=[gpu(count=using)]),
    st.lists(st.sampled_from([GPU, SSD, "*", "nvidia.com/gpu", "x"]), max_size=3, unique=True),
    st.sampled_from(["0", "1"]),
)


@given(SPECS, st.none() | SPECS, st.sampled_from(["Pod", "Deployment", "DaemonSet"]), st.booleans())
def test_no_pod_tolerates_the_taint_without_using_the_hardware(
    spec: PodSpec, old: PodSpec | None, kind: str, fast: bool
) -> None:
    asked = request(spec, old=old, kind=kind, labels={"disk": "fast", "tier": "1"} if fast else {})
    final = mutate(rule(), asked)
    admitted = not list(rule().validate(with_spec(asked, final)))
    using = (
        bool(spec.containers) and spec.containers[0].resources == pod_spec(containers=[gpu()]).containers[0].resources
    )
    before = set(old.tolerations or ()) if old is not None and kind == "Pod" else set()
    intruding = set(tolerations_for(final.tolerations or (), GPU_TAINT)) - before
    assert admitted is (using or not intruding)


def test_name_and_failure_policy() -> None:
    assert (rule().name, rule().failure_policy) == (SPECIAL_HARDWARE, "Fail")

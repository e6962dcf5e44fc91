"""ClusterAutoscalers and MachineAutoscalers from plain data: errors are reported by field."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import autoscalers
from tests.fixtures.golden import Golden
from trimtab.api.cluster_autoscaler import GPULimit, ResourceRange, ScaleDown
from trimtab.api.crds import DEFINITIONS, crd_files
from trimtab.api.decode import InvalidObject, decode_cluster_autoscaler, decode_machine_autoscaler
from trimtab.api.scalars import parse_go_duration
from trimtab.api.schema import FieldError, structural_schema


def refusal(data: Any) -> InvalidObject:
    decode = decode_machine_autoscaler if data.get("kind") == "MachineAutoscaler" else decode_cluster_autoscaler
    with pytest.raises(InvalidObject) as refused:
        decode(data, source="autoscaler.yaml")
    return refused.value


def test_seed_cluster_autoscaler_is_decoded() -> None:
    spec = decode_cluster_autoscaler(autoscalers.seed()).spec

    limits, down = spec.resource_limits, spec.scaling_down
    assert (spec.pod_priority_threshold, limits.max_nodes_total) == (-10, 24)
    assert (limits.cores, limits.memory) == (ResourceRange(min=8, max=128), ResourceRange(min=4, max=256))
    assert limits.gpus == (GPULimit(type="nvidia.com/gpu", min=0, max=16), GPULimit(type="amd.com/gpu", min=0, max=4))
    assert down.enabled
    assert [
        down.delay_after_add_seconds,
        down.delay_after_delete_seconds,
        down.delay_after_failure_seconds,
        down.unneeded_seconds,
    ] == [600, 300, 30, 300]


@pytest.mark.parametrize("spec", [None, "{}"], ids=["no spec", "an empty one"])
def test_defaults_equal_openshift(spec: str | None) -> None:
    read = decode_cluster_autoscaler(autoscalers.cluster_autoscaler(spec)).spec

    assert read.scale_down is None
    assert read.scaling_down == ScaleDown(enabled=True)
    assert (read.mode, read.pod_priority_threshold, read.max_pod_grace_period) == ("Act", -10, 600)
    assert (read.provision_seconds, read.scale_up.delay_seconds) == (900, 0)
    assert (read.scaling_down.threshold, read.scaling_down.gpu_threshold) == (0.5, 0.5)
    assert (read.scaling_down.unneeded_seconds, read.scaling_down.unready_seconds) == (600, 1200)
    assert (read.scaling_down.delay_after_delete_seconds, read.scaling_down.delay_after_failure_seconds) == (10, 180)
    assert (read.skip_nodes_with_local_storage, read.ignore_daemonsets_utilization) == (True, False)


@pytest.mark.parametrize("spec", autoscalers.ACCEPTED.values(), ids=autoscalers.ACCEPTED)
def test_valid_cluster_autoscaler_is_decoded(spec: str) -> None:
    decode_cluster_autoscaler(autoscalers.cluster_autoscaler(spec))


@pytest.mark.parametrize(("spec", "words"), autoscalers.REFUSED.values(), ids=autoscalers.REFUSED)
def test_invalid_cluster_autoscaler_is_rejected_with_its_field(spec: str, words: tuple[str, ...]) -> None:
    message = str(refusal(autoscalers.cluster_autoscaler(spec)))

    assert message.startswith("autoscaler.yaml: ClusterAutoscaler/default: spec.")
    for word in words:
        assert word in message


@pytest.mark.parametrize(("spec", "field"), autoscalers.UNKNOWN_FIELDS.values(), ids=autoscalers.UNKNOWN_FIELDS)
def test_an_unknown_field_is_refused_by_its_name(spec: str, field: str) -> None:
    (error,) = refusal(autoscalers.cluster_autoscaler(spec)).errors

    assert error.field == field
    assert error.message.startswith("unknown field")


def test_misspelt_field_is_reported_with_the_similar_one(golden: Golden) -> None:
    (error,) = refusal(autoscalers.cluster_autoscaler("{scaleDown: {enabled: true, uneededTime: 5m}}")).errors

    assert error.field == "spec.scaleDown.uneededTime"
    golden(error.message)


@pytest.mark.parametrize("name", ["cluster", "Default", ""])
def test_there_is_one_cluster_autoscaler_and_its_name_is_default(name: str) -> None:
    (error,) = refusal(autoscalers.cluster_autoscaler("{}", name=name)).errors

    assert error.field == "metadata.name"


@pytest.mark.parametrize("spec", autoscalers.TARGETS_ACCEPTED.values(), ids=autoscalers.TARGETS_ACCEPTED)
def test_valid_machine_autoscaler_is_decoded(spec: str) -> None:
    read = decode_machine_autoscaler(autoscalers.machine_autoscaler(spec))

    assert read.key == "default/workers-a"


@pytest.mark.parametrize(("spec", "words"), autoscalers.TARGETS_REFUSED.values(), ids=autoscalers.TARGETS_REFUSED)
def test_invalid_machine_autoscaler_is_rejected_with_its_field(spec: str, words: tuple[str, ...]) -> None:
    message = str(refusal(autoscalers.machine_autoscaler(spec)))

    assert message.startswith("autoscaler.yaml: MachineAutoscaler/workers-a: spec.")
    for word in words:
        assert word in message


def test_all_errors_are_reported_at_once() -> None:
    spec = "{resourceLimits: {cores: {min: 2, max: 1}}, scaleDown: {enabled: true, unneededTime: x, delayAfterAdd: y}}"

    assert [error.field for error in refusal(autoscalers.cluster_autoscaler(spec)).errors] == [
        "spec.resourceLimits.cores.max",
        "spec.scaleDown.delayAfterAdd",
        "spec.scaleDown.unneededTime",
    ]


def test_unknown_status_is_tolerated() -> None:
    data = autoscalers.machine_autoscaler(autoscalers.TARGETS_ACCEPTED["a machine set"])
    ours = {**data, "status": {"lastTargetRef": {"kind": "MachineSet", "name": "a", "apiVersion": "x/v1"}}}
    broken = {**data, "status": {"lastTargetRef": 3}}

    target = decode_machine_autoscaler(ours).status.last_target_ref
    assert target is not None
    assert target.name == "a"
    assert decode_machine_autoscaler(broken).status.last_target_ref is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
        max_leaves=9,
    )
)
def test_random_documents_are_decoded_or_rejected(data: Any) -> None:
    for where in ("spec", "resourceLimits", "scaleDown"):
        manifest = copy.deepcopy(autoscalers.seed())
        if where == "spec":
            manifest["spec"] = data
        else:
            manifest["spec"][where] = data
        errors: tuple[FieldError, ...] = ()
        try:
            decode_cluster_autoscaler(manifest)
        except InvalidObject as error:
            errors = error.errors
        assert all(each.field.startswith("spec") for each in errors)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10m", 600), ("1h30m", 5400), ("0", 0), ("0s", 0), ("1.5h", 5400), ("500ms", 0.5), ("3us", 3e-6), ("3µs", 3e-6)],
)
def test_durations_are_parsed_like_go(text: str, seconds: float) -> None:
    assert parse_go_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "-5m", "+5m", "5 m", "m", "1d", ".5h", "1.h", "8761h", "5m\n", "5M", "٣m"])
def test_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be"):
        parse_go_duration(text)


def test_all_kinds_but_those_of_optional_controllers_are_installed_by_default() -> None:
    assert set(crd_files()) - set(crd_files(by_default=True)) == {
        "trimtab.dev_nodepressurepolicies.yaml",
        "trimtab.dev_placementadmissions.yaml",
        "trimtab.dev_schedulerpolicies.yaml",
    }


def test_every_field_is_openshifts_or_marked_as_trimtabs() -> None:
    """What of OpenShift's fields there must be, and nothing else that does not say so."""
    openshift = {
        "": "resourceLimits scaleDown scaleUp maxPodGracePeriod maxNodeProvisionTime podPriorityThreshold "
        "balanceSimilarNodeGroups balancingIgnoredLabels ignoreDaemonsetsUtilization skipNodesWithLocalStorage "
        "expanders enforceNodeGroupMinSize startupTaints logVerbosity",
        "resourceLimits": "maxNodesTotal cores memory gpus",
        "scaleDown": "enabled delayAfterAdd delayAfterDelete delayAfterFailure unneededTime utilizationThreshold "
        "cordonNodeBeforeTerminating",
        "scaleUp": "newPodScaleUpDelay",
    }
    definition = next(each for each in DEFINITIONS if each.kind == "ClusterAutoscaler")
    spec = structural_schema(definition.type)["properties"]["spec"]
    for part, names in openshift.items():
        properties = spec["properties"][part]["properties"] if part else spec["properties"]
        ours = {name for name, field in properties.items() if "does not exist in OpenShift's" in field["description"]}
        assert set(properties) - ours == set(names.split())

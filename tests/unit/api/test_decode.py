"""DeschedulerPolicies from plain data: valid ones are decoded, invalid ones are reported by field."""

from __future__ import annotations

import copy
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests import policies
from tests.fixtures.golden import Golden
from trimtab.api.decode import InvalidObject, decode_policy, read_policy
from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.descheduler_status import DeschedulerStatus
from trimtab.api.schema import FieldError, check, structural_schema
from trimtab.api.strategies import PREFERRED, REQUIRED
from trimtab.kube.errors import InputError

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "policies").glob("*.yaml"))


def refusal(data: Any) -> InvalidObject:
    with pytest.raises(InvalidObject) as refused:
        decode_policy(data, source="policy.yaml")
    return refused.value


def test_seed_strategies_are_decoded() -> None:
    strategies = decode_policy(policies.manifest({"strategies": policies.seed_strategies()})).spec.strategies

    assert [name for name, _ in strategies.enabled()] == [
        "LowNodeUtilization",
        "RemovePodsViolatingInterPodAntiAffinity",
        "RemovePodsViolatingNodeAffinity",
    ]
    assert strategies.low_node_utilization is not None
    limits = strategies.low_node_utilization.params.node_resource_utilization_thresholds
    assert limits is not None
    assert (limits.thresholds["memory"], limits.target_thresholds["pods"], limits.number_of_nodes) == (20, 50, 3)
    assert strategies.node_affinity is not None
    assert strategies.node_affinity.params.node_affinity_type == (REQUIRED,)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_policies_are_valid(path: Path) -> None:
    policy = decode_policy(yaml.safe_load(path.read_text()), source=str(path))

    assert policy.name == path.stem.replace(".", "-")


def test_examples_exist() -> None:
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize("spec", policies.ACCEPTED.values(), ids=policies.ACCEPTED)
def test_valid_policy_round_trips(spec: str) -> None:
    policy = decode_policy(policies.manifest(spec))

    assert decode_policy(policies.manifest(msgspec.to_builtins(policy.spec))).spec == policy.spec


@pytest.mark.parametrize(("spec", "words"), policies.REFUSED.values(), ids=policies.REFUSED)
def test_invalid_policy_is_rejected_like_the_api_server(spec: str, words: tuple[str, ...]) -> None:
    line = str(refusal(policies.manifest(spec)))

    assert line.startswith("policy.yaml: DeschedulerPolicy/test: spec.")
    for word in words:
        assert word in line


@pytest.mark.parametrize(("spec", "field"), policies.UNKNOWN_FIELDS.values(), ids=policies.UNKNOWN_FIELDS)
def test_an_unknown_field_is_refused(spec: str, field: str) -> None:
    error = refusal(policies.manifest(spec))

    assert error.field == field
    assert error.message.startswith("unknown field")


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("{strategies: {RemoveDuplicate: {}}}", "did you mean RemoveDuplicates?"),
        ("{strategies: {RemoveDuplicates: {enable: true}}}", "did you mean enabled?"),
        (policies.with_duplicates("limits: {per_node: 1}"), "did you mean perNode?"),
        (policies.with_duplicates("Mode: Act"), "did you mean mode?"),
        (policies.with_duplicates("maximum: 1"), "unknown field; allowed: strategies, mode"),
    ],
)
def test_misspelt_field_is_reported_with_the_correct_name(spec: str, hint: str) -> None:
    assert hint in refusal(policies.manifest(spec)).message


def test_all_errors_are_reported_with_file_object_and_field(golden: Golden) -> None:
    error = refusal(
        policies.manifest(
            "{mode: act, limits: {perNode: 0}, strategies: {LowNodeUtilization: {params: "
            "{nodeResourceUtilizationThresholds: {targetThresholds: {cpu: 120}}}}}}"
        )
    )

    place = "spec.strategies.LowNodeUtilization.params.nodeResourceUtilizationThresholds"
    assert [each.field for each in error.errors] == [
        "spec.mode",
        "spec.limits.perNode",
        f"{place}.targetThresholds.cpu",
        f"{place}.thresholds",
    ]
    golden(str(error))
    assert (error.source, error.object, error.field) == ("policy.yaml", "DeschedulerPolicy/test", "spec.mode")
    assert isinstance(error, InputError)


def without(data: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != key}


GOOD = policies.manifest("{strategies: {RemoveDuplicates: {}}}")


@pytest.mark.parametrize(
    ("data", "field", "message"),
    [
        ([], "", "must be a mapping"),
        (None, "", "must be a mapping"),
        (without(GOOD, "apiVersion"), "apiVersion", "is required: trimtab.dev/v1alpha1"),
        (GOOD | {"apiVersion": "trimtab.dev/v1"}, "apiVersion", "must be trimtab.dev/v1alpha1, not trimtab.dev/v1"),
        (GOOD | {"kind": "Policy"}, "kind", "must be DeschedulerPolicy, not Policy"),
        (GOOD | {"strategies": {}}, "strategies", "unknown field; allowed: apiVersion, kind, metadata, spec, status"),
        (without(GOOD, "metadata"), "metadata.name", "is required"),
        (GOOD | {"metadata": {"name": ""}}, "metadata.name", "is required"),
        (without(GOOD, "spec"), "spec", "is required"),
        (GOOD | {"spec": None}, "spec", "must be a mapping, not empty"),
        (GOOD | {"spec": {"strategies": []}}, "spec.strategies", "must be a mapping, not a list"),
        (
            GOOD | {"spec": {1: 2, "strategies": {"RemoveDuplicates": {}}}},
            "spec",
            "has the key 1, which must be a string",
        ),
    ],
)
def test_non_policy_is_rejected(data: Any, field: str, message: str) -> None:
    error = refusal(data)

    assert (error.field, error.message[: len(message)]) == (field, message)
    assert len(error.errors) == 1


@pytest.mark.parametrize("status", [None, {}, {"conditions": "later version"}, {"evicted": "many"}, {"new": 1}, 3])
def test_invalid_status_counts_as_empty(status: Any) -> None:
    assert decode_policy(GOOD | {"status": status}).status == DeschedulerStatus()


def test_unread_metadata_is_ignored() -> None:
    metadata = {"name": "a", "uid": "u", "generation": 3, "labels": {"a": "b"}, "managedFields": [{}]}
    policy = decode_policy(GOOD | {"metadata": metadata})

    assert (policy.metadata.uid, policy.metadata.generation) == ("u", 3)


def test_a_strategy_that_is_not_listed_does_not_run() -> None:
    policy = decode_policy(
        policies.manifest("{strategies: {RemoveDuplicates: {}, LowNodeUtilization: {enabled: false}}}")
    )

    assert [name for name, _ in policy.spec.strategies] == ["RemoveDuplicates", "LowNodeUtilization"]
    assert [name for name, _ in policy.spec.strategies.enabled()] == ["RemoveDuplicates"]


def test_node_affinity_type_defaults_to_required() -> None:
    spec = "{strategies: {RemovePodsViolatingNodeAffinity: %s}}"
    plain = decode_policy(policies.manifest(spec % "{}")).spec.strategies.node_affinity
    preferred = decode_policy(policies.manifest(spec % f"{{params: {{nodeAffinityType: [{PREFERRED}]}}}}"))

    assert plain is not None
    assert plain.params.node_affinity_type == (REQUIRED,)
    assert preferred.spec.strategies.node_affinity is not None
    assert preferred.spec.strategies.node_affinity.params.node_affinity_type == (PREFERRED,)


@pytest.mark.parametrize(
    ("value", "schema", "errors"),
    [
        (3.0, {"type": "integer"}, ()),
        (3.5, {"type": "integer"}, ("must be a whole number, not 3.5",)),
        (True, {"type": "integer"}, ("must be a whole number, not true",)),
        (float("nan"), {"type": "number"}, ("must be a number, not nan",)),
        (float("inf"), {"type": "integer"}, ("must be a whole number, not inf",)),
        ("a\n", {"type": "string", "pattern": "^a$"}, ('"a\n" is invalid: must match the pattern ^a$',)),
        ("ab", {"type": "string", "maxLength": 1}, ("must have at most 1 characters, not 2",)),
        ("x" * 99, {"type": "integer"}, (f'must be a whole number, not "{"x" * 76}…',)),
        (
            {"a": 1},
            {"type": "object", "maxProperties": 0, "additionalProperties": {}},
            ("must have at most 0 entries, not 1",),
        ),
    ],
)
def test_scalars_are_validated_like_the_api_server(value: Any, schema: dict[str, Any], errors: tuple[str, ...]) -> None:
    assert check(value, schema, path="x") == tuple(FieldError("x", error) for error in errors)


def test_special_keys_are_in_brackets() -> None:
    spec = policies.low_node("thresholds: {nvidia.com/gpu: 120}, targetThresholds: {cpu: 50}")

    assert refusal(policies.manifest(spec)).field.endswith(".thresholds[nvidia.com/gpu]")


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3),
    max_leaves=5,
)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything in a document."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key, item in value.items():
            found += leaves(item, (*path, key))
    return found


FULL = policies.manifest(
    {"strategies": policies.seed_strategies(), "limits": {"perNode": 1}, "schedule": {"cron": "0 4 * * *"}}
)


@given(path=st.sampled_from(leaves(FULL)), value=junk)
def test_random_values_are_decoded_or_rejected_with_a_field(path: tuple[Any, ...], value: Any) -> None:
    data = copy.deepcopy(FULL)
    place: Any = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value

    policy, errors = read_policy(data)

    assert (policy is None) == bool(errors)
    assert all(error.message for error in errors)


@given(value=junk)
def test_values_valid_by_schema_can_be_decoded(value: Any) -> None:
    """No fault gets past the check to where only a bare decoder would tell it."""
    if not check(value, structural_schema(DeschedulerPolicySpec)):
        policy, errors = read_policy(GOOD | {"spec": value})
        assert policy is not None
        assert not errors


def test_read_only_mapping_is_decoded() -> None:
    """Kopf hands out views of objects, not plain dictionaries."""
    view = MappingProxyType(
        {key: MappingProxyType(item) if isinstance(item, dict) else item for key, item in GOOD.items()}
    )

    assert decode_policy(view).name == "test"


@pytest.mark.parametrize("name", [5, "Spread", "a b", "a/b", ".a", "a..b", "-a", "a" * 254, ["a"]])
def test_invalid_object_name_is_rejected(name: Any) -> None:
    data = policies.manifest({"strategies": policies.seed_strategies()})
    data["metadata"]["name"] = name
    assert refusal(data).field == "metadata.name"

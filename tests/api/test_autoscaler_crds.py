"""The CRDs of the autoscalers on a real API server: it rejects by itself what the decoder of files rejects."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import autoscalers
from tests.fixtures.crds import (
    APPLY,
    JSON_PATCH,
    MERGE,
    VALIDATION,
    assert_decoder_accepts_what_is_stored,
    assert_same_verdict,
    create,
    object_path,
)
from tests.fixtures.crds import client as client
from tests.mutations import VALUES, mutate, paths
from tests.strategies import examples
from trimtab.api.base import status_patch
from trimtab.api.cluster_autoscaler_status import (
    MAX_GROUPS,
    ClusterAutoscalerStatus,
    KeptNode,
    LastError,
    LastIteration,
    NodeGroupStatus,
    PendingPods,
    ReasonCount,
    UnneededNode,
)
from trimtab.api.conditions import READY, set_condition
from trimtab.api.decode import decode_cluster_autoscaler, decode_machine_autoscaler
from trimtab.api.machine_autoscaler import MachineAutoscalerStatus, TargetReference
from trimtab.api.scalars import to_time
from trimtab.kube.api import Invalid
from trimtab_local.client import Client


@pytest.mark.parametrize("validation", VALIDATION)
def test_the_openshift_crd_of_the_seed_installs_unchanged(client: Client, validation: str) -> None:
    created = create(client, autoscalers.seed(), validation=validation)

    assert decode_cluster_autoscaler(created).spec == decode_cluster_autoscaler(autoscalers.seed()).spec
    assert created["spec"].items() >= {"podPriorityThreshold": -10, "mode": "Act"}.items()
    assert created["spec"]["resourceLimits"] == autoscalers.seed()["spec"]["resourceLimits"]
    assert created["spec"]["scaleDown"].items() >= autoscalers.seed()["spec"]["scaleDown"].items()


@pytest.mark.parametrize("spec", [None, *autoscalers.ACCEPTED.values()], ids=["no spec", *autoscalers.ACCEPTED])
def test_valid_cluster_autoscaler_round_trips(client: Client, spec: str | None) -> None:
    manifest = autoscalers.cluster_autoscaler(spec)

    assert decode_cluster_autoscaler(create(client, manifest)).spec == decode_cluster_autoscaler(manifest).spec


@pytest.mark.parametrize("spec", autoscalers.TARGETS_ACCEPTED.values(), ids=autoscalers.TARGETS_ACCEPTED)
def test_valid_machine_autoscaler_round_trips(client: Client, spec: str) -> None:
    manifest = autoscalers.machine_autoscaler(spec)

    assert decode_machine_autoscaler(create(client, manifest)).spec == decode_machine_autoscaler(manifest).spec


BAD = [
    *((autoscalers.cluster_autoscaler(spec), words) for spec, words in autoscalers.REFUSED.values()),
    *((autoscalers.machine_autoscaler(spec), words) for spec, words in autoscalers.TARGETS_REFUSED.values()),
]
BAD_IDS = [*autoscalers.REFUSED, *autoscalers.TARGETS_REFUSED]


@pytest.mark.parametrize("validation", ["Strict", "Ignore", ""])
@pytest.mark.parametrize(("manifest", "words"), BAD, ids=BAD_IDS)
def test_invalid_autoscaler_is_rejected_for_every_field_validation_mode(
    client: Client, manifest: dict[str, Any], words: tuple[str, ...], validation: str
) -> None:
    with pytest.raises(Invalid) as refused:
        create(client, manifest, validation=validation)

    assert words[0].removeprefix("spec.") in refused.value.message


@pytest.fixture
def good_ones(client: Client) -> Iterator[dict[str, dict[str, Any]]]:
    """A valid object of each kind in the API server."""
    made = {kind: create(client, manifest, dry_run=False) for kind, manifest in GOOD.items()}
    yield made
    for each in made.values():
        client.request("DELETE", object_path(each))


def test_update_to_invalid_autoscaler_is_rejected(client: Client, good_ones: dict[str, dict[str, Any]]) -> None:
    """By PUT or PATCH: the API server skips the validation of unchanged fields only."""
    wrong = []
    for what, (manifest, words) in zip(BAD_IDS, BAD, strict=True):
        good = good_ones[manifest["kind"]]
        rebuilt = {**good, "spec": manifest["spec"]}
        patch = [{"op": "replace", "path": "/spec", "value": manifest["spec"]}]
        for method, body, content_type in (("PUT", rebuilt, "application/json"), ("PATCH", patch, JSON_PATCH)):
            try:
                client.request(method, object_path(good), body, content_type=content_type, params={"dryRun": "All"})
            except Invalid as error:
                if words[0].removeprefix("spec.") not in error.message:
                    wrong.append(f"{what} by {method} is reported as {error.message}")
            else:
                wrong.append(f"{what} by {method} is taken")
    assert not wrong


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (autoscalers.REFUSED["OpenShift's own slip"][0], "is not a valid field; use unneededTime"),
        (autoscalers.REFUSED["fewer cores at most than at least"][0], "must be at least min"),
    ],
    ids=["the slip", "limits"],
)
def test_server_side_apply_of_invalid_autoscaler_is_rejected(
    client: Client, good_ones: dict[str, dict[str, Any]], spec: str, words: str
) -> None:
    params = {"dryRun": "All", "fieldManager": "user", "force": "true", "fieldValidation": "Ignore"}
    manifest = autoscalers.cluster_autoscaler(spec)
    with pytest.raises(Invalid, match=words):
        client.request("PATCH", object_path(good_ones[manifest["kind"]]), manifest, content_type=APPLY, params=params)


@pytest.mark.parametrize("name", ["cluster", "default-2"])
def test_cluster_autoscaler_not_named_default_is_rejected(client: Client, name: str) -> None:
    with pytest.raises(Invalid, match="must be default"):
        create(client, autoscalers.cluster_autoscaler("{}", name=name))


def test_generate_name_is_rejected(client: Client) -> None:
    manifest = autoscalers.cluster_autoscaler("{}")
    manifest["metadata"] = {"generateName": "default-"}
    with pytest.raises(Invalid, match="must be default"):
        create(client, manifest)


@pytest.mark.parametrize("validation", [*VALIDATION, ""])
def test_misspelled_openshift_field_is_rejected_with_the_right_name(client: Client, validation: str) -> None:
    """OpenShift's example has unneededTime with one n; its API server prunes that field and the default applies."""
    seed = autoscalers.seed()
    seed["spec"]["scaleDown"]["uneededTime"] = seed["spec"]["scaleDown"].pop("unneededTime")
    with pytest.raises(Invalid) as refused:
        create(client, seed, validation=validation)
    assert "spec.scaleDown.uneededTime" in refused.value.message
    assert "use unneededTime" in refused.value.message


@pytest.mark.parametrize(("spec", "field"), autoscalers.UNKNOWN_FIELDS.values(), ids=autoscalers.UNKNOWN_FIELDS)
def test_unknown_field_is_rejected_with_strict_field_validation(client: Client, spec: str, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        create(client, autoscalers.cluster_autoscaler(spec))

    assert f'unknown field "{field}"' in refused.value.message


GOOD = {
    "ClusterAutoscaler": autoscalers.cluster_autoscaler(autoscalers.EVERYTHING),
    "MachineAutoscaler": autoscalers.machine_autoscaler(autoscalers.TARGETS_ACCEPTED["a machine set"]),
}
PLACES = [(kind, path) for kind, manifest in GOOD.items() for path in paths(manifest["spec"])[1:]]
DECODERS: dict[str, Callable[..., Any]] = {
    "ClusterAutoscaler": decode_cluster_autoscaler,
    "MachineAutoscaler": decode_machine_autoscaler,
}


@pytest.mark.usefixtures("client")
@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    place=st.sampled_from(PLACES),
    value=st.sampled_from([*VALUES, "0.5", "0", "1h1h", "Enabled", "Random", "MachineSet", ["Random", "Random"]]),
    change=st.sampled_from(["set", "add", "drop"]),
    key=st.sampled_from(["enabled", "uneededTime", "unneededTime", "min", "max", "type", "kind", "apiVersion", "x"]),
)
def test_decoder_and_api_server_accept_the_same_objects(
    client: Client, place: tuple[str, Any], value: Any, change: str, key: str
) -> None:
    kind, path = place
    manifest = copy.deepcopy(GOOD[kind])
    mutate(manifest["spec"], path, value, change, key)
    assert_same_verdict(client, manifest, DECODERS[kind])


MUTATION = st.tuples(
    st.sampled_from(PLACES),
    st.sampled_from([*VALUES, "0.5", "0", "1h1h", "-1s", "Enabled", "Random", "MachineSet", ["Random", "Random"]]),
    st.sampled_from(["set", "add", "drop"]),
    st.sampled_from(["enabled", "uneededTime", "unneededTime", "min", "max", "type", "kind", "apiVersion", "x"]),
)


@pytest.mark.usefixtures("client")
@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations=st.lists(MUTATION, min_size=1, max_size=3))
def test_decoder_accepts_everything_the_api_server_stores(client: Client, mutations: list[Any]) -> None:
    (kind, _), *_ = mutations[0]
    manifest = copy.deepcopy(GOOD[kind])
    for (of, path), value, change, key in mutations:
        if of == kind:
            mutate(manifest["spec"], path, value, change, key)
    assert_decoder_accepts_what_is_stored(client, manifest, DECODERS[kind])


@pytest.mark.parametrize("kind", GOOD)
def test_status_round_trips(client: Client, kind: str) -> None:
    created = create(client, GOOD[kind], dry_run=False)
    path = object_path(created)
    status = full_status() if kind == "ClusterAutoscaler" else machine_status()
    try:
        written = client.request("PATCH", f"{path}/status", {"status": status_patch(status)}, content_type=MERGE)
    finally:
        client.request("DELETE", path)

    assert msgspec.convert(written["status"], type(status)) == status
    assert DECODERS[kind](written).status == status


def machine_status() -> MachineAutoscalerStatus:
    conditions = set_condition((), READY, True, reason="AllWell", message="ok", now=0, generation=1)
    target = TargetReference(kind="MachineSet", name="a", api_version="machine.openshift.io/v1beta1")
    return MachineAutoscalerStatus(observed_generation=1, conditions=conditions, last_target_ref=target, replicas=0)


def full_status() -> ClusterAutoscalerStatus:
    """A status of maximum size, which the API server and etcd must accept."""
    when = to_time(1_795_176_000)
    long = "x" * 1024
    return ClusterAutoscalerStatus(
        observed_generation=1,
        conditions=set_condition((), READY, True, reason="AllWell", message="ok", now=0, generation=1),
        last_iteration=LastIteration(time=when, duration_seconds=0.5, nodes=3, cores=12, memory_gib=48, pending_pods=2),
        last_scale_up=when,
        node_groups=tuple(
            NodeGroupStatus(
                id=f"MachineSet/openshift-machine-api/workers-{number}",
                backoff_until=when,
                last_error=LastError(time=when, reason="InsufficientResources", message=long),
            )
            for number in range(MAX_GROUPS)
        ),
        unneeded=tuple(UnneededNode(name=f"n{number}", since=when) for number in range(500)),
        kept=tuple(KeptNode(name=f"n{number}", reason="NoPlace", message=long) for number in range(200)),
        kept_reasons=(ReasonCount(reason="NoPlace", count=200),),
        pending=(PendingPods(namespace="shop", pod="web-1", count=9, reason="NoTemplate", message=long),),
    )

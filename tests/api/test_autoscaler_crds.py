"""The definitions of the autoscalers on the real API server: they refuse what reading files refuses, by themselves."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import autoscalers
from tests.api.test_crd import VALIDATION
from tests.api.test_crd import client as client
from tests.api.test_crd_agreement import VALUES, paths
from tests.mutations import mutate
from trimtab.api.cluster_autoscaler_status import (
    MAX_GROUPS,
    ClusterAutoscalerStatus,
    KeptNode,
    LastError,
    LastPass,
    NodeGroupStatus,
    PendingPods,
    ReasonCount,
    UnneededNode,
)
from trimtab.api.conditions import READY, set_condition
from trimtab.api.decode import InvalidObject, decode_cluster_autoscaler, decode_machine_autoscaler
from trimtab.api.descheduler_status import status_patch
from trimtab.api.machine_autoscaler import MachineAutoscalerStatus, TargetReference
from trimtab.api.scalars import to_time
from trimtab.kube.api import ApiError, Invalid
from trimtab.kube.resources import CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS, Resource
from trimtab.local.client import Client

RESOURCES = {resource.kind: resource for resource in (CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS)}
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


@pytest.fixture(scope="module", autouse=True)
def served(client: Client) -> None:
    """Wait until both kinds are."""
    deadline = time.monotonic() + 30
    for resource in RESOURCES.values():
        while True:
            try:
                client.request("GET", resource.path())
                break
            except ApiError:
                assert time.monotonic() < deadline
                time.sleep(0.1)


def create(client: Client, manifest: dict[str, Any], *, validation: str = "Strict", dry_run: bool = True) -> Any:
    """Make one; without a validation as a plain client does, which says nothing of it."""
    params = ({"fieldValidation": validation} if validation else {}) | ({"dryRun": "All"} if dry_run else {})
    return client.request("POST", path_of(manifest), manifest, params=params)


def path_of(manifest: dict[str, Any]) -> str:
    resource: Resource = RESOURCES[manifest["kind"]]
    return resource.path(namespace="default" if resource.namespaced else "")


@pytest.mark.parametrize("validation", VALIDATION)
def test_the_seeds_definition_is_taken_unchanged(client: Client, validation: str) -> None:
    created = create(client, autoscalers.seed(), validation=validation)

    assert decode_cluster_autoscaler(created).spec == decode_cluster_autoscaler(autoscalers.seed()).spec
    assert created["spec"].items() >= {"podPriorityThreshold": -10, "mode": "Act"}.items()
    assert created["spec"]["resourceLimits"] == autoscalers.seed()["spec"]["resourceLimits"]
    assert created["spec"]["scaleDown"].items() >= autoscalers.seed()["spec"]["scaleDown"].items()


@pytest.mark.parametrize("spec", [None, *autoscalers.ACCEPTED.values()], ids=["no spec", *autoscalers.ACCEPTED])
def test_a_good_cluster_autoscaler_is_taken_and_reads_back_the_same(client: Client, spec: str | None) -> None:
    manifest = autoscalers.cluster_autoscaler(spec)

    assert decode_cluster_autoscaler(create(client, manifest)).spec == decode_cluster_autoscaler(manifest).spec


@pytest.mark.parametrize("spec", autoscalers.TARGETS_ACCEPTED.values(), ids=autoscalers.TARGETS_ACCEPTED)
def test_a_good_machine_autoscaler_is_taken_and_reads_back_the_same(client: Client, spec: str) -> None:
    manifest = autoscalers.machine_autoscaler(spec)

    assert decode_machine_autoscaler(create(client, manifest)).spec == decode_machine_autoscaler(manifest).spec


BAD = [
    *((autoscalers.cluster_autoscaler(spec), words) for spec, words in autoscalers.REFUSED.values()),
    *((autoscalers.machine_autoscaler(spec), words) for spec, words in autoscalers.TARGETS_REFUSED.values()),
]
BAD_IDS = [*autoscalers.REFUSED, *autoscalers.TARGETS_REFUSED]


@pytest.mark.parametrize("validation", ["Strict", "Ignore", ""])
@pytest.mark.parametrize(("manifest", "words"), BAD, ids=BAD_IDS)
def test_a_bad_autoscaler_is_refused_whatever_validation_the_client_asks_for(
    client: Client, manifest: dict[str, Any], words: tuple[str, ...], validation: str
) -> None:
    with pytest.raises(Invalid) as refused:
        create(client, manifest, validation=validation)

    assert words[0].removeprefix("spec.") in refused.value.message


@pytest.fixture
def good_ones(client: Client) -> Iterator[dict[str, dict[str, Any]]]:
    """One of each kind that is good and there."""
    made = {kind: create(client, manifest, dry_run=False) for kind, manifest in GOOD.items()}
    yield made
    for each in made.values():
        client.request("DELETE", own_path(each))


def own_path(manifest: dict[str, Any]) -> str:
    return f"{path_of(manifest)}/{manifest['metadata']['name']}"


def test_a_good_autoscaler_cannot_be_made_bad(client: Client, good_ones: dict[str, dict[str, Any]]) -> None:
    """By writing it anew or by a patch: the server spares fields that do not change, and no others."""
    wrong = []
    for what, (manifest, words) in zip(BAD_IDS, BAD, strict=True):
        good = good_ones[manifest["kind"]]
        anew = {**good, "spec": manifest["spec"]}
        patch = [{"op": "replace", "path": "/spec", "value": manifest["spec"]}]
        for method, body, content_type in (("PUT", anew, "application/json"), ("PATCH", patch, JSON_PATCH)):
            try:
                client.request(method, own_path(good), body, content_type=content_type, params={"dryRun": "All"})
            except Invalid as error:
                if words[0].removeprefix("spec.") not in error.message:
                    wrong.append(f"{what} by {method} is told as {error.message}")
            else:
                wrong.append(f"{what} by {method} is taken")
    assert not wrong


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (autoscalers.REFUSED["OpenShift's own slip"][0], "is no field: it is written unneededTime"),
        (autoscalers.REFUSED["fewer cores at most than at least"][0], "must be at least min"),
    ],
    ids=["the slip", "limits"],
)
def test_server_side_apply_is_no_way_around(
    client: Client, good_ones: dict[str, dict[str, Any]], spec: str, words: str
) -> None:
    params = {"dryRun": "All", "fieldManager": "somebody", "force": "true", "fieldValidation": "Ignore"}
    manifest = autoscalers.cluster_autoscaler(spec)
    with pytest.raises(Invalid, match=words):
        client.request("PATCH", own_path(good_ones[manifest["kind"]]), manifest, content_type=APPLY, params=params)


@pytest.mark.parametrize("name", ["cluster", "default-2"])
def test_a_cluster_autoscaler_of_another_name_is_refused_and_told_why(client: Client, name: str) -> None:
    with pytest.raises(Invalid, match="must be default: there is one ClusterAutoscaler for the whole cluster"):
        create(client, autoscalers.cluster_autoscaler("{}", name=name))


def test_a_name_that_the_server_is_to_make_up_is_no_way_around(client: Client) -> None:
    manifest = autoscalers.cluster_autoscaler("{}")
    manifest["metadata"] = {"generateName": "default-"}
    with pytest.raises(Invalid, match="must be default"):
        create(client, manifest)


@pytest.mark.parametrize("validation", [*VALIDATION, ""])
def test_openshifts_own_slip_is_refused_with_the_name_that_is_meant(client: Client, validation: str) -> None:
    """Its example prints unneededTime with one n; its server drops that field, and the default applies."""
    seed = autoscalers.seed()
    seed["spec"]["scaleDown"]["uneededTime"] = seed["spec"]["scaleDown"].pop("unneededTime")
    with pytest.raises(Invalid) as refused:
        create(client, seed, validation=validation)
    assert "spec.scaleDown.uneededTime" in refused.value.message
    assert "is no field: it is written unneededTime" in refused.value.message


@pytest.mark.parametrize(("spec", "field"), autoscalers.UNKNOWN_FIELDS.values(), ids=autoscalers.UNKNOWN_FIELDS)
def test_an_unknown_field_is_named_to_a_client_that_asks_for_strictness(client: Client, spec: str, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        create(client, autoscalers.cluster_autoscaler(spec))

    assert f'unknown field "{field}"' in refused.value.message


GOOD = {
    "ClusterAutoscaler": autoscalers.cluster_autoscaler(autoscalers.EVERYTHING),
    "MachineAutoscaler": autoscalers.machine_autoscaler(autoscalers.TARGETS_ACCEPTED["a machine set"]),
}
PLACES = [(kind, path) for kind, manifest in GOOD.items() for path in paths(manifest["spec"])[1:]]
DECODERS = {"ClusterAutoscaler": decode_cluster_autoscaler, "MachineAutoscaler": decode_machine_autoscaler}


@pytest.mark.usefixtures("client")
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    place=st.sampled_from(PLACES),
    value=st.sampled_from([*VALUES, "0.5", "0", "1h1h", "Enabled", "Random", "MachineSet", ["Random", "Random"]]),
    change=st.sampled_from(["set", "add", "drop"]),
    key=st.sampled_from(["enabled", "uneededTime", "unneededTime", "min", "max", "type", "kind", "apiVersion", "x"]),
)
def test_both_judge_alike(client: Client, place: tuple[str, Any], value: Any, change: str, key: str) -> None:
    kind, path = place
    manifest = copy.deepcopy(GOOD[kind])
    where: Any = manifest["spec"]
    for step in path[:-1]:
        where = where[step]
    if change == "drop":
        del where[path[-1]]
    elif change == "add" and isinstance(where, dict):
        where[key] = value
    else:
        where[path[-1]] = value

    try:
        DECODERS[kind](manifest)
        ours = ""
    except InvalidObject as error:
        ours = str(error)
    try:
        create(client, manifest)
        theirs = ""
    except Invalid as error:
        theirs = error.message
    assert bool(ours) == bool(theirs), f"we say {ours or 'good'!r}, the API server says {theirs or 'good'!r}"


MUTATION = st.tuples(
    st.sampled_from(PLACES),
    st.sampled_from([*VALUES, "0.5", "0", "1h1h", "-1s", "Enabled", "Random", "MachineSet", ["Random", "Random"]]),
    st.sampled_from(["set", "add", "drop"]),
    st.sampled_from(["enabled", "uneededTime", "unneededTime", "min", "max", "type", "kind", "apiVersion", "x"]),
)


@pytest.mark.usefixtures("client")
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations=st.lists(MUTATION, min_size=1, max_size=3))
def test_whatever_the_server_stores_can_be_used(client: Client, mutations: list[Any]) -> None:
    """A plain client's unknown fields are dropped, its defaults are filled in; what is left trimtab must take."""
    (kind, _), *_ = mutations[0]
    manifest = copy.deepcopy(GOOD[kind])
    for (of, path), value, change, key in mutations:
        if of == kind:
            mutate(manifest["spec"], path, value, change, key)
    try:
        stored = create(client, manifest, validation="")
    except Invalid:
        return
    DECODERS[kind](stored)


@pytest.mark.parametrize("kind", GOOD)
def test_a_status_is_taken_as_it_is_written(client: Client, kind: str) -> None:
    created = create(client, GOOD[kind], dry_run=False)
    path = f"{path_of(created)}/{created['metadata']['name']}"
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
    """As large as it gets: the API server and etcd must take it."""
    when = to_time(1_795_176_000)
    long = "x" * 1024
    return ClusterAutoscalerStatus(
        observed_generation=1,
        conditions=set_condition((), READY, True, reason="AllWell", message="ok", now=0, generation=1),
        last_pass=LastPass(time=when, duration_seconds=0.5, nodes=3, cores=12, memory_gib=48, pending_pods=2),
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

"""The CRD of TaintManager on a real API server: it rejects by itself what the decoder of files rejects."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import taint_managers
from tests.fixtures.crds import (
    APPLY,
    JSON_PATCH,
    MERGE,
    assert_crd_installs_without_cost_warnings,
    assert_decoder_accepts_what_is_stored,
    assert_same_verdict,
    create,
    table_rows,
    without_indexes,
)
from tests.fixtures.crds import client as client
from tests.mutations import VALUES, mutate, paths
from tests.strategies import examples
from trimtab.api.base import status_patch
from trimtab.api.conditions import DEGRADED, PROGRESSING, READY, set_condition
from trimtab.api.decode import decode_taint_manager
from trimtab.api.scalars import to_time
from trimtab.api.taint_manager import (
    MAX_DEADLINES,
    MAX_REFUSED,
    MAX_STUCK,
    MAX_ZONES,
    NextDeadline,
    PodCounts,
    RefusedPod,
    StuckNode,
    TaintManager,
    TaintManagerSpec,
    TaintManagerStatus,
    ZoneStatus,
)
from trimtab.kube.api import Invalid, ServerError
from trimtab.kube.resources import TAINT_MANAGERS
from trimtab_local.client import Client

EXAMPLES = Path(__file__).parents[2] / "examples" / "tainting"
MANAGERS = sorted(path for path in EXAMPLES.glob("*.yaml") if path.name != "cluster.yaml")
OWN_PATH = TAINT_MANAGERS.path("default")


# ── What is taken ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("spec", [None, *taint_managers.ACCEPTED.values()], ids=["no spec", *taint_managers.ACCEPTED])
def test_valid_taint_manager_round_trips(client: Client, spec: str | None) -> None:
    manifest = taint_managers.taint_manager(spec)

    assert decode_taint_manager(create(client, manifest)).spec == decode_taint_manager(manifest).spec


@pytest.mark.parametrize("path", MANAGERS, ids=lambda path: path.name)
def test_api_server_accepts_every_example(client: Client, path: Path) -> None:
    [manifest] = yaml.safe_load_all(path.read_text(encoding="utf-8"))

    assert decode_taint_manager(create(client, manifest)).spec == decode_taint_manager(manifest).spec


def test_api_server_and_decoder_set_the_same_defaults(client: Client) -> None:
    created = create(client, taint_managers.taint_manager({"nodeLifecycle": {}}))

    assert created["spec"]["mode"] == "Observe"
    assert created["spec"]["tolerationMatching"] == "All"
    assert (
        created["spec"]["nodeLifecycle"].items()
        >= {
            "nodeMonitorPeriod": "5s",
            "nodeMonitorGracePeriod": "50s",
            "nodeStartupGracePeriod": "60s",
            "nodeEvictionRate": 0.1,
            "secondaryNodeEvictionRate": 0.01,
            "largeClusterSizeThreshold": 50,
            "unhealthyZoneThreshold": 0.55,
        }.items()
    )
    assert "fullDisruptionEvictionRate" not in created["spec"]["nodeLifecycle"]
    assert decode_taint_manager(created).spec == TaintManagerSpec()


@pytest.mark.parametrize("depth", [1, 2])
def test_patch_of_one_field_keeps_other_defaults(client: Client, good: Any, depth: int) -> None:
    """A merge patch of an object with an empty spec."""
    spec: dict[str, Any] = {"mode": "Observe"} if depth == 1 else {"nodeLifecycle": {"nodeEvictionRate": 1}}
    patched = client.request("PATCH", OWN_PATH, {"spec": spec}, content_type=MERGE, params={"dryRun": "All"})

    before, after = decode_taint_manager(good).spec, decode_taint_manager(patched).spec
    assert after != before
    assert after.node_lifecycle.node_monitor_grace_period == before.node_lifecycle.node_monitor_grace_period


# ── What is refused ─────────────────────────────────────────────────────────────────────────────────────────────────

BAD = [pytest.param(spec, words, id=what) for what, (spec, words) in taint_managers.REFUSED.items()] + [
    pytest.param({"mode": former}, ("spec.mode",), id=f"former mode {former}") for former in taint_managers.FORMER_MODES
]


@pytest.mark.parametrize("validation", ["Strict", "Ignore", ""])
@pytest.mark.parametrize(("spec", "words"), BAD)
def test_invalid_taint_manager_is_rejected_for_every_field_validation_mode(
    client: Client, spec: str, words: tuple[str, ...], validation: str
) -> None:
    with pytest.raises(Invalid) as refused:
        create(client, taint_managers.taint_manager(spec), validation=validation)

    assert words[0].removeprefix("spec.") in refused.value.message


MESSAGES = {
    "maximumWait with Delete": ["spec.taints[0].maximumWait", "requires policy Evict"],
    "maximumWait above 168h": ["spec.taints[0].maximumWait", "must be at most 168h"],
    "maximumWait in days": ["spec.taints[0].maximumWait", "e.g. 30s"],
    "duplicate key": ["spec.taints[1]", "Duplicate value"],
    "grace period shorter than monitor period": [
        "nodeLifecycle.nodeMonitorGracePeriod",
        "must be longer than nodeMonitorPeriod",
    ],
    "period 0s": ["spec.nodeLifecycle.nodeMonitorPeriod", "must be between 1s and 168h"],
    "unknown mode": ["spec.mode", "Observe", "EvictPods", "TaintAndEvict"],
    "threshold in percent": ["spec.nodeLifecycle.unhealthyZoneThreshold", "less than or equal to 1"],
}
"""What the server's message has, as kubectl shows it."""


@pytest.mark.parametrize(("what", "words"), MESSAGES.items(), ids=MESSAGES)
def test_rejection_names_the_field_and_the_allowed_values(client: Client, what: str, words: list[str]) -> None:
    with pytest.raises(Invalid) as refused:
        create(client, taint_managers.taint_manager(taint_managers.REFUSED[what][0]))

    for word in words:
        assert word in refused.value.message


@pytest.fixture
def good(client: Client) -> Iterator[dict[str, Any]]:
    """A valid TaintManager in the API server."""
    yield create(client, taint_managers.taint_manager(taint_managers.EVERYTHING), dry_run=False)
    client.request("DELETE", OWN_PATH)


def test_update_to_invalid_taint_manager_is_rejected(client: Client, good: dict[str, Any]) -> None:
    """By PUT, PATCH or apply: the API server skips the validation of unchanged fields only."""
    wrong = []
    for what, (text, words) in taint_managers.REFUSED.items():
        spec = msgspec.yaml.decode(text)
        requests = {
            "PUT": ("PUT", {**good, "spec": spec}, "application/json"),
            "a JSON patch": ("PATCH", [{"op": "replace", "path": "/spec", "value": spec}], JSON_PATCH),
            "apply": ("PATCH", taint_managers.taint_manager(spec), APPLY),
        }
        for how, (method, body, content_type) in requests.items():
            params = {"dryRun": "All"}
            if content_type == APPLY:
                params |= {"fieldManager": "user", "force": "true", "fieldValidation": "Ignore"}
            try:
                client.request(method, OWN_PATH, body, content_type=content_type, params=params)
            except (Invalid, ServerError) as error:
                # The API server cannot merge a list map whose items lack the key or have it twice.
                untried = how == "apply" and "failed to create typed patch object" in error.message
                if (
                    without_indexes(words[0].removeprefix("spec.")) not in without_indexes(error.message)
                    and not untried
                ):
                    wrong.append(f"{what} by {how} is reported as {error.message}")
            else:
                wrong.append(f"{what} by {how} is taken")
    assert not wrong


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"nodeLifecycle": {"nodeMonitorPeriod": "41s"}}, "must be longer than nodeMonitorPeriod"),
        ({"nodeLifecycle": {"nodeMonitorGracePeriod": "2s"}}, "must be longer than nodeMonitorPeriod"),
        ({"taints": [{"key": "a", "policy": "Delete", "maximumWait": "1m"}]}, "requires policy Evict"),
        ({"mode": None, "tolerationMatching": "any"}, "tolerationMatching"),
    ],
    ids=["a period that reaches the grace period", "a grace period that falls to it", "a wait", "a matching"],
)
def test_merge_patch_to_invalid_taint_manager_is_rejected(
    client: Client, good: dict[str, Any], patch: dict[str, Any], words: str
) -> None:
    del good
    with pytest.raises(Invalid, match=words):
        client.request("PATCH", OWN_PATH, {"spec": patch}, content_type=MERGE, params={"dryRun": "All"})


@pytest.mark.parametrize("name", ["cluster", "default-2", "Default"])
def test_taint_manager_not_named_default_is_rejected(client: Client, name: str) -> None:
    with pytest.raises(Invalid) as refused:
        create(client, taint_managers.taint_manager("{}", name=name))
    if name.islower():
        assert "must be default" in refused.value.message


def test_generate_name_is_rejected(client: Client) -> None:
    manifest = taint_managers.taint_manager("{}")
    manifest["metadata"] = {"generateName": "default-"}
    with pytest.raises(Invalid, match="must be default"):
        create(client, manifest)


@pytest.mark.parametrize(("spec", "field"), taint_managers.UNKNOWN_FIELDS.values(), ids=taint_managers.UNKNOWN_FIELDS)
def test_unknown_field_is_rejected_with_strict_field_validation(client: Client, spec: str, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        create(client, taint_managers.taint_manager(spec))

    assert f'unknown field "{field}"' in refused.value.message


@pytest.mark.parametrize(("spec", "field"), taint_managers.UNKNOWN_FIELDS.values(), ids=taint_managers.UNKNOWN_FIELDS)
def test_unknown_field_is_pruned(client: Client, spec: str, field: str) -> None:
    created = create(client, taint_managers.taint_manager(spec), validation="Ignore")

    assert field.rpartition(".")[2] not in json.dumps(created["spec"])
    decode_taint_manager(created)


# ── What the rules cost ─────────────────────────────────────────────────────────────────────────────────────────────


def test_largest_spec_stays_within_the_cel_cost_limit(client: Client) -> None:
    """The API server rejects a valid object whose rules exceed the CEL cost limit of a request."""
    week, key = "168h0m0s", "k" * 313
    largest = {
        "mode": "TaintAndEvict",
        "taints": [{"key": f"{key}{number:04}", "policy": "Evict", "maximumWait": week} for number in range(64)],
        "nodeLifecycle": {
            "nodeMonitorPeriod": "167h59m59s",
            "nodeMonitorGracePeriod": week,
            "nodeStartupGracePeriod": week,
        },
    }
    created = create(client, taint_managers.taint_manager(largest))
    assert len(decode_taint_manager(created).spec.taints) == 64

    largest["taints"] = [*created["spec"]["taints"], {"key": "one-more", "policy": "Delete"}]
    with pytest.raises(Invalid, match="must have at most 64 items"):
        create(client, taint_managers.taint_manager(largest))


def test_crd_installs_without_cost_warnings(client: Client) -> None:
    assert_crd_installs_without_cost_warnings(client, "TaintManager")


# ── Both judges ─────────────────────────────────────────────────────────────────────────────────────────────────────

GOOD = taint_managers.taint_manager(taint_managers.EVERYTHING)
PLACES = paths(GOOD["spec"])[1:]
WORDS = [
    "0s",
    "1d",
    "168h",
    "168h1s",
    "1h1h",
    "-1s",
    "5m0s",
    "TaintAndEvict",
    "Evict",
    "Delete",
    "First",
    "a:NoExecute",
    0.5,
    1e-9,
]
KEYS = ["key", "policy", "maximumWait", "total", "nodeMonitorPeriod", "fullDisruptionEvictionRate", "mode", "x"]


MUTATION = st.tuples(
    st.sampled_from(PLACES),
    st.sampled_from([*VALUES, *WORDS]),
    st.sampled_from(["set", "add", "drop"]),
    st.sampled_from(KEYS),
)


@pytest.mark.usefixtures("client")
@settings(max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutation=MUTATION)
def test_decoder_and_api_server_accept_the_same_objects(client: Client, mutation: Any) -> None:
    manifest = copy.deepcopy(GOOD)
    mutate(manifest["spec"], *mutation)
    assert_same_verdict(client, manifest, decode_taint_manager)


@pytest.mark.usefixtures("client")
@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations=st.lists(MUTATION, min_size=1, max_size=3))
def test_decoder_accepts_everything_the_api_server_stores(client: Client, mutations: list[Any]) -> None:
    manifest = copy.deepcopy(GOOD)
    for mutation in mutations:
        mutate(manifest["spec"], *mutation)
    assert_decoder_accepts_what_is_stored(client, manifest, decode_taint_manager)


# ── The status ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_status_of_any_size_round_trips(client: Client, good: dict[str, Any]) -> None:
    del good
    status = full_status()
    written = client.request("PATCH", f"{OWN_PATH}/status", {"status": status_patch(status)}, content_type=MERGE)

    assert msgspec.convert(written["status"], TaintManagerStatus) == status
    assert decode_taint_manager(written).status == status
    assert len(msgspec.json.encode(written)) < 1_000_000  # etcd takes 1.5 MB


def test_status_is_a_subresource(client: Client, good: dict[str, Any]) -> None:
    body = {"spec": {"mode": "Observe"}, "status": {"observedGeneration": 7}}
    by_spec = client.request("PATCH", OWN_PATH, body, content_type=MERGE, params={"dryRun": "All"})
    by_status = client.request("PATCH", f"{OWN_PATH}/status", body, content_type=MERGE, params={"dryRun": "All"})

    assert by_spec["spec"]["mode"] == "Observe"
    assert "status" not in by_spec
    assert by_status["spec"] == good["spec"]
    assert by_status["status"]["observedGeneration"] == 7


def test_printer_columns_show_the_conditions(client: Client, good: dict[str, Any]) -> None:
    del good
    client.request("PATCH", f"{OWN_PATH}/status", {"status": status_patch(full_status())}, content_type=MERGE)
    [shown] = table_rows(client, OWN_PATH)
    assert shown["Name"] == "default"
    assert shown["Mode"] == "TaintAndEvict"
    assert shown["Ready"] == "True"


def full_status() -> TaintManagerStatus:
    """A status of maximum size, which the API server and etcd must accept."""
    when, long, name = to_time(1_795_176_000), "x" * 1024, "n" * 63
    conditions: Any = ()
    for kind in (READY, PROGRESSING, DEGRADED):
        conditions = set_condition(conditions, kind, True, reason="AllWell", message=long, now=0, generation=1)
    return TaintManagerStatus(
        observed_generation=1,
        conditions=conditions,
        zones=tuple(
            ZoneStatus(name=f"{number:0160}", state="PartialDisruption", nodes=50, not_ready=40, nodes_per_second=0.01)
            for number in range(MAX_ZONES)
        ),
        zones_omitted=3,
        counts=PodCounts(tainted_nodes=5000, pods_with_deadline=150_000, overdue=3, deleted=2**40, nodes_tainted=1),
        next_deadlines=tuple(
            NextDeadline(
                namespace=name, pod=f"{name}-{number}", node=name, due=when, taint="t" * 400, toleration="u" * 512
            )
            for number in range(MAX_DEADLINES)
        ),
        deadlines_omitted=149_950,
        refused=tuple(
            RefusedPod(namespace=name, pod=f"{name}-{number}", node=name, due=when, attempts=99, message=long)
            for number in range(MAX_REFUSED)
        ),
        stuck_nodes=tuple(
            StuckNode(name=f"{name}-{number}", terminating=110, message=long) for number in range(MAX_STUCK)
        ),
    )


def test_full_example_reaches_every_bound() -> None:
    """Otherwise the test above would prove nothing."""
    TaintManager(status=full_status())
    one_more = [*msgspec.to_builtins(full_status())["zones"], {"name": "z", "state": "Normal"}]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"zones": one_more}, TaintManagerStatus)

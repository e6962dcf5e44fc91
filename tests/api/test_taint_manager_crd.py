"""The definition of TaintManager on the real API server: it refuses what reading files refuses, by itself."""

from __future__ import annotations

import copy
import json
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import taint_managers
from tests.api.test_crd import CRDS, TABLE
from tests.api.test_crd import client as client
from tests.api.test_crd_agreement import VALUES, paths
from tests.mutations import mutate
from trimtab.api.conditions import DEGRADED, PROGRESSING, READY, set_condition
from trimtab.api.crds import crd_documents
from trimtab.api.decode import InvalidObject, decode_taint_manager
from trimtab.api.descheduler_status import status_patch
from trimtab.api.scalars import to_time
from trimtab.api.taint_manager import TaintManager, TaintManagerSpec
from trimtab.api.taint_manager_status import (
    MAX_DEADLINES,
    MAX_REFUSED,
    MAX_STUCK,
    MAX_ZONES,
    NextDeadline,
    PodCounts,
    RefusedPod,
    StuckNode,
    TaintManagerStatus,
    ZoneStatus,
)
from trimtab.kube.api import ApiError, Invalid, ServerError
from trimtab.kube.resources import TAINT_MANAGERS
from trimtab.local.client import Client

EXAMPLES = Path(__file__).parents[2] / "examples" / "tainting"
MANAGERS = sorted(path for path in EXAMPLES.glob("*.yaml") if path.name != "cluster.yaml")
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
PATH = TAINT_MANAGERS.path()
OWN_PATH = TAINT_MANAGERS.path("default")


@pytest.fixture(scope="module", autouse=True)
def served(client: Client) -> None:
    """Wait until the kind is."""
    deadline = time.monotonic() + 30
    while True:
        try:
            client.request("GET", PATH)
            return
        except ApiError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def create(client: Client, manifest: dict[str, Any], *, validation: str = "Strict", dry_run: bool = True) -> Any:
    """Make one; without a validation as a plain client does, which says nothing of it."""
    params = ({"fieldValidation": validation} if validation else {}) | ({"dryRun": "All"} if dry_run else {})
    return client.request("POST", PATH, manifest, params=params)


# ── What is taken ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("spec", [None, *taint_managers.ACCEPTED.values()], ids=["no spec", *taint_managers.ACCEPTED])
def test_a_good_one_is_taken_and_reads_back_the_same(client: Client, spec: str | None) -> None:
    manifest = taint_managers.taint_manager(spec)

    assert decode_taint_manager(create(client, manifest)).spec == decode_taint_manager(manifest).spec


@pytest.mark.parametrize("path", MANAGERS, ids=lambda path: path.name)
def test_an_example_is_taken_as_it_stands(client: Client, path: Path) -> None:
    [manifest] = yaml.safe_load_all(path.read_text(encoding="utf-8"))

    assert decode_taint_manager(create(client, manifest)).spec == decode_taint_manager(manifest).spec


def test_the_server_fills_in_the_defaults_that_reading_files_fills_in(client: Client) -> None:
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
def test_a_patch_of_one_field_leaves_the_others_at_their_defaults(client: Client, good: Any, depth: int) -> None:
    """A merge patch of a bare object: what it does not say is what it was."""
    spec: dict[str, Any] = {"mode": "Observe"} if depth == 1 else {"nodeLifecycle": {"nodeEvictionRate": 1}}
    patched = client.request("PATCH", OWN_PATH, {"spec": spec}, content_type=MERGE, params={"dryRun": "All"})

    before, after = decode_taint_manager(good).spec, decode_taint_manager(patched).spec
    assert after != before
    assert after.node_lifecycle.node_monitor_grace_period == before.node_lifecycle.node_monitor_grace_period


# ── What is refused ─────────────────────────────────────────────────────────────────────────────────────────────────

BAD = [pytest.param(spec, words, id=what) for what, (spec, words) in taint_managers.REFUSED.items()]


@pytest.mark.parametrize("validation", ["Strict", "Ignore", ""])
@pytest.mark.parametrize(("spec", "words"), BAD)
def test_a_bad_one_is_refused_whatever_validation_the_client_asks_for(
    client: Client, spec: str, words: tuple[str, ...], validation: str
) -> None:
    with pytest.raises(Invalid) as refused:
        create(client, taint_managers.taint_manager(spec), validation=validation)

    assert words[0].removeprefix("spec.") in refused.value.message


MESSAGES = {
    "a wait with Delete": ["spec.taints[0].maximumWait", "belongs to policy Evict"],
    "a wait of more than a week": ["spec.taints[0].maximumWait", "must be at most 168h"],
    "a wait in days": ["spec.taints[0].maximumWait", "e.g. 30s"],
    "a key twice": ["spec.taints[1]", "Duplicate value"],
    "a grace period that is not longer": [
        "nodeLifecycle.nodeMonitorGracePeriod",
        "must be longer than nodeMonitorPeriod",
    ],
    "a period of nothing": ["spec.nodeLifecycle.nodeMonitorPeriod", "must be between 1s and 168h"],
    "a mode that is none": ["spec.mode", "Observe", "EarlierOnly", "Own"],
    "a share in percent": ["spec.nodeLifecycle.unhealthyZoneThreshold", "less than or equal to 1"],
}
"""What the server's message has, as kubectl shows it."""


@pytest.mark.parametrize(("what", "words"), MESSAGES.items(), ids=MESSAGES)
def test_the_message_names_the_field_and_what_is_allowed(client: Client, what: str, words: list[str]) -> None:
    with pytest.raises(Invalid) as refused:
        create(client, taint_managers.taint_manager(taint_managers.REFUSED[what][0]))

    for word in words:
        assert word in refused.value.message


@pytest.fixture
def good(client: Client) -> Iterator[dict[str, Any]]:
    """A good one that is there."""
    yield create(client, taint_managers.taint_manager(taint_managers.EVERYTHING), dry_run=False)
    client.request("DELETE", OWN_PATH)


def placeless(text: str) -> str:
    """Without the places of items in lists."""
    return re.sub(r"\[\d+\]", "[]", text)


def test_a_good_one_cannot_be_made_bad(client: Client, good: dict[str, Any]) -> None:
    """By writing it anew, by patches, or by applying: the server spares fields that do not change, and no others."""
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
                params |= {"fieldManager": "somebody", "force": "true", "fieldValidation": "Ignore"}
            try:
                client.request(method, OWN_PATH, body, content_type=content_type, params=params)
            except (Invalid, ServerError) as error:
                # Apply adds to the list that is there; an item without its key, or twice, it does not even try to add.
                untried = how == "apply" and "failed to create typed patch object" in error.message
                if placeless(words[0].removeprefix("spec.")) not in placeless(error.message) and not untried:
                    wrong.append(f"{what} by {how} is told as {error.message}")
            else:
                wrong.append(f"{what} by {how} is taken")
    assert not wrong


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"nodeLifecycle": {"nodeMonitorPeriod": "41s"}}, "must be longer than nodeMonitorPeriod"),
        ({"nodeLifecycle": {"nodeMonitorGracePeriod": "2s"}}, "must be longer than nodeMonitorPeriod"),
        ({"taints": [{"key": "a", "policy": "Delete", "maximumWait": "1m"}]}, "belongs to policy Evict"),
        ({"mode": None, "tolerationMatching": "any"}, "tolerationMatching"),
    ],
    ids=["a period that reaches the grace period", "a grace period that falls to it", "a wait", "a matching"],
)
def test_a_merge_patch_that_makes_it_bad_is_refused(
    client: Client, good: dict[str, Any], patch: dict[str, Any], words: str
) -> None:
    del good
    with pytest.raises(Invalid, match=words):
        client.request("PATCH", OWN_PATH, {"spec": patch}, content_type=MERGE, params={"dryRun": "All"})


@pytest.mark.parametrize("name", ["cluster", "default-2", "Default"])
def test_one_of_another_name_is_refused_and_told_why(client: Client, name: str) -> None:
    with pytest.raises(Invalid) as refused:
        create(client, taint_managers.taint_manager("{}", name=name))
    if name.islower():
        assert "must be default: there is one TaintManager for the whole cluster" in refused.value.message


def test_a_name_that_the_server_is_to_make_up_is_no_way_around(client: Client) -> None:
    manifest = taint_managers.taint_manager("{}")
    manifest["metadata"] = {"generateName": "default-"}
    with pytest.raises(Invalid, match="must be default"):
        create(client, manifest)


@pytest.mark.parametrize(("spec", "field"), taint_managers.UNKNOWN_FIELDS.values(), ids=taint_managers.UNKNOWN_FIELDS)
def test_an_unknown_field_is_named_to_a_client_that_asks_for_strictness(client: Client, spec: str, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        create(client, taint_managers.taint_manager(spec))

    assert f'unknown field "{field}"' in refused.value.message


@pytest.mark.parametrize(("spec", "field"), taint_managers.UNKNOWN_FIELDS.values(), ids=taint_managers.UNKNOWN_FIELDS)
def test_an_unknown_field_that_is_not_refused_is_dropped(client: Client, spec: str, field: str) -> None:
    created = create(client, taint_managers.taint_manager(spec), validation="Ignore")

    assert field.rpartition(".")[2] not in json.dumps(created["spec"])
    decode_taint_manager(created)


# ── What the rules cost ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_largest_spec_that_the_bounds_allow_is_judged_within_the_budget_of_rules(client: Client) -> None:
    """CEL is given a budget a request; one that is used up refuses a good object."""
    week, key = "168h0m0s", "k" * 313
    largest = {
        "mode": "Own",
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


def test_the_definition_is_taken_without_a_warning_of_cost(client: Client) -> None:
    """The server estimates each rule's cost from the bounds of the schema, and refuses what may cost too much."""
    [document] = [each for each in crd_documents() if each["spec"]["names"]["kind"] == "TaintManager"]
    name = document["metadata"]["name"]
    present = client.request("GET", f"{CRDS}/{name}")
    document["metadata"]["resourceVersion"] = present["metadata"]["resourceVersion"]

    written = client.request("PUT", f"{CRDS}/{name}", document, params={"dryRun": "All", "fieldValidation": "Strict"})

    conditions = {each["type"]: each["status"] for each in written["status"]["conditions"]}
    assert conditions["Established"] == conditions["NamesAccepted"] == "True"
    assert "NonStructuralSchema" not in conditions


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
    "Own",
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
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutation=MUTATION)
def test_both_judge_alike(client: Client, mutation: Any) -> None:
    manifest = copy.deepcopy(GOOD)
    mutate(manifest["spec"], *mutation)

    try:
        decode_taint_manager(manifest)
        ours = ""
    except InvalidObject as error:
        ours = str(error)
    try:
        create(client, manifest)
        theirs = ""
    except Invalid as error:
        theirs = error.message
    assert bool(ours) == bool(theirs), f"we say {ours or 'good'!r}, the API server says {theirs or 'good'!r}"


@pytest.mark.usefixtures("client")
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations=st.lists(MUTATION, min_size=1, max_size=3))
def test_whatever_the_server_stores_can_be_used(client: Client, mutations: list[Any]) -> None:
    """A plain client's unknown fields are dropped, its defaults are filled in; what is left trimtab must take."""
    manifest = copy.deepcopy(GOOD)
    for mutation in mutations:
        mutate(manifest["spec"], *mutation)
    try:
        stored = create(client, manifest, validation="")
    except Invalid:
        return
    decode_taint_manager(stored)


# ── The status ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_status_is_taken_as_it_is_written_however_large(client: Client, good: dict[str, Any]) -> None:
    del good
    status = full_status()
    written = client.request("PATCH", f"{OWN_PATH}/status", {"status": status_patch(status)}, content_type=MERGE)

    assert msgspec.convert(written["status"], TaintManagerStatus) == status
    assert decode_taint_manager(written).status == status
    assert len(msgspec.json.encode(written)) < 1_000_000  # etcd takes 1.5 MB


def test_the_status_is_written_apart_from_the_spec(client: Client, good: dict[str, Any]) -> None:
    body = {"spec": {"mode": "Observe"}, "status": {"observedGeneration": 7}}
    by_spec = client.request("PATCH", OWN_PATH, body, content_type=MERGE, params={"dryRun": "All"})
    by_status = client.request("PATCH", f"{OWN_PATH}/status", body, content_type=MERGE, params={"dryRun": "All"})

    assert by_spec["spec"]["mode"] == "Observe"
    assert "status" not in by_spec
    assert by_status["spec"] == good["spec"]
    assert by_status["status"]["observedGeneration"] == 7


def test_kubectl_get_shows_how_things_are(client: Client, good: dict[str, Any]) -> None:
    del good
    client.request("PATCH", f"{OWN_PATH}/status", {"status": status_patch(full_status())}, content_type=MERGE)
    request = urllib.request.Request(
        client.server + PATH, headers={"Accept": TABLE, "Authorization": f"Bearer {client._token}"}
    )
    with client._opener.open(request, timeout=30) as answer:
        table = msgspec.json.decode(answer.read())

    columns = [column["name"] for column in table["columnDefinitions"]]
    [row] = table["rows"]
    shown = dict(zip(columns, row["cells"], strict=True))
    assert shown["Name"] == "default"
    assert shown["Mode"] == "Own"
    assert shown["Ready"] == "True"


def full_status() -> TaintManagerStatus:
    """As large as it gets: the API server and etcd must take it."""
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


def test_what_is_full_is_as_full_as_the_schema_lets_it_be() -> None:
    """Else the test above would show nothing."""
    TaintManager(status=full_status())
    one_more = [*msgspec.to_builtins(full_status())["zones"], {"name": "z", "state": "Normal"}]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"zones": one_more}, TaintManagerStatus)

"""HistoryRecords on a real API server: what the writer stores, and the printer columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tests.fixtures.crds import client as client
from tests.fixtures.crds import table_rows
from tests.fixtures.waiting import eventually
from tests.unit.inspection.test_history import NOW, entry
from trimtab.api.history_record import MAX_ENTRIES, HistoryEntry, HistoryRecordSpec
from trimtab.cli.main import cli
from trimtab.controller.history import _spec
from trimtab.inspection.history import entries_of
from trimtab.kube.api import Conflict, Invalid
from trimtab.kube.resources import DESCHEDULER_POLICIES, HISTORY_RECORDS, TAINT_MANAGERS
from trimtab_local.client import Client

MERGE = "application/merge-patch+json"
EVERYTHING = HistoryEntry(
    time=NOW,
    controller="autoscaler",
    action="ScaleUp",
    reason="PendingPods",
    result="Failed",
    message="2 nodes",
    result_reason="OutOfResources",
    result_message="quota",
    node_group="machines/workers-a",
    from_size=0,
    to_size=2,
    pods=("shop/web-1",),
    taint="a=b:NoSchedule",
)


def body(name: str, *entries: HistoryEntry) -> dict[str, Any]:
    head = {"apiVersion": HISTORY_RECORDS.api_version, "kind": HISTORY_RECORDS.kind, "metadata": {"name": name}}
    return {**head, "spec": msgspec.to_builtins(_spec(entries))}


def test_entries_round_trip(client: Client) -> None:
    wanted = (entry("web-1"), EVERYTHING)
    created = client.request(
        "POST", HISTORY_RECORDS.path(), body("round", *wanted), params={"fieldValidation": "Strict"}
    )
    assert entries_of([created]) == wanted
    assert msgspec.convert(created["spec"], HistoryRecordSpec).count == 2
    [row] = table_rows(client, HISTORY_RECORDS.path("round"))
    assert (row["From"], row["To"], row["Entries"]) == ("2026-11-23T09:00:00Z", "2026-11-23T09:00:00Z", 2)
    client.request("DELETE", HISTORY_RECORDS.path("round"))


def test_a_patch_of_an_outdated_version_is_a_conflict(client: Client) -> None:
    created = client.request("POST", HISTORY_RECORDS.path(), body("patched", entry("web-1")))
    version = created["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "spec": body("", entry("web-1"), entry("web-2"))["spec"]}
    path = HISTORY_RECORDS.path("patched")
    assert client.request("PATCH", path, patch, content_type=MERGE)["spec"]["count"] == 2
    with pytest.raises(Conflict):
        client.request("PATCH", path, patch, content_type=MERGE)
    client.request("DELETE", path)


def test_records_are_bounded(client: Client) -> None:
    with pytest.raises(Invalid):
        client.request("POST", HISTORY_RECORDS.path(), body("large", *[entry("web-1")] * (MAX_ENTRIES + 1)))


POLICIES = (
    (DESCHEDULER_POLICIES, "saved", {"strategies": {"RemoveDuplicates": {}}, "mode": "Simulate"}),
    (TAINT_MANAGERS, "default", {"mode": "Observe"}),
)


def answer(*arguments: str) -> Any:
    found = CliRunner().invoke(cli, [*arguments, "-o", "json"])
    assert found.exit_code == 0, found.output
    document = msgspec.json.decode(found.stdout)
    for differing in ("source", "before", "after"):
        document.pop(differing, None)
    return document


def test_answers_for_a_saved_cluster_are_those_for_the_live_one(client: Client, admin: Path, tmp_path: Path) -> None:
    path, live = tmp_path / "saved.json", f"--kubeconfig={admin}"
    created = [(HISTORY_RECORDS.path("saved"), HISTORY_RECORDS.path(), body("saved", entry("gone", policy="saved")))]
    for resource, name, spec in POLICIES:
        head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
        created.append((resource.path(name), resource.path(), {**head, "spec": spec}))
    period = ("--since", "2026-11-22T00:00:00Z", "--until", "2026-11-24T00:00:00Z")
    at = ("--now", "2026-11-23T12:00:00Z")
    questions = (
        ("history", "policy/saved", *period),
        ("explain", "pod", "shop/gone", *at),
        ("explain", "policy", "dp/saved", *at),
        ("explain", "policy", "tm/default", *at),
    )
    try:
        for _, collection, manifest in created:
            client.request("POST", collection, manifest)

        def settled() -> list[Any] | None:
            before = [answer(*question, live) for question in questions]
            saved = CliRunner().invoke(cli, ["snapshot", "-o", str(path), live])
            assert saved.exit_code == 0, saved.output
            changes = answer("diff", str(path), live)
            after = [answer(*question, live) for question in questions]
            return after if before == after and changes["message"] == "nothing changed" else None

        # The cluster is shared.
        after = eventually(settled, "pods of other tests are gone")

        assert [answer(*question, f"--cluster={path}") for question in questions] == after
        assert [each["pod"] for each in after[0]["entries"]] == ["shop/gone"]
        assert after[1]["state"] == "Gone"
        assert [each["object"] for each in after[2]["lastActions"]] == ["shop/gone"]
    finally:
        for own, _, _ in created:
            client.request("DELETE", own)

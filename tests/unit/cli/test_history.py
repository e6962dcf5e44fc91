"""``trimtab history``: selection by time and object, and its output."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.fixtures.golden import Golden
from tests.unit.inspection.test_history import NOW, entry, record, run
from trimtab.cli.main import cli

ENTRIES = (
    entry("web-1", at=NOW - timedelta(hours=30)),
    entry("web-2", at=NOW - timedelta(hours=5), target="n4", message="2 pods on n1"),
    entry("web-3", at=NOW - timedelta(hours=4), result="Refused", result_reason="DisruptionBudget"),
    entry("", at=NOW - timedelta(hours=3), controller="autoscaler", action="ScaleUp", namespace="", uid="", node="",
          policy="", node_group="machines/workers-a", from_size=3, to_size=5, pods=("shop/web-9",)),
    entry("", at=NOW - timedelta(hours=2), controller="tainting", action="Taint", namespace="", policy="", node="n2",
          taint="node.kubernetes.io/unreachable:NoExecute"),
)  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "history.json"
    items = [record("a", *ENTRIES), run(("web-2", "Evicted", NOW - timedelta(hours=5)))]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(path)


def shown(cluster: str, *arguments: str) -> Any:
    until = ("--until", NOW.isoformat().replace("+00:00", "Z"))
    found = CliRunner().invoke(cli, ["history", "--cluster", cluster, *until, *arguments])
    assert found.exit_code == 0, found.output
    return found.output


def objects(cluster: str, *arguments: str) -> list[str]:
    document = json.loads(shown(cluster, "-o", "json", *arguments))
    return [each.get("pod") or each.get("nodeGroup") or each["node"] for each in document["entries"]]


SINCE = (NOW - timedelta(hours=12)).isoformat().replace("+00:00", "Z")
ALL = (NOW - timedelta(days=7)).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        (SINCE, ["shop/web-2", "shop/web-3", "machines/workers-a", "n2"]),
        (ALL, ["shop/web-1", "shop/web-2", "shop/web-3", "machines/workers-a", "n2"]),
    ],
)
def test_actions_of_a_period_are_shown_once_the_latest_last(cluster: str, since: str, expected: list[str]) -> None:
    assert objects(cluster, "--since", since) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("pod/web-2", "-n", "shop"), ["shop/web-2"]),
        (("pod", "shop/web-9"), ["machines/workers-a"]),
        (("node/n2",), ["n2"]),
        (("node/n4",), ["shop/web-2"]),
        (("nodegroup/workers-a",), ["machines/workers-a"]),
        (("nodegroup/machines/workers-a",), ["machines/workers-a"]),
        (("policy/default",), ["shop/web-2", "shop/web-3"]),
        (("namespace/shop",), ["shop/web-2", "shop/web-3", "machines/workers-a"]),
        (("-n", "other"), []),
        (("pod/web-2",), []),
    ],
)
def test_actions_on_one_object(cluster: str, arguments: tuple[str, ...], expected: list[str]) -> None:
    assert objects(cluster, "--since", SINCE, *arguments) == expected


def test_document_counts_actions(cluster: str, golden: Golden) -> None:
    document = json.loads(shown(cluster, "-o", "json", "--since", SINCE))
    assert document["kind"] == "History"
    assert {(each["action"], each["result"]): each["count"] for each in document["counts"]} == {
        ("Evict", "Succeeded"): 1,
        ("Evict", "Refused"): 1,
        ("ScaleUp", "Succeeded"): 1,
        ("Taint", "Succeeded"): 1,
    }
    golden(document["message"])
    assert datetime.fromisoformat(document["entries"][0]["time"]) == NOW - timedelta(hours=5)


def test_table_has_a_line_for_each_action(cluster: str, golden: Golden) -> None:
    lines = shown(cluster, "--since", SINCE).splitlines()
    golden(lines[0])
    assert [line.split()[1:3] for line in lines[3:]] == [
        ["Evict", "pod/shop/web-2"],
        ["Evict", "pod/shop/web-3"],
        ["ScaleUp", "nodegroup/machines/workers-a"],
        ["Taint", "node/n2"],
    ]


@pytest.mark.parametrize(
    "arguments", [("--since", "yesterday"), ("pdb/web",), ("deployment/web",), ("node/n1", "-n", "shop")]
)
def test_invalid_arguments_are_errors(cluster: str, arguments: tuple[str, ...]) -> None:
    found = CliRunner().invoke(cli, ["history", "--cluster", cluster, *arguments])
    assert found.exit_code == 2
    assert len(found.output.strip().splitlines()) == 1


def test_durations_refer_to_now(cluster: str) -> None:
    now = (NOW - timedelta(hours=3, minutes=30)).isoformat().replace("+00:00", "Z")
    arguments = ["history", "--cluster", cluster, "--now", now, "--since", "1h", "-o", "json"]
    found = CliRunner().invoke(cli, arguments)
    assert found.exit_code == 0, found.output
    assert [each["pod"] for each in json.loads(found.output)["entries"]] == ["shop/web-3"]

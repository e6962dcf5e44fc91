"""``trimtab explain pdb``."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import budget, node, pod
from tests.fixtures.golden import Golden


def objects() -> list[Any]:
    web = pod("web-1").labels(app="web").on("n1").ready()
    return [node("n1"), web, budget("web").selecting(app="web").allowing(0), budget("idle").selecting(app="x")]


@pytest.mark.parametrize(
    "arguments",
    [("pdb", "shop/web"), ("pdb/web", "-n", "shop"), ("poddisruptionbudgets", "web", "--namespace", "shop")],
)
def test_one_budget_by_any_form_of_its_name(run, write, arguments) -> None:
    result = run("explain", *arguments, "--cluster", write("c.json", *objects()), "-o", "json")

    assert (result.exit_code, result.stderr) == (0, "")
    document = msgspec.json.decode(result.stdout)
    assert (document["pdb"], document["reason"]) == ("shop/web", "AllPodsRequired")


def test_table_of_a_budget_begins_with_the_answer_and_ends_with_remedies(run, write, golden: Golden) -> None:
    result = run("explain", "pdb", "shop/web", "--cluster", write("c.json", *objects()))

    assert "AllPodsRequired" in result.stdout.splitlines()[0]
    golden(result.stdout)


def test_all_budgets_that_allow_nothing(run, write) -> None:
    path = write("c.json", *objects())
    document = msgspec.json.decode(run("explain", "pdb", "--cluster", path, "-o", "json").stdout)

    assert [each["pdb"] for each in document["budgets"]] == ["shop/web"]
    assert document["others"] == 1
    assert "shop/web" in run("explain", "pdbs", "--cluster", path).stdout


def test_unknown_budget_is_an_error_with_similar_names(run, write, golden: Golden) -> None:
    cluster = write("c.json", *objects())
    result = run("explain", "pdb", "shop/wen", "--cluster", cluster)

    assert result.exit_code == 2
    assert "PodDisruptionBudget/shop/wen" in result.stderr
    golden(result.stderr.replace(str(cluster), "c.json"))

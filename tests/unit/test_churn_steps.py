"""The steps of a churn: the same seed or the same list changes a cluster in the same way."""

from __future__ import annotations

import ast
import base64
import itertools
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.fixtures import churn as churn_module
from tests.fixtures.churn import LARGE, SMALL, Churn, Step, regression_test, steps
from tests.fixtures.fault_proxy import HANG, WRITES, Fault
from trimtab.kube.api import NotFound


class FakeCluster:
    """Records what steps change."""

    usage = object()
    local = True
    pods_namespace = "shop"

    def __init__(self, *nodes: str) -> None:
        self._nodes = nodes
        self.changes: list[tuple[Any, ...]] = []

    def nodes(self, _: str) -> tuple[str, ...]:
        return self._nodes

    def leftovers(self) -> dict[str, list[str]]:
        return {}

    def __getattr__(self, name: str) -> Any:
        if name in ("silence", "taint", "untaint", "cordon", "leak", "resize", "write_policy"):
            return lambda *arguments, **named: self.changes.append((name, *arguments, *sorted(named)))
        raise AttributeError(name)


class FakeProcess(Struct, frozen=True):
    """A replica of the operator that runs."""

    pid: int
    kubeconfig: Path

    def running(self) -> bool:
        return True


def executed(planned: Iterable[Step], *nodes: str) -> list[tuple[Any, ...]]:
    cluster = FakeCluster(*nodes)
    Churn(cluster, SMALL).execute(planned, pause=0.0)  # type: ignore[arg-type]
    return cluster.changes


def test_steps_of_a_seed_are_the_same_and_have_each_kind_first() -> None:
    kinds = Churn(FakeCluster(), LARGE, everything=True, faults=[Fault(HANG, WRITES)]).kinds  # type: ignore[arg-type]

    first, again, other = (list(itertools.islice(steps(seed, kinds), 200)) for seed in (7, 7, 8))

    assert first == again != other
    assert {each.kind for each in first[: len(kinds)]} == set(kinds)
    assert first[0].kind == "leak"


def test_every_kind_has_a_method() -> None:
    churn = Churn(FakeCluster(), LARGE, everything=True, faults=[Fault(HANG, WRITES)])  # type: ignore[arg-type]

    assert [kind for kind in churn.kinds if not hasattr(churn, f"_{kind}")] == []


def test_step_changes_the_same_object_without_the_steps_before_it() -> None:
    nodes = [f"n{number}" for number in range(9)]
    planned = [Step("scale", 11), Step("burst", 12), Step("taint", 13), Step("scale", 14), Step("fail_node", 15)]

    whole = executed(planned, *nodes)

    assert executed(planned, *nodes) == whole
    assert executed(planned[2:], *reversed(nodes)) == whole[2:]
    assert [each[0] for each in whole] == ["resize", "resize", "taint", "resize", "silence"]


def test_step_without_an_object_to_change_has_no_effect() -> None:
    assert executed([Step("fail_node", 1), Step("recover_node", 2), Step("untaint", 3), Step("leak", 4)]) == []


def test_step_whose_object_is_gone_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise NotFound("gone")

    cluster = FakeCluster("n1")
    monkeypatch.setattr(cluster, "taint", gone, raising=False)

    Churn(cluster, SMALL).execute([Step("taint", 1), Step("scale", 2)], pause=0.0)  # type: ignore[arg-type]

    assert [each[0] for each in cluster.changes] == ["resize"]


@pytest.mark.parametrize("seconds", [0.0, 3600.0], ids=["by the timer", "at the end"])
def test_churn_records_each_continued_process_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seconds: float
) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"jti": "x"}).encode()).decode().rstrip("=")
    (tmp_path / "kubeconfig").write_text(f"token: head.{claims}.signature\n")
    monkeypatch.setattr(churn_module, "FROZEN_SECONDS", seconds)
    churn = Churn(FakeCluster(), SMALL)  # type: ignore[arg-type]
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as process:
        leader: Any = FakeProcess(process.pid, tmp_path / "kubeconfig")
        monkeypatch.setattr(churn, "_leader", lambda: leader)
        churn.execute([Step("freeze_leader", 1)], pause=0.0)
        if not seconds:
            churn._frozen[leader].join()
        churn.thaw()
        churn.thaw()

    assert [token for _, token in churn.continued] == ["JTI=x"]


def test_regression_test_repeats_the_steps() -> None:
    planned = [Step("taint", 3), Step("kill_leader", 99)]

    [function] = ast.parse(regression_test(planned, "seed_4", "LARGE")).body

    assert isinstance(function, ast.FunctionDef)
    assert function.name == "test_seed_4"
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and len(node.args) == 2]
    assert "repeat(request, tmp_path, part, LARGE)" in ast.unparse(function)
    assert [tuple(ast.literal_eval(each) for each in call.args) for call in calls] == [
        ("taint", 3),
        ("kill_leader", 99),
    ]

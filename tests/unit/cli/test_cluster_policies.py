"""The custom resources of trimtab in a cluster, for commands without ``--policy``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.golden import Golden
from trimtab.cli.cluster_policies import cluster_policies
from trimtab.inspection.live import POLICY_KINDS
from trimtab.kube.api import Forbidden, NotFound, Unreachable
from trimtab.kube.resources import NODE_PRESSURE_POLICIES, TAINT_MANAGERS


class Served:
    """An API server that serves some kinds, and raises errors for others."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers

    async def request(self, method: str, path: str, **_: Any) -> Any:
        answer = self._answers.get(path.rpartition("/")[2], NotFound("no such kind", status=404))
        if isinstance(answer, Exception):
            raise answer
        return {"metadata": {"resourceVersion": "7"}, "items": answer}


@pytest.fixture
def live(monkeypatch) -> Any:
    """``live(taintmanagers=[…])``: read the policies of a server with these kinds."""
    import asyncio

    def read(**answers: Any) -> list[tuple[str, Any]]:
        api = Served(answers)
        monkeypatch.setattr("trimtab.cli.live.with_api", lambda work, **_: asyncio.run(work(api)))
        return [(source, document.content) for source, document in cluster_policies(None)]

    return read


def test_items_of_lists_get_their_kind(live) -> None:
    [(source, manifest)] = live(nodepressurepolicies=[{"metadata": {"name": "workers"}, "spec": {}}])

    assert source == NODE_PRESSURE_POLICIES.name
    assert (manifest["kind"], manifest["apiVersion"]) == ("NodePressurePolicy", "trimtab.dev/v1alpha1")


def test_kinds_that_are_not_installed_are_empty(live) -> None:
    assert live() == []


def test_missing_permission_is_a_warning(live, capsys, golden: Golden) -> None:
    refused = Forbidden("taintmanagers is forbidden", status=403)

    assert live(taintmanagers=refused, nodepressurepolicies=[]) == []
    [line] = capsys.readouterr().err.splitlines()
    assert TAINT_MANAGERS.name in line
    golden(line)


def test_silent_server_is_an_error(live) -> None:
    from trimtab.cluster.loader import LoadFailed

    with pytest.raises(LoadFailed):
        live(taintmanagers=Unreachable("connection refused"))


def test_each_kind_of_policy_is_read() -> None:
    assert {each.kind for each in POLICY_KINDS} == {
        "ClusterAutoscaler",
        "DeschedulerPolicy",
        "MachineAutoscaler",
        "NodePressurePolicy",
        "PlacementAdmission",
        "SchedulerPolicy",
        "TaintManager",
    }

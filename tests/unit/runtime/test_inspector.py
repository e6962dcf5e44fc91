"""Answers from the operator's memory: the same as those of the command line, one joint plan for several of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tests.builders import node, pod
from tests.fakes.clock import SetClock
from tests.fixtures.story import GROUP, MACHINES, NOW, cluster
from trimtab.api.plan import Plan
from trimtab.cli.main import cli
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.cluster.workloads.pod_defaults import with_priorities
from trimtab.inspection import planning
from trimtab.inspection.history import entries_of
from trimtab.inspection.live import HISTORY_KINDS, POLICY_KINDS, policy_set
from trimtab.inspection.planning import CHANGED_SECONDS, UNCHANGED_SECONDS
from trimtab.inspection.status import status_document
from trimtab.kube.api import NotFound
from trimtab.kube.objects import Node
from trimtab.kube.wire.files.reader import read_objects
from trimtab.pressure.measurement import NodeMeasurement, NodeReadings, SignalValue
from trimtab.pressure.summary import no_pods
from trimtab.runtime.inspection.inspector import Inspector
from trimtab.runtime.inspection.questions import PREFIX, NotServed, parse_question

NOON = 1_795_176_000.0


class CustomResources:
    """An API server with the custom resources of the story, and nodes without managedFields."""

    def __init__(self) -> None:
        self.manifests = cluster()["items"]

    async def request(self, method: str, path: str, **_: Any) -> Any:
        assert method == "GET"
        for resource in (*POLICY_KINDS, *HISTORY_KINDS):
            if path == resource.path():
                return {"metadata": {}, "items": [each for each in self.manifests if each["kind"] == resource.kind]}
        if path.startswith("/api/v1/nodes/"):
            return {"metadata": {}}
        raise NotFound(path, status=404)

    def stream(self, *_: Any, **__: Any) -> Any:
        raise AssertionError


class Memory:
    """An operator that has the story in memory."""

    def __init__(self, file: Path) -> None:
        self.shared, self.clock, self.api = SharedSnapshot(), SetClock(NOON), CustomResources()
        for each in with_priorities(read_objects(file).objects):
            self.shared.apply(None, each)
        self.readings: dict[str, NodeReadings] | None = None
        self.inspector = Inspector(
            self.api, self.shared, not_ready=lambda: None, node_readings=lambda: self.readings, clock=self.clock
        )

    async def ask(self, path: str, query: str = "") -> Any:
        question = parse_question(f"{PREFIX}/{path}", query)
        assert question is not None
        return msgspec.json.decode(await self.inspector.answer(question))

    def policies(self) -> Any:
        return policy_set(each for each in self.api.manifests if each["kind"] in {kind.kind for kind in POLICY_KINDS})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "cluster.json"
    found.write_text(json.dumps(cluster()))
    return found


@pytest.fixture
def memory(file: Path) -> Memory:
    return Memory(file)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The joint plans that were made."""
    found: list[Plan] = []
    make = planning._make_joint_plan
    monkeypatch.setattr(planning, "_make_joint_plan", lambda given: found.append(make(given)) or found[-1])
    return found


@pytest.mark.parametrize(
    ("path", "query", "command"),
    [
        ("namespaces/shop/pods/web-1/explanation", "", "explain pod shop/web-1"),
        ("namespaces/shop/pods/big-1/explanation", "", "explain pod shop/big-1"),
        ("namespaces/shop/pods/gone-1/explanation", "", "explain pod shop/gone-1"),
        ("nodes/a1/explanation", "", "explain node a1"),
        ("namespaces/shop/poddisruptionbudgets/db/explanation", "", "explain pdb shop/db"),
        ("disruptionbudgets/current", "", "explain pdb"),
        ("disruptionbudgets/current", "namespace=batch", "explain pdb -n batch"),
        ("nodegroups/workers/explanation", "", "explain nodegroup workers"),
        ("nodegroups/workers/explanation", f"namespace={MACHINES}", f"explain nodegroup {GROUP}"),
        ("nodegroups/workers/explanation", f"id=MachineSet/{GROUP}", f"explain nodegroup MachineSet/{GROUP}"),
        ("nodegroups/current", "", "explain nodegroup"),
        ("policies/default/explanation", "kind=DeschedulerPolicy", "explain policy dp/default"),
        ("policies/default/explanation", "kind=ClusterAutoscaler", "explain policy ca/default"),
        ("protections/current", "", "explain protections"),
        ("protections/current", "namespace=batch", "explain protections -n batch"),
        ("plans/current", "", "plan"),
    ],
)
async def test_answer_equals_the_one_of_the_command(
    memory: Memory, file: Path, path: str, query: str, command: str
) -> None:
    arguments = [*command.split(), "--cluster", str(file), "--now", NOW, "-o", "json"]
    printed = CliRunner().invoke(cli, arguments, prog_name="trimtab")
    assert printed.exit_code == 0, printed.stderr

    assert await memory.ask(path, query) == json.loads(printed.stdout)


async def test_documents_show_trends_of_what_the_operator_has_read(memory: Memory) -> None:
    memory.api.manifests.append(
        {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "NodePressurePolicy",
            "metadata": {"name": "default", "uid": "np"},
            "spec": {"mode": "Act", "evictionHard": {"memory.available": "1Gi"}},
        }
    )
    with pytest.raises(NotServed) as caught:
        await memory.ask("nodes/a1/explanation")
    assert caught.value.status == 503, "this process reads no nodes"

    measured = [
        NodeMeasurement(
            node="a1",
            source="Summary",
            read_at=NOON - age,
            signals={"memory.available": SignalValue((1800 + 10 * age) << 20, 16 << 30, NOON - age)},
            pods=no_pods,
        )
        for age in (20, 10, 0)
    ]
    memory.readings = {"a1": NodeReadings(measured[-1], measured)}
    pressure = (await memory.ask("nodes/a1/explanation"))["pressure"]
    [signal] = pressure["signals"]
    assert signal["perSecond"] == -10 * 2**20
    assert {each["by"]: each["secondsTo"] for each in signal["thresholds"]} == {"Policy": 77, "Kubelet": 170}
    assert "pods" not in pressure, "their usage is not kept for a node without pressure"
    assert pressure in (await memory.ask("plans/current"))["nodePressure"]


async def test_status_contains_all_resources_and_not_the_operators_own_state(memory: Memory) -> None:
    history = entries_of(each for each in memory.api.manifests if each["kind"] == "HistoryRecord")

    found = await memory.ask("statuses/current")

    assert found == msgspec.to_builtins(status_document(memory.policies(), now=NOON, history=history))
    assert found["operator"] is None


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("nodegroups/nowhere/explanation", "", 404),
        ("nodegroups/workers/explanation", "id=MachineSet/x/workers", 404),
        ("nodegroups/workers/explanation", "namespace=shop", 404),
        ("nodegroups/workers/explanation", "id=a&id=b", 400),
        ("policies/nowhere/explanation", "", 404),
        ("policies/default/explanation", "", 400),
        ("policies/default/explanation", "kind=SchedulerPolicy", 404),
    ],
)
async def test_unknown_and_ambiguous_names_are_refused(memory: Memory, path: str, query: str, status: int) -> None:
    with pytest.raises(NotServed) as caught:
        await memory.ask(path, query)
    assert caught.value.status == status


async def test_questions_share_a_plan_until_it_is_too_old(memory: Memory, plans: list[Plan]) -> None:
    await memory.ask("nodes/a1/explanation")
    await memory.ask("namespaces/shop/pods/web-1/explanation")
    memory.clock.time = NOON + UNCHANGED_SECONDS - 1
    await memory.ask("plans/current")
    assert len(plans) == 1
    memory.clock.time = NOON + UNCHANGED_SECONDS
    await memory.ask("plans/current")
    assert len(plans) == 2


async def test_plan_of_a_changed_cluster_is_used_for_seconds(memory: Memory, plans: list[Plan]) -> None:
    await memory.ask("plans/current")
    added = pod("new").on("a1").build()
    memory.shared.apply(None, added)
    memory.clock.time = NOON + CHANGED_SECONDS - 1
    assert (await memory.ask(f"namespaces/{added.namespace}/pods/new/explanation"))["state"] == "Running"
    assert len(plans) == 1
    memory.clock.time = NOON + CHANGED_SECONDS
    await memory.ask("plans/current")
    assert len(plans) == 2


async def test_changed_policy_is_planned_at_once(memory: Memory, plans: list[Plan]) -> None:
    await memory.ask("plans/current")
    [policy] = [each for each in memory.api.manifests if each["kind"] == "DeschedulerPolicy"]
    policy["metadata"]["generation"] = 2
    memory.clock.time = NOON + CHANGED_SECONDS - 1
    await memory.ask("plans/current")
    assert len(plans) == 2


async def test_every_change_of_the_snapshot_has_a_revision() -> None:
    shared = SharedSnapshot()
    node_: Node = node("n1").build()
    before = shared.revision
    shared.apply(None, node_)
    async with shared.borrow():
        shared.apply(node_, None)
    assert shared.revision == before + 2


async def test_questions_rest_after_they_have_used_the_snapshot_for_long(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question takes 5 s. After two of them, the rest that they owe is longer than a client waits."""
    seconds = iter(range(0, 1000, 5))
    monkeypatch.setattr("trimtab.runtime.inspection.inspector.time.perf_counter", lambda: next(seconds))

    async def status() -> int:
        try:
            await memory.ask("statuses/current")
        except NotServed as error:
            return error.status
        return 200

    assert [await status() for _ in range(3)] == [200, 200, 429]
    memory.clock.time += 60
    assert await status() == 200


def test_parameters_are_part_of_the_question() -> None:
    found = parse_question(f"{PREFIX}/policies/default/explanation", "kind=DeschedulerPolicy")
    assert found is not None
    assert found.value("kind") == "DeschedulerPolicy"
    params: Mapping[str, Any] = dict(found.params)
    assert params == {"kind": ("DeschedulerPolicy",)}

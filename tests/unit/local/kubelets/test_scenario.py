from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from trimtab.kube.errors import InputError
from trimtab.kube.objects import Node, Pod
from trimtab_local.kubelets.controller import ScenarioFile
from trimtab_local.kubelets.scenario import Curve, Scenario, Step, read_scenario

MI = 2**20
EXAMPLES = Path(__file__).parents[4] / "examples" / "local" / "kubelets"


@pytest.mark.parametrize(
    ("curve", "amounts"),
    [
        (Curve(start="1Mi"), {0: MI, 100: MI}),
        (Curve(start="1Mi", per_second="2Mi"), {0: MI, 10: 21 * MI}),
        (Curve(start="1Mi", per_second="2Mi", max="5Mi"), {1: 3 * MI, 10: 5 * MI}),
        (Curve(start="5Mi", per_second="-1Mi"), {2: 3 * MI, 10: 0}),
        (
            Curve(start=1, steps=(Step(after="10s", value=7), Step(after="20s", value=3, per_second=2))),
            {0: 1, 9.9: 1, 10: 7, 19: 7, 20: 3, 25: 13},
        ),
        (Curve(start=1, steps=(Step(after="10s", value=7),), period="20s"), {5: 1, 15: 7, 25: 1, 35: 7}),
    ],
    ids=["constant", "ramp", "limit", "falls to 0", "steps", "period"],
)
def test_curve_has_these_amounts_after_seconds(curve: Curve, amounts: dict[float, int]) -> None:
    assert {after: curve.at(1000.0 + after, created=1000.0) for after in amounts} == amounts


def test_curve_begins_at_the_later_of_its_time_and_the_creation() -> None:
    curve = msgspec.convert({"start": 1, "perSecond": 1, "since": "1970-01-01T00:10:00Z"}, Curve)

    assert curve.at(590.0, created=0.0) == 1
    assert curve.at(610.0, created=0.0) == 11
    assert curve.at(710.0, created=700.0) == 11


def test_first_matching_entry_applies() -> None:
    scenario = msgspec.convert(
        {
            "nodes": [{"labels": {"pool": "a"}, "measureEvery": "1s"}, {"measureEvery": "2s"}],
            "pods": [
                {"namespace": "shop", "labels": {"app": "web"}, "nodes": {"names": ["a-*"]}, "memory": {"start": 1}},
                {"namespace": "shop", "memory": {"start": 2}},
            ],
            "faults": [{"names": ["a-2", "b-*"], "fault": "Garbage"}, {"names": ["a-2"]}],
        },
        Scenario,
    )
    one, two = Node(name="a-1", labels={"pool": "a"}), Node(name="b-1")
    web, other = Pod("shop", "web-1", labels={"app": "web"}), Pod("shop", "db-1")

    assert (scenario.node(one).measure_every, scenario.node(two).measure_every) == ("1s", "2s")
    assert [scenario.pod(web, one).memory.start, scenario.pod(web, two).memory.start] == [1, 2]
    assert scenario.pod(other, one).memory.start == 2
    assert scenario.pod(Pod("bank", "web-1"), one).memory.start == "32Mi"
    assert [scenario.fault(Node(name=name)) for name in ("a-1", "a-2", "b-9")] == [None, "Garbage", "Garbage"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes: [{memory: {capacity: 5X}}]", "is not a quantity"),
        ("nodes: [{memory: {used: {start: 5X}}}]", "is not a quantity"),
        ("nodes: [{nodefs: {inodes: x}}]", "is not a quantity"),
        ("nodes: [{measureEvery: soon}]", "must be a duration"),
        ("nodes: [{evictionHard: {memory.free: 1Gi}}]", "no signal 'memory.free'"),
        ("nodes: [{evictionHard: {memory.available: 200%}}]", "percentage from 0% to 100%"),
        ("pods: [{memory: {steps: [{after: 9s, value: 1}, {after: 3s, value: 2}]}}]", "ascending order"),
        ("pods: [{memory: {period: 0s}}]", "period must be longer"),
        ("pods: [{cpu: {start: 1}}]", "unknown field `cpu`"),
        ("faults: [{fault: Lazy}]", "Invalid enum value 'Lazy'"),
        ("- 1", "Expected `object`"),
        ("{}\n---\n{}", "2 documents"),
    ],
)
def test_invalid_files_are_reported_with_their_name(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "stats.yaml"
    path.write_text(text)

    with pytest.raises(InputError) as found:
        read_scenario(path)

    assert message in str(found.value)
    assert found.value.source == str(path)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_valid(path: Path) -> None:
    assert read_scenario(path).nodes


def test_file_is_read_again_when_it_changes_and_an_invalid_one_has_no_effect(tmp_path: Path) -> None:
    path = tmp_path / "stats.yaml"

    def write(text: str, at: int) -> None:
        path.write_text(text)
        os.utime(path, (at, at))

    write("faults: [{names: [a]}]", 1)
    file = ScenarioFile(path)
    first = file.scenario
    assert not file.refresh()

    write("faults: [{fault: Lazy}]", 2)
    assert not file.refresh()
    assert file.scenario is first

    write("", 3)
    assert file.refresh()
    assert file.scenario == Scenario()


def test_without_a_file_all_nodes_have_the_defaults() -> None:
    file = ScenarioFile(None)

    assert not file.refresh()
    assert file.scenario.node(Node(name="a")).kills

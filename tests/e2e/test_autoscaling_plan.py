"""``trimtab plan`` on a live cluster predicts what the controller does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.e2e.conftest import Start
from tests.fixtures.autoscaling import Fleet, plan


def grows(said: dict[str, Any]) -> dict[str, int]:
    """The node groups that the plan scales up, with their new sizes."""
    return {
        action["machineSet"].partition("/")[2]: action["to"]
        for action in said["actions"]
        if action["action"] == "ScaleUp"
    }


def goes(said: dict[str, Any]) -> set[str]:
    """The nodes that the plan removes."""
    return {action["node"] for action in said["actions"] if action["action"] == "RemoveNode"}


def waiting(fleet: Fleet, app: str) -> int:
    """The number of pods that the scheduler has reported as unschedulable."""
    return sum(
        any(
            (each["type"], each["status"], each.get("reason")) == ("PodScheduled", "False", "Unschedulable")
            for each in pod["status"].get("conditions") or ()
        )
        for pod in fleet.pods(app)
    )


def test_plan_command_predicts_the_scale_up(fleet: Fleet, operate: Start, tmp_path: Path) -> None:
    fleet.group("a", maximum=3, cpu="4")
    fleet.group("b", maximum=10, cpu="8", memory="32Gi")
    fleet.group("c", maximum=10, cpu="1", memory="2Gi")
    fleet.autoscale()
    fleet.deploy("web", 12)
    fleet.deploy("picky", 2, nodeSelector={"pool": "b"})
    fleet.until(lambda: waiting(fleet, "web") == 12 and waiting(fleet, "picky") == 2, "the scheduler has said so")

    said = grows(plan(fleet, tmp_path / "plan"))

    assert said
    assert "c" not in said
    operate()
    fleet.until_running("web", 12)
    fleet.until_running("picky", 2)
    assert {name: size for name, size in fleet.sizes("a", "b", "c").items() if size} == said


def test_simulate_mode_changes_nothing_and_predicts_the_scale_down(
    fleet: Fleet, operate: Start, tmp_path: Path
) -> None:
    fleet.group("a", replicas=4, maximum=5)
    fleet.deploy("web", 3, cpu="400m")
    fleet.until_running("web", 3)
    nodes = set(fleet.nodes("a"))
    fleet.autoscale(mode="Simulate")
    operate()
    fleet.deploy("more", 9, cpu="3")  # needs more nodes than there may be
    fleet.until(lambda: len(fleet.where("more")) == 4, "as many run as there is room for")
    fleet.iterate_twice()
    assert fleet.size("a") == 4
    fleet.resize("more", 0)
    fleet.until(lambda: len(fleet.status().get("unneeded", ())) >= 3, "the status records who is not needed")
    fleet.until(lambda: len(goes(plan(fleet, tmp_path / "plan"))) == 3, "the plan removes three nodes")

    said = goes(plan(fleet, tmp_path / "plan"))

    assert fleet.size("a") == 4
    assert not fleet.leftovers()
    assert not fleet.audit.ours("nodes", "machines", "machinesets/scale", verbs=("patch", "update"))
    fleet.change(mode="Act")
    fleet.until_sizes(a=1)
    assert set(fleet.nodes("a")) == nodes - said
    assert fleet.until_running("web", 3).total() == 3

"""``trimtab plan`` where nodes may be replaced, and where a group without nodes is known by its last one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.fixtures.golden import Golden
from tests.unit.autoscaling.replacement_cluster import World, group, web, worker
from tests.unit.autoscaling.scale_up_helpers import pending_pod
from tests.unit.autoscaling.test_learned_nodes import recorded, settled, workers

NOW = "2026-11-20T12:00:00Z"

AUTOSCALER = """\
apiVersion: autoscaling.openshift.io/v1
kind: ClusterAutoscaler
metadata: {name: default}
spec:
  scaleDown: {enabled: true, replace: Enabled, replaceThreshold: "0.2"}
"""
OPEN = """\
status:
  replacements:
  - nodes: [{name: n1}]
    groups: [{id: MachineSet/openshift-machine-api/small, from: 0, to: 2}]
    since: "2026-11-20T11:50:00Z"
    deadline: "2026-11-20T12:50:00Z"
"""


@pytest.fixture
def plan(run: Any, write: Any, tmp_path: Any) -> Any:
    def made(world: Any, policy: str = AUTOSCALER, form: str = "json") -> Any:
        path = tmp_path / "policy.yaml"
        path.write_text(policy)
        cluster = write("c.json", *world)
        result = run("plan", "--cluster", cluster, "--policy", path, "--now", NOW, "-o", form)
        assert (result.exit_code, result.stderr) == (0, "")
        return msgspec.json.decode(result.stdout) if form == "json" else result.stdout

    return made


def dear() -> list[Any]:
    big, small = group("big", "0.8", size=1, cpu="8"), group("small", "0.3", cpu="4")
    return [big, small, *worker("n1", big, cpu="8"), *(web(f"web-{each}", "n1") for each in range(5))]


def test_replacement_is_an_action(plan: Any, golden: Golden) -> None:
    document = plan(dear())

    (action,) = document["actions"]
    assert (action["action"], action["reason"], action["from"], action["to"]) == ("ScaleUp", "Replacement", 0, 2)
    assert action["pods"] == []
    golden(action["message"])


def test_too_expensive_replacement_is_kept_with_numbers(plan: Any, golden: Golden) -> None:
    text = plan(dear(), AUTOSCALER.replace("0.2", "0.3"), form="table")

    assert "Kept: NotCheaper (1)" in text
    golden(text)


def test_page_shows_replacements(plan: Any) -> None:
    assert "Replacement" in plan(dear(), form="html")


def test_status_continues_a_replacement(plan: Any) -> None:
    world = World(dear())
    small = world.builders["MachineSet/openshift-machine-api/small"].replicas(2)
    new = [each for name in ("s1", "s2") for each in worker(name, small, created="2026-11-20T11:51:00Z")]

    document = plan([*world.builders.values(), *new], AUTOSCALER + OPEN)

    assert [(each["node"], each["reason"]) for each in document["actions"]] == [("n1", "Replacement")]
    assert {each["reason"] for each in document["kept"] if each["name"] in ("s1", "s2")} == {"ReplacementInProgress"}


def test_empty_group_uses_its_learned_node(plan: Any, golden: Golden) -> None:
    world = recorded(workers(), settled(cpu="2").labels(disk="ssd"))
    world.owner.replicas(0)

    document = plan([world.owner, pending_pod("a").node_selector(disk="ssd")])

    (action,) = document["actions"]
    golden(action["message"])

"""Survival tables: every node or zone fails in turn."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import node, pod
from trimtab.cluster.snapshot import Snapshot
from trimtab.inspection.cluster import ClusterInput
from trimtab.inspection.survival import failure_selections, merge_tables, part_of, survival_table, survive_each
from trimtab.kube.errors import InputError


def cluster() -> ClusterInput:
    """Zone a can fail, zone b cannot, and n3 has a pod without a controller."""
    objects = [node("n1").zone("a"), node("n2").zone("b"), node("n3").zone("b")]
    objects += [pod(f"web-{number}").on("n2").cpu("1500m").owned_by("ReplicaSet", "web") for number in range(2)]
    objects += [pod(f"big-{number}").on("n3").cpu("3").owned_by("ReplicaSet", "big") for number in range(1)]
    objects.append(pod("bare").on("n3"))
    return ClusterInput(snapshot=Snapshot(each.build() for each in objects), now=0.0)


def table(each: str, *, processes: int = 1) -> dict[str, Any]:
    made = cluster()
    rows = survive_each(made, failure_selections(made.snapshot, each), processes=processes)
    return survival_table(each, rows)


def test_worst_failure_comes_first() -> None:
    found = table("zone")

    assert [row["without"].partition("=")[2] for row in found["failures"]] == ["b", "a"]
    assert (found["failures"][0]["pending"], found["failures"][0]["lost"]) == (2, 1)
    assert found["summary"] == {"failures": 2, "survived": 1}


def test_processes_give_the_same_table() -> None:
    assert table("node", processes=2) == table("node")


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_merged_parts_equal_the_whole_table(parts: int) -> None:
    made = cluster()
    selections = failure_selections(made.snapshot, "node")
    tables = [
        survival_table("node", survive_each(made, part_of(selections, index, parts)), part=f"{index}/{parts}")
        for index in range(parts)
    ]

    assert merge_tables(tables) == table("node")


def test_tables_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(InputError, match="different labels"):
        merge_tables([table("node"), table("zone")])
    with pytest.raises(InputError, match="two tables"):
        merge_tables([table("node"), table("node")])


def test_unknown_label_is_refused() -> None:
    with pytest.raises(InputError, match="no node has the label"):
        failure_selections(cluster().snapshot, "rack")

"""The survival table: what would happen if each node, or the nodes with each value of a label, failed.

Example::

    selections = failure_selections(cluster.snapshot, "zone")
    rows = survive_each(cluster, selections, processes=4)
    document = survival_table("zone", rows)
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from trimtab.cluster.snapshot import Snapshot
from trimtab.inspection.cluster import ClusterInput
from trimtab.inspection.forecast import what_if
from trimtab.inspection.scenario import SHORT_LABELS, NodeSelection, Scenario, label_values
from trimtab.kube.errors import InputError

Document = dict[str, Any]

NODE: Final = "node"
"""The value of ``--each`` with which every node fails in turn."""

COUNTED: Final = ("nodes", "rescheduled", "pending", "lost", "preempted", "nodesAdded", "budgetsViolated")
"""Counts of a forecast that the table contains."""


def failure_selections(snapshot: Snapshot, each: str) -> list[NodeSelection]:
    """Return the selections that fail in turn.

    Args:
        snapshot: the cluster.
        each: ``node``, ``zone``, ``region`` or the key of a label.

    Raises:
        InputError: no node has the label, or there are no nodes.
    """
    if each == NODE:
        names = sorted(snapshot.nodes.slot_of)
        if not names:
            raise InputError("the cluster has no nodes")
        return [NodeSelection("node", name) for name in names]
    key = SHORT_LABELS.get(each, each)
    return [NodeSelection("label", key, value) for value in label_values(snapshot, each)]


def part_of(selections: Sequence[NodeSelection], index: int, parts: int) -> Sequence[NodeSelection]:
    """Return every ``parts``-th selection from ``index`` on: the share of one worker."""
    return selections[index::parts]


def survive(cluster: ClusterInput, scenario: Scenario, selection: NodeSelection) -> Document:
    """Return the row of one selection that fails in addition to a scenario."""
    combined = Scenario(
        without=(*scenario.without, selection), drain=scenario.drain, add=scenario.add, apply=scenario.apply
    )
    counts = what_if(cluster, combined, descheduling=False)["summary"]
    return {"without": str(selection), **{key: counts[key] for key in COUNTED}}


def survive_each(
    cluster: ClusterInput,
    selections: Sequence[NodeSelection],
    scenario: Scenario = Scenario(),  # noqa: B008 - it is immutable
    *,
    processes: int = 1,
    on_progress: Callable[[int], None] | None = None,
) -> list[Document]:
    """Return the rows of several selections, in the order of completion.

    Args:
        cluster: the cluster.
        selections: the nodes that fail, one selection after another.
        scenario: further changes that apply to all rows.
        processes: number of processes. They share the loaded snapshot, because they are forked.
        on_progress: called with the number of completed rows.
    """
    rows: list[Document] = []
    processes = min(processes, len(selections))
    if processes <= 1:
        for each in selections:
            rows.append(survive(cluster, scenario, each))
            if on_progress is not None:
                on_progress(len(rows))
        return rows
    context = multiprocessing.get_context("fork")
    with context.Pool(processes, initializer=_start, initargs=(cluster, scenario)) as pool:
        for row in pool.imap_unordered(_row, selections, chunksize=max(1, min(16, len(selections) // processes // 4))):
            rows.append(row)
            if on_progress is not None:
                on_progress(len(rows))
    return rows


_worker: list[tuple[ClusterInput, Scenario]] = []
"""The cluster and the scenario of a forked worker process."""


def _start(cluster: ClusterInput, scenario: Scenario) -> None:
    _worker[:] = [(cluster, scenario)]


def _row(selection: NodeSelection) -> Document:
    cluster, scenario = _worker[0]
    return survive(cluster, scenario, selection)


def survival_table(each: str, rows: Iterable[Document], *, part: str = "") -> Document:
    """Return the document of ``trimtab what-if --each``, kind ``SurvivalTable``. The worst failure comes first.

    Args:
        each: the label or ``node``.
        rows: the rows, in any order.
        part: the share of a worker as ``INDEX/PARTS``; empty for a complete table.
    """
    ordered = sorted(
        rows, key=lambda row: (-row["pending"], -row["lost"], -row["nodesAdded"], -row["rescheduled"], row["without"])
    )
    document: Document = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "SurvivalTable", "each": each}
    if part:
        document["part"] = part
    survived = sum(not row["pending"] and not row["lost"] for row in ordered)
    return {**document, "failures": ordered, "summary": {"failures": len(ordered), "survived": survived}}


def merge_tables(tables: Sequence[Document]) -> Document:
    """Merge the tables of all workers into the complete table.

    Raises:
        InputError: there are no tables, the tables are for different labels, or some failure is in two of them.
    """
    labels = sorted({table["each"] for table in tables})
    if len(labels) != 1:
        raise InputError(f"the tables are for different labels: {', '.join(labels) or 'none'}")
    rows = [row for table in tables for row in table["failures"]]
    names = [row["without"] for row in rows]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise InputError(f"{twice} is in two tables; the workers read different clusters")
    return survival_table(labels[0], rows)

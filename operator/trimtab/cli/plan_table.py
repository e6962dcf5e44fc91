"""A plan as tables, for people."""

from __future__ import annotations

from typing import Any, Final

import click

from trimtab.api.plan import SURGE
from trimtab.api.pod_deletion import BY_EVICTION

SHOWN: Final = 5
"""Rows of each reason that are shown of what was kept, unless ``--all`` is given."""

SHOWN_DELETIONS: Final = 20
"""Rows that are shown of pods that go because of taints, unless ``--all`` is given: those that go first."""

SHOWN_TAINTS: Final = 20
"""Rows that are shown of taints that are put on nodes and taken off, unless ``--all`` is given."""


def show(document: dict[str, Any], *, everything: bool) -> None:
    """Print a plan for people: how much, then what is done, then what is kept, by reason.

    Args:
        document: of :meth:`trimtab.api.plan.Plan.document`.
        everything: all that is kept, however long.
    """
    from trimtab.cli.output import echo, table

    counts = document["summary"]
    done = ", ".join(f"{number} {action}" for action, number in counts.items() if number and action != "kept")
    echo(f"{click.style('Plan', bold=True)} for {document['now']}: {done or 'nothing to do'}; {counts['kept']} kept")
    evictions = [action for action in document["actions"] if action["action"] == "Evict"]
    scaling = [action for action in document["actions"] if action["action"] == "ScaleUp"]
    removals = [action for action in document["actions"] if action["action"] == "RemoveNode"]
    if scaling:
        echo()
        echo(table(["MACHINES", "FROM", "TO", "PODS", "REASON", "MESSAGE"], _scaling_rows(scaling)))
    if removals:
        echo()
        echo(table(["NODE", "MACHINES", "PODS", "REASON", "MESSAGE"], _removal_rows(removals)))
    if evictions:
        echo()
        echo(table(["POLICY", "STRATEGY", "POD", "FROM", "TO", "REASON", "MESSAGE"], _action_rows(evictions)))
    taints = _taint_rows(document["actions"])
    _show_first(["NODE", "ACTION", "TAINT", "REASON", "MESSAGE"], taints, None if everything else SHOWN_TAINTS)
    deletions = _deletion_rows(document["actions"])
    _show_first(["DUE", "POD", "NODE", "REASON", "MESSAGE"], deletions, None if everything else SHOWN_DELETIONS)
    for reason, kept in _by_reason(document["kept"]):
        rows = kept if everything else kept[:SHOWN]
        echo()
        echo(f"{click.style('Kept', bold=True)}: {reason} ({len(kept)})")
        echo(table([], [_kept_row(each) for each in rows], indent="  "))
        if len(rows) < len(kept):
            echo(f"  … and {len(kept) - len(rows)} more (--all shows them)")


def _show_first(headers: list[str], rows: list[list[str]], most: int | None) -> None:
    """A table of the first rows, and how many more there are; nothing where there are none."""
    from trimtab.cli.output import echo, table

    if not rows:
        return
    shown = rows[:most]
    echo()
    echo(table(headers, shown))
    if len(shown) < len(rows):
        echo(f"… and {len(rows) - len(shown)} more (--all shows them)")


def _scaling_rows(actions: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            action["group"],
            str(action["from"]),
            str(action["to"]),
            str(len(action["pods"])),
            action["reason"],
            action["message"],
        ]
        for action in actions
    ]


def _removal_rows(actions: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [action["node"], action["group"], str(len(action["moves"])), action["reason"], action["message"]]
        for action in actions
    ]


def _action_rows(actions: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            action["policy"],
            action["strategy"],
            f"{action['namespace']}/{action['pod']}",
            action["node"],
            (action["target"] or "-") + (" (surge)" if action.get("how") == SURGE else ""),
            action["reason"],
            action["message"],
        ]
        for action in actions
    ]


def _taint_rows(actions: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            action["node"],
            action["action"],
            f"{action['taint']['key']}:{action['taint']['effect']}",
            action["reason"],
            action["message"],
        ]
        for action in actions
        if action["action"] in ("Taint", "Untaint")
    ]


def _deletion_rows(actions: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            action["due"],
            f"{action['namespace']}/{action['pod']}" + (" (evict)" if action.get("how") == BY_EVICTION else ""),
            action["node"],
            action["reason"],
            action["message"],
        ]
        for action in actions
        if action["action"] == "Delete"
    ]


def _kept_row(kept: dict[str, Any]) -> list[str]:
    name = f"{kept['namespace']}/{kept['name']}" if kept["namespace"] else kept["name"]
    named = name if kept["kind"] == "Pod" else f"{kept['kind']} {name}".strip()
    return [named, kept.get("node", ""), kept["strategy"], kept["message"]]


def _by_reason(kept: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """What was kept by reason, the most frequent reason last: the rare ones are those that one looks for."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for each in kept:
        groups.setdefault(each["reason"], []).append(each)
    return sorted(groups.items(), key=lambda group: (len(group[1]), group[0]))

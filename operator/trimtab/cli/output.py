"""Output of commands: documents as JSON or YAML, and tables."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Final

import click
import msgspec

from trimtab.api.plan import BY_EVICTION, SURGE
from trimtab.kube.printable import printable, printable_lines
from trimtab.kube.rules.quantity import format_bytes

_BOLD: Final = re.compile("(\x1b\\[1m|\x1b\\[0m)")
"""The control sequences of bold headings. No other control sequences are printed."""

_NOT_IN_JSON: Final = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters that JSON permits unescaped but terminals interpret."""


def emit(document: Any, form: str) -> None:
    """Print a document. Keys keep their order, so that identical documents have identical output.

    Args:
        document: the document as dictionaries, lists and scalars.
        form: ``json`` (indented by two) or ``yaml``.
    """
    click.echo(encode(document, form), nl=False)  # bytes, as the output is UTF-8 regardless of the terminal's encoding


def encode(document: Any, form: str) -> bytes:
    """Return a document as UTF-8 text, see :func:`emit`."""
    if form != "json":
        return msgspec.yaml.encode(document)
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    return _NOT_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode()


def emit_all(objects: Sequence[Any], form: str) -> None:
    """Print objects as YAML documents, or as one JSON document. Several objects are printed as a v1 List in JSON.

    Args:
        objects: one or several objects.
        form: ``json`` or ``yaml``.
    """
    if form == "json":
        emit(objects[0] if len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(objects)}, form)
        return
    for number, each in enumerate(objects):
        if number:
            click.echo(b"---\n", nl=False)
        emit(each, form)


def echo(text: str = "") -> None:
    """Print text with control characters removed, because names and annotations in the cluster may contain some.

    Headings are bold only on terminals, and only if ``NO_COLOR`` is not set (no-color.org).

    Args:
        text: one or several lines.
    """
    parts = _BOLD.split(text)
    clean = "".join(part if _BOLD.fullmatch(part) else printable_lines(part) for part in parts)
    click.echo(clean, color=False if os.environ.get("NO_COLOR") else None)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, indent: str = "") -> str:
    """Format a table like kubectl: columns are as wide as their widest cell and three spaces apart.

    Args:
        headers: the column headers, printed in bold. If empty, there is no header line.
        rows: the cells of each row. Control characters and line breaks are escaped.
        indent: the prefix of each line.
    """
    lines = [*([headers] if headers else []), *([printable(cell) for cell in row] for row in rows)]
    if not lines:
        return ""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    texts = [
        indent + "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    if headers:
        texts[0] = click.style(texts[0], bold=True)
    return "\n".join(texts)


SHOWN: Final = 5
"""Number of kept candidates that are shown for each reason, except with ``--all``."""

SHOWN_DELETIONS: Final = 20
"""Number of pods with a taint deadline that are shown, earliest first, except with ``--all``."""

SHOWN_TAINTS: Final = 20
"""Number of taint changes that are shown, except with ``--all``."""

SHOWN_ADMISSIONS: Final = 20
"""Number of objects that placement admission would refuse or change that are shown, except with ``--all``."""

SHOWN_SCHEDULING: Final = 20
"""Number of bindings and preemptions that are shown, except with ``--all``."""


SHOWN_PODS: Final = 5
"""Number of pods in the eviction order of a node that are shown, except with ``--all``."""

SHOWN_PRESSURE: Final = 5
"""Number of nodes whose signals are shown, those that are closest to a threshold first, except with ``--all``."""


def show_plan(document: dict[str, Any], *, everything: bool) -> None:
    """Print a plan as a summary and tables of the actions and, by reason, of the candidates that are kept.

    Args:
        document: the result of :meth:`trimtab.api.plan.Plan.document`.
        everything: whether to show all rows.
    """
    counts = document["summary"]
    other = ("kept", "hourlyCost", "savings")
    done = ", ".join(f"{number} {action}" for action, number in counts.items() if number and action not in other)
    echo(f"{click.style('Plan', bold=True)} for {document['now']}: {done or 'nothing to do'}; {counts['kept']} kept")
    if "savings" in counts:
        net = counts["savings"] - counts["hourlyCost"]
        change = f"saves {net:g}" if net >= 0 else f"costs {-net:g} more"
        cost = f"new nodes cost {counts['hourlyCost']:g}, removed nodes save {counts['savings']:g}"
        echo(f"Price per hour: {cost}; in total, the plan {change}")
    evictions = [action for action in document["actions"] if action["action"] == "Evict"]
    scaling = [action for action in document["actions"] if action["action"] == "ScaleUp"]
    removals = [action for action in document["actions"] if action["action"] == "RemoveNode"]
    if scaling:
        echo()
        echo(table(["NODE GROUP", "FROM", "TO", "PODS", "REASON", "MESSAGE"], _scaling_rows(scaling)))
    if removals:
        echo()
        echo(table(["NODE", "NODE GROUP", "PODS", "REASON", "MESSAGE"], _removal_rows(removals)))
    if evictions:
        echo()
        echo(table(["POLICY", "STRATEGY", "POD", "FROM", "TO", "REASON", "MESSAGE"], _action_rows(evictions)))
    for each in _notable_pressure(document, everything=everything):
        echo()
        show_node_pressure(each, most=None if everything else SHOWN_PODS)
    scheduling = _scheduling_rows(document["actions"])
    _show_first(
        ["POLICY", "ACTION", "POD", "NODE", "REASON", "MESSAGE"], scheduling, None if everything else SHOWN_SCHEDULING
    )
    taints = _taint_rows(document["actions"])
    _show_first(["NODE", "ACTION", "TAINT", "REASON", "MESSAGE"], taints, None if everything else SHOWN_TAINTS)
    deletions = _deletion_rows(document["actions"])
    _show_first(["DUE", "POD", "NODE", "REASON", "MESSAGE"], deletions, None if everything else SHOWN_DELETIONS)
    admissions = _admission_rows(document["actions"])
    _show_first(["ACTION", "OBJECT", "RULE", "REASON", "MESSAGE"], admissions, None if everything else SHOWN_ADMISSIONS)
    for reason, kept in _by_reason(document["kept"]):
        rows = kept if everything else kept[:SHOWN]
        echo()
        echo(f"{click.style('Kept', bold=True)}: {reason} ({len(kept)})")
        echo(table([], [_kept_row(each) for each in rows], indent="  "))
        if len(rows) < len(kept):
            echo(f"  … and {len(kept) - len(rows)} more (--all shows them)")


def _notable_pressure(document: dict[str, Any], *, everything: bool) -> list[dict[str, Any]]:
    """Return the nodes whose signals are shown: under pressure or unknown, then those closest to a threshold."""
    nodes = document.get("nodePressure", [])
    if everything:
        return list(nodes)
    return sorted(nodes, key=lambda each: (not each.get("reason"), _least_distance(each), each["node"]))[
        :SHOWN_PRESSURE
    ]


def _least_distance(found: dict[str, Any]) -> float:
    """Return the smallest distance of a signal to a threshold of the policy, as a share of its capacity."""
    return min(
        (
            threshold["distance"] / signal["capacity"]
            for signal in found.get("signals", ())
            for threshold in signal["thresholds"]
            if threshold["by"] == "Policy" and signal["capacity"]
        ),
        default=1.0,
    )


def _show_first(headers: list[str], rows: list[list[str]], most: int | None) -> None:
    """Print a table of the first rows, and the number of omitted rows. If there are no rows, print nothing."""
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


_HOW: Final = {SURGE: " (surge)", "Delete": " (delete)"}


def _action_rows(actions: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            action["policy"],
            action["strategy"],
            f"{action['namespace']}/{action['pod']}",
            action["node"],
            (action["target"] or "-") + _HOW.get(action.get("how", ""), ""),
            action["reason"],
            action["message"],
        ]
        for action in actions
    ]


def _scheduling_rows(actions: Sequence[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            action["policy"],
            action["action"],
            f"{action['namespace']}/{action['pod']}",
            action["node"],
            action["reason"],
            f"for {action['for']}: {action['message']}" if "for" in action else action["message"],
        ]
        for action in actions
        if action["action"] in ("Bind", "Preempt")
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


def _admission_rows(actions: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            action["action"],
            f"{action['kind']} {action['namespace']}/{action['name']}",
            action["rule"],
            action["reason"],
            action["message"],
        ]
        for action in actions
        if action["action"] in ("Refuse", "Mutate")
    ]


def _kept_row(kept: dict[str, Any]) -> list[str]:
    name = f"{kept['namespace']}/{kept['name']}" if kept["namespace"] else kept["name"]
    named = name if kept["kind"] == "Pod" else f"{kept['kind']} {name}".strip()
    node = kept.get("node", "")
    return [named, node if node != name else "", kept["strategy"], kept["message"]]


def _by_reason(kept: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the kept objects by reason, most frequent reasons first, so that rare reasons are next to the prompt."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for each in kept:
        groups.setdefault(each["reason"], []).append(each)
    return sorted(groups.items(), key=lambda group: (len(group[1]), group[0]))


def show_amount(amount: int | float, unit: str) -> str:
    """Format the value of a signal with its unit."""
    if unit == "bytes":
        return format_bytes(amount)
    return f"{amount:g}%" if unit == "percent" else f"{amount:,.0f}"


def show_node_pressure(found: dict[str, Any], *, most: int | None) -> None:
    """Print the signals of a node with their distances to thresholds, and the eviction order of its pods.

    Args:
        found: a node of ``nodePressure`` of a plan.
        most: the maximum number of pods; ``None`` for all.
    """
    state = ", ".join(found.get("conditions", ())) or "no pressure"
    source = {"Summary": "", "Metrics": "; only the memory is known, from metrics.k8s.io", "": ""}[
        found.get("source", "")
    ]
    policy = f"policy {found['policy']}" if found["policy"] else "no NodePressurePolicy selects the node"
    echo(f"{click.style('Node pressure', bold=True)} of {found['node']}: {state}, {policy}{source}")
    if found.get("reason"):
        echo(f"  {found['reason']}: {found.get('message', '')}")
    for signal, why in found.get("unknown", {}).items():
        echo(f"  {signal} is unknown: {why}")
    rows = [row for signal in found.get("signals", ()) for row in _signal_rows(signal)]
    if rows:
        echo(table(["SIGNAL", "AVAILABLE", "THRESHOLD", "SET BY", "DISTANCE", "MET SINCE", "TREND"], rows, indent="  "))
    pods = found.get("pods", ())
    if not pods:
        return
    echo(f"  Eviction order for {found['rankedFor']}:")
    shown = pods[:most]
    echo(
        table(
            [],
            [
                [
                    str(place),
                    each["pod"],
                    f"never evicted ({each['protected']})" if "protected" in each else "",
                    each["message"],
                ]
                for place, each in enumerate(shown, 1)
            ],
            indent="  ",
        )
    )
    left = len(pods) - len(shown) + found.get("podsOmitted", 0)
    if left:
        echo(f"  … and {left} more")


def _signal_rows(signal: dict[str, Any]) -> list[list[str]]:
    unit, rows = signal["unit"], []
    for each in signal["thresholds"] or (None,):
        row = [signal["signal"], f"{show_amount(signal['available'], unit)} of {show_amount(signal['capacity'], unit)}"]
        if each is None:
            rows.append([*row, "", "", "", "", _trend(signal, None)])
            continue
        hardness = "hard" if each["hard"] else "soft"
        rows.append(
            [
                *row,
                f"{hardness} {show_amount(each['value'], unit)}",
                each["by"].lower(),
                show_amount(each["distance"], unit),
                each.get("since", "") or ("now" if each["met"] else ""),
                _trend(signal, each),
            ]
        )
    return rows


def _trend(signal: dict[str, Any], threshold: dict[str, Any] | None) -> str:
    if "perSecond" not in signal:
        return ""
    text = f"{show_amount(60 * signal['perSecond'], signal['unit'])}/min"
    seconds = None if threshold is None else threshold.get("secondsTo")
    return f"{text}, met in {seconds}s" if seconds else text

"""Renders the page: prepares values for the templates, and configures the Jinja environment.

Every value is escaped, and characters that HTML does not permit or that reorder text are replaced. As a second line of
defence, the page has a content security policy with the hashes of its style and script.
"""

from __future__ import annotations

import functools
import hashlib
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

import jinja2
import msgspec
import numpy as np
from markupsafe import Markup
from msgspec import Struct

from trimtab import __version__
from trimtab.api.plan import (
    BY_EVICTION,
    SURGE,
    Admission,
    Delete,
    Evict,
    Kept,
    NodeTainting,
    Plan,
    Refuse,
    TaintNode,
    rfc3339,
)
from trimtab.api.reasons import PENDING_PODS
from trimtab.autoscaling.scale_up.messages import STRATEGY
from trimtab.cli.output import show_amount
from trimtab.cli.report.content import Report, Usage, removals, scale_ups
from trimtab.cli.report.measures import measure_labels
from trimtab.cli.report.rows import BINS, Row, excerpt, histogram, rows
from trimtab.descheduling.planning.node_usage import FloatArray
from trimtab.kube.printable import CONTROLS
from trimtab.pressure.planner import STRATEGY as NODE_PRESSURE
from trimtab.pressure.preview import NodePressure

MOVES: Final = 2000
"""Maximum number of moves on the page by default: about a megabyte."""

KEPT: Final = 2000
"""Maximum number of kept objects on the page by default."""

OPEN: Final = 20
"""Maximum number of rows of a group of kept objects that is shown expanded."""

BUSIEST: Final = 25
"""Number of nodes that are listed for a large cluster: those with the most moves."""

Cells = Sequence[str | int]


class Excerpt(Struct, frozen=True):
    """The rows of a table that are shown, and the total number of rows."""

    rows: Sequence[Cells]
    total: int


def page(report: Report, *, everything: bool = False) -> str:
    """Render the page as HTML.

    Args:
        report: the content.
        everything: whether to show all moves and kept objects instead of at most :data:`MOVES` and :data:`KEPT`.
    """
    style, script = _asset("style.css"), _asset("script.js")
    plan, moves = report.plan, None if everything else MOVES
    machines = None if plan.scaling is None else _machines(report, moves)
    taints = None if plan.deletions is None else _taints(plan, moves)
    admission = None if plan.admissions is None else _admission(plan, moves)
    pressure = None if plan.node_pressure is None else _pressure(plan, moves)
    return (
        _environment()
        .get_template("page.html")
        .render(
            version=__version__,
            style=Markup(style),
            script=Markup(script),
            content_security_policy=_content_security_policy(style, script),
            report=report,
            plan=plan,
            usage=report.usage,
            when=rfc3339(plan.now),
            contents=[
                ("summary", "Summary"),
                *([("machines", "Nodes added and removed")] if machines else []),
                *(("strategies", "Strategies"), ("nodes", "Nodes"), ("moves", "Moves")),
                *([("pressure", "Node pressure")] if pressure else []),
                *([("taints", "Taints")] if taints else []),
                *([("admission", "Admission")] if admission else []),
                *(("kept", "Kept"), ("policies", "Policies")),
            ],
            cards=_cards(report),
            spread=_spread(report.usage),
            machines=machines,
            strategies=_strategies(report),
            nodes=_nodes(report.usage) if report.usage.names else None,
            moves=_moves(plan, moves),
            pressure=pressure,
            taints=taints,
            admission=admission,
            kept=_kept(plan, None if everything else KEPT),
        )
    )


# --- sections --------------------------------------------------------------------------------------------------------


def _cards(report: Report) -> list[tuple[int, str]]:
    plan, nodes = report.plan, len(report.usage.names)
    moved = sum(1 for action in plan.actions if action.target and action.target != action.node)
    restarted = sum(1 for action in plan.actions if action.target == action.node)
    surging = sum(1 for action in plan.actions if action.how == SURGE)
    pressed = sum(1 for action in plan.actions if action.strategy == NODE_PRESSURE)
    removed = len(plan.actions) - moved - restarted - pressed
    cards = [(nodes, "nodes"), (report.pods, "pods")]
    if plan.scaling is not None:
        up, gone = scale_ups(plan), len(removals(plan))
        added = sum(action.to - action.from_ for action in up)
        cards += [(added, "nodes requested"), (gone, "nodes removed"), (nodes + added - gone, "nodes afterwards")]
        cards += [(sum(len(action.pods) for action in up), "pending pods that get new nodes")]
    cards += [(moved, "moved to another node")]
    cards += [(restarted, "restarted on their node")] if restarted else []
    cards += [(surging, "of these replaced by a rollout of their Deployment")] if surging else []
    cards += [(removed, "completed pods removed")] if removed else []
    cards += [] if plan.node_pressure is None else [(pressed, "evicted because of node pressure")]
    if plan.taints is not None:
        put = sum(isinstance(each, TaintNode) for each in plan.taints)
        off = len(plan.taints) - put
        cards += [(put, "taints added to nodes"), *([(off, "taints removed from nodes")] if off else [])]
    if plan.deletions is not None:
        cards += [(len(plan.deletions), "with a deadline because of taints")]
    if plan.admissions is not None:
        refused = sum(isinstance(each, Refuse) for each in plan.admissions)
        cards += [(refused, "refusals of existing objects"), (len(plan.admissions) - refused, "changes of them")]
    return [*cards, (len(plan.kept), "kept, each with a reason")]


def _spread(usage: Usage) -> list[Cells]:
    """Return minimum, median, mean, maximum and deviation over nodes, before and after the plan."""

    def numbers(shares: FloatArray) -> tuple[float, ...]:
        have = shares[~np.isnan(shares)]
        if not len(have):
            return (0.0,) * 5
        return tuple(float(number) for number in (have.min(), np.median(have), have.mean(), have.max(), have.std()))

    found: list[Cells] = []
    for column, name in enumerate(usage.resources):
        pairs = zip(numbers(usage.before[:, column]), numbers(usage.after[:, column]), strict=True)
        found.append([name, *(f"{before:.1f} → {after:.1f}" for before, after in pairs)])
    return found


def _strategies(report: Report) -> list[Cells]:
    """Return each strategy with its numbers of moved and kept pods, and its measure before and after the plan."""
    moves = Counter((action.policy, action.strategy) for action in report.plan.actions)
    kept = Counter((each.policy, each.strategy) for each in report.plan.kept)
    found: list[Cells] = []
    for each in report.measures:
        key = each.policy, each.strategy
        what = measure_labels(each.strategy, len(each.before))
        for place, (before, after) in enumerate(zip(each.before, each.after, strict=True)):
            first = place == 0
            if not first and not before and not after:
                continue  # the second number belongs to an option that is off, or that has no violations
            counts = (f"{moves[key]:,}", f"{kept[key]:,}") if first else ("", "")
            found.append([*key, *counts, what[place], _number(before), _number(after), _change(before, after)])
    return found


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _change(before: float, after: float) -> str:
    if before == after:
        return "none"
    return f"{100 * (after - before) / before:+.0f}%".replace("-", "\u2212") if before else f"+{_number(after)}"


def _machines(report: Report, most: int | None) -> Mapping[str, Any]:
    """Return the scale-ups, the node removals, and the outcome for pending pods."""
    plan, nodes = report.plan, len(report.usage.names)
    up, down = scale_ups(plan), removals(plan)
    added, gone, helped = sum(each.to - each.from_ for each in up), len(down), sum(len(each.pods) for each in up)
    if added or gone:
        after = f"{_count(nodes + added - gone, 'node')} afterwards"
        summary = f"{_count(nodes, 'node')} now, {added:,} requested, {gone:,} removed: {after}. New nodes are not in "
        summary += "the charts below. The section Kept has the reasons why other nodes are kept."
    else:
        summary = f"{_count(nodes, 'node')}; none is added or removed. The section Kept has the reasons."
    left = Counter(kept.reason for kept in plan.kept if kept.kind == "Pod" and kept.strategy == STRATEGY)
    pending = [(PENDING_PODS, f"{helped:,}")] if helped else []
    moved = [(move.pod, each.node, move.target) for each in down for move in each.moves]
    return {
        "summary": summary,
        "pending": [*pending, *((_link(reason), f"{number:,}") for reason, number in sorted(left.items()))],
        "up": [(each.group, each.from_, each.to, len(each.pods), each.reason, each.message) for each in up],
        "helped": _cut([(pod, each.group) for each in up for pod in each.pods], 1, most),
        "down": [(each.node, each.group, len(each.moves), each.reason, each.message) for each in down],
        "moved": _cut(moved, 1, most),
    }


def _nodes(usage: Usage) -> Mapping[str, Any]:
    shown = rows(usage)
    grouped = len(usage.names) > len(shown)
    summary = "Requests in percent of allocatable resources, as the scheduler counts them."
    if usage.going:
        summary += f" {_count(len(usage.going), 'node is', 'nodes are')} removed and shown without a value afterwards."
    if grouped:
        each = shown[0].nodes
        summary += f" {len(usage.names):,} nodes, {each} per row, the fullest first; a cell is the mean of its nodes."
    columns = [(name, usage.before[:, place], usage.after[:, place]) for place, name in enumerate(usage.resources)]
    return {
        "summary": summary,
        "rows": shown,
        "grouped": grouped,
        "steps": [
            (f"h{step}", f"{10 * step}\u2013{10 * step + 10}%" if step < BINS - 1 else "above 100%")
            for step in range(BINS)
        ],
        "histograms": [(name, histogram(before), histogram(after)) for name, before, after in columns],
        "numbers": [
            (row.label if grouped else row.detail, row.leaving, row.arriving, *map(_usage, row.before, row.after))
            for row in shown
        ],
        "busiest": _busiest(usage) if grouped else [],
    }


def _busiest(usage: Usage) -> list[Cells]:
    moves = usage.leaving + usage.arriving
    found: list[Cells] = []
    for index in np.argsort(-moves, kind="stable")[:BUSIEST].tolist():
        if moves[index]:
            changes = map(_usage, usage.before[index].tolist(), usage.after[index].tolist())
            found.append((usage.names[index], int(usage.leaving[index]), int(usage.arriving[index]), *changes))
    return found


def _usage(before: float | None, after: float | None) -> str:
    if before is None or np.isnan(before):
        return "\u2013"
    if after is None or np.isnan(after):
        return f"{before:.1f} → gone"
    return f"{before:.1f} → {after:.1f}" if before != after else f"{after:.1f}"


def _moves(plan: Plan, most: int | None) -> Mapping[str, Any]:
    """Return all moves, or an excerpt that contains each strategy and reason, with the values of the page's filters."""
    shown = excerpt(plan.actions, lambda action: f"{action.policy}/{action.strategy}/{action.reason}", most)
    cells: list[Cells] = [(place + 1, *_move(action)) for place, action in shown]
    columns = (("Strategy", 4), ("Reason", 5), ("Policy", 7))
    choices = [(label, column, sorted({str(row[column]) for row in cells})) for label, column in columns]
    return {"rows": cells, "total": len(plan.actions), "choices": [each for each in choices if len(each[2]) > 1]}


def _move(action: Evict) -> Cells:
    target = action.target or "removed"
    target += " (restart)" if action.target == action.node else ""
    target += {SURGE: " (surge)", "Delete": " (deletion)"}.get(action.how, "")
    return action.key, action.node, target, action.strategy, action.reason, action.message, action.policy


def _pressure(plan: Plan, most: int | None) -> Mapping[str, Any]:
    """Return the nodes under pressure, the signals with their distances to thresholds, and the eviction orders."""
    nodes = plan.node_pressure or ()
    found = [msgspec.convert(each, NodePressure) for each in nodes]
    signals = [row for each in found for row in _signals(each)]
    orders = [
        (each.node, place, pod.pod, pod.protected, pod.message)
        for each in found
        for place, pod in enumerate(each.pods, 1)
    ]
    states = [
        (each.node, each.policy, ", ".join(each.conditions), each.reason, each.message) for each in found if each.reason
    ]
    return {
        "handled": len(found),
        "states": _cut(states, 3, most),
        "signals": _cut(signals, 0, most),
        "orders": _cut(orders, 0, most),
    }


def _signals(found: NodePressure) -> Iterable[Cells]:
    for signal in found.signals:
        for each in signal.thresholds:
            yield (
                found.node,
                signal.signal,
                show_amount(signal.available, signal.unit),
                f"{'hard' if each.hard else 'soft'} {show_amount(each.value, signal.unit)} ({each.by.lower()})",
                show_amount(each.distance, signal.unit),
                each.since,
                f"in {each.seconds_to}s" if each.seconds_to else "",
            )


def _taints(plan: Plan, most: int | None) -> Mapping[str, Any]:
    """Return taint changes of nodes, and the pods that are evicted because of taints, with their deadlines."""
    changes, going = plan.taints or (), plan.deletions or ()
    return {
        "nodes": _cut([_tainting(each) for each in changes], 0, most) if changes else None,
        "put": sum(isinstance(each, TaintNode) for each in changes),
        "on": len({each.node for each in changes}),
        "pods": _cut([_deletion(each) for each in going], 2, most),
        "tainted": len({each.node for each in going}),
    }


def _admission(plan: Plan, most: int | None) -> Mapping[str, Any]:
    """Return the objects that placement admission would refuse or change."""
    found = plan.admissions or ()
    refused = sum(isinstance(each, Refuse) for each in found)
    return {
        "objects": _cut([_admitted(each) for each in found], 3, most),
        "total": len(found),
        "refused": refused,
        "changed": len(found) - refused,
    }


def _admitted(each: Admission) -> Cells:
    name = f"{each.kind} {each.namespace}/{each.name}"
    return str(each.__struct_config__.tag), name, each.pods or "", each.rule, each.reason, each.message


def _tainting(each: NodeTainting) -> Cells:
    action = str(each.__struct_config__.tag)
    return each.node, action, f"{each.taint.key}:{each.taint.effect}", each.reason, each.message


def _deletion(each: Delete) -> Cells:
    pod = f"{each.namespace}/{each.pod}" + (" (evict)" if each.how == BY_EVICTION else "")
    due = Markup('<time datetime="{0}">{0}</time>').format(_plain(each.due))
    return due, pod, each.node, each.reason, each.message


def _kept(plan: Plan, most: int | None) -> Mapping[str, Any]:
    """Return all kept objects, or an excerpt that contains each reason; rare reasons come first."""
    shown = excerpt(plan.kept, lambda kept: kept.reason, most)
    numbers = Counter(kept.reason for kept in plan.kept)
    groups: dict[str, list[Cells]] = {}
    for _, kept in shown:
        groups.setdefault(kept.reason, []).append(_candidate(kept))
    ordered = sorted(groups, key=lambda reason: (numbers[reason], reason))
    return {
        "rows": shown,
        "total": len(plan.kept),
        "reasons": [(_link(reason), f"{numbers[reason]:,}") for reason in ordered],
        "groups": [
            {"reason": reason, "number": numbers[reason], "open": numbers[reason] <= OPEN, "rows": groups[reason]}
            for reason in ordered
        ],
    }


def _candidate(kept: Kept) -> Cells:
    name = f"{kept.namespace}/{kept.name}" if kept.namespace else kept.name
    return name if kept.kind == "Pod" else f"{kept.kind} {name}", kept.node, kept.strategy, kept.message, kept.policy


def _link(reason: str) -> Markup:
    return Markup('<a href="#kept-{0}">{0}</a>').format(_plain(reason))


def _cut(cells: Sequence[Cells], column: int, most: int | None) -> Excerpt:
    """Return an excerpt of the rows in which each value of the column occurs."""
    return Excerpt([row for _, row in excerpt(cells, lambda row: str(row[column]), most)], len(cells))


# --- the templates' environment --------------------------------------------------------------------------------------

_LONGEST: Final = 27
_LETTER: Final = 7.4
"""Maximum width of a letter in names, which is an estimate because the font is not known."""


def _plain(text: str) -> str:
    return CONTROLS.sub(lambda match: match[0] if match[0] in "\t\n\r" else "\ufffd", text)


def _finalize(value: object) -> object:
    """Prepare a value for output: remove control characters from text, and round coordinates to two digits."""
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return _plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _shorten(name: str) -> str:
    """Shorten a long name in the middle, because both ends distinguish nodes."""
    half = (_LONGEST - 1) // 2
    return name if len(name) <= _LONGEST else f"{name[:half]}…{name[-half:]}"


def _margin(shown: Iterable[Row]) -> float:
    """Return the width that the labels of a chart's rows need."""
    return 20.0 + _LETTER * max((len(_shorten(row.label)) for row in shown), default=0)


def step(value: float) -> int:
    """Return the colour index of a percentage: 0 to 9 for up to 100 percent, and 10 above."""
    return BINS - 1 if value > 100.0 else min(int(value // 10), BINS - 2)


def _bar_length(percent: float) -> float:
    return max(0.5, 1.5 * min(percent, 104.0))


def _count(number: int, one: str, many: str | None = None) -> str:
    """Format a number with its noun: ``1 pod``, ``2 pods``, ``27,553 pods``."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def _left_out(shown: Excerpt | Mapping[str, Any], which: str = "") -> str:
    """Return a note that a table is an excerpt; empty if it is complete."""
    rows, total = (shown.rows, shown.total) if isinstance(shown, Excerpt) else (shown["rows"], shown["total"])
    which = f", {which}" if which else ""
    return "" if len(rows) == total else f", of which {len(rows):,} are shown{which}; use --all to show all"


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("trimtab.cli.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "count": _count,
        "left_out": _left_out,
        "length_of_bar": _bar_length,
        "short": _shorten,
        "step": step,
        "thousands": "{:,}".format,
    }
    environment.globals["margin"] = _margin
    return environment


def _asset(name: str) -> str:
    return files("trimtab.cli.report").joinpath(name).read_text(encoding="utf-8")


def _content_security_policy(style: str, script: str) -> str:
    """Return a policy that permits only the page's own style and script, by their hashes."""

    def digest(content: str) -> str:
        return f"sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode()}"

    own = f"style-src '{digest(style)}'; script-src '{digest(script)}'"
    return f"default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; {own}"

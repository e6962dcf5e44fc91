"""How much, by which strategy, and for which policies."""

from __future__ import annotations

from collections import Counter

import numpy as np

from trimtab.api.node_taint import NodeTainting, TaintNode
from trimtab.api.plan import SURGE
from trimtab.cli.report.content import Report, Usage, removals, scale_ups
from trimtab.cli.report.markup import Html, element
from trimtab.cli.report.measures import words
from trimtab.cli.report.parts import note, section, table
from trimtab.descheduling.utilization import FloatArray


def summary_section(report: Report) -> Html:
    """What was looked at and what came of it, as large numbers, and how full nodes are as a few."""
    plan, usage = report.plan, report.usage
    moved = sum(1 for action in plan.actions if action.target and action.target != action.node)
    anew = sum(1 for action in plan.actions if action.target == action.node)
    surging = sum(1 for action in plan.actions if action.how == SURGE)
    removed = len(plan.actions) - moved - anew
    cards = [
        _card(len(usage.names), "nodes"),
        _card(report.pods, "pods"),
        *([] if plan.scaling is None else _scaling_cards(report)),
        _card(moved, "moved to another node"),
        *([_card(anew, "started anew where they are")] if anew else []),
        *([_card(surging, "of these renewed by a rollout of their Deployment")] if surging else []),
        *([_card(removed, "removed, having run to their end")] if removed else []),
        *([] if plan.taints is None else _taint_cards(plan.taints)),
        *([] if plan.deletions is None else [_card(len(plan.deletions), "with a time to go, because of taints")]),
        _card(len(plan.kept), "kept, each with a reason"),
    ]
    told = None if plan.every_action else note(_NOTHING[plan.scaling is not None])
    return section("summary", "Summary", element("ul", *cards, class_="cards"), told, _spread(usage))


_NOTHING = {
    False: "There is nothing to do: no strategy found a pod that it could better place.",
    True: "There is nothing to do: no pod waits for a node that could be added, and no node can go.",
}
"""By whether nodes are planned as well."""


def _scaling_cards(report: Report) -> list[Html]:
    added = sum(action.to - action.from_ for action in scale_ups(report.plan))
    gone = len(removals(report.plan))
    helped = sum(len(action.pods) for action in scale_ups(report.plan))
    return [
        _card(added, "nodes asked for"),
        _card(gone, "nodes removed"),
        _card(len(report.usage.names) + added - gone, "nodes after that"),
        _card(helped, "pending pods that get new nodes"),
    ]


def _taint_cards(changes: tuple[NodeTainting, ...]) -> list[Html]:
    put = sum(isinstance(each, TaintNode) for each in changes)
    off = len(changes) - put
    return [_card(put, "taints put on nodes"), *([_card(off, "taints taken off nodes")] if off else [])]


def _card(number: int, what: str) -> Html:
    return element("li", element("b", f"{number:,}"), " ", element("span", what))


def _spread(usage: Usage) -> Html | None:
    """Mean, extremes and deviation over nodes: whether the plan evens them out, in numbers."""
    rows = []
    for column, name in enumerate(usage.resources):
        before, after = _numbers(usage.before[:, column]), _numbers(usage.after[:, column])
        rows.append([name, *(f"{old:.1f} \u2192 {new:.1f}" for old, new in zip(before, after, strict=True))])
    if not usage.names:
        return None
    headers = ["Resource", "Least", "Median", "Mean", "Most", "Standard deviation"]
    return table(
        "Requested on nodes, in percent of allocatable, before and after", headers, rows, numbers=range(1, len(headers))
    )


def _numbers(shares: FloatArray) -> tuple[float, ...]:
    have = shares[~np.isnan(shares)]
    if not len(have):
        return (0.0,) * 5
    return tuple(float(number) for number in (have.min(), np.median(have), have.mean(), have.max(), have.std()))


def strategies_section(report: Report) -> Html:
    """Each strategy with what it moved and kept, and its measure before and after."""
    moves = Counter((action.policy, action.strategy) for action in report.plan.actions)
    kept = Counter((each.policy, each.strategy) for each in report.plan.kept)
    rows = []
    for each in report.measures:
        key = each.policy, each.strategy
        told = words(each.strategy, len(each.before))
        for place, (before, after) in enumerate(zip(each.before, each.after, strict=True)):
            first = place == 0
            if not first and not before and not after:
                continue  # a second number is of an option that is off, or of which there is nothing
            rows.append(
                [
                    each.policy,
                    each.strategy,
                    f"{moves[key]:,}" if first else "",
                    f"{kept[key]:,}" if first else "",
                    told[place],
                    _number(before),
                    _number(after),
                    _change(before, after),
                ]
            )
    if not rows:
        return section("strategies", "Strategies", note("No strategy is enabled."))
    headers = ["Policy", "Strategy", "Evictions", "Kept", "What it counts as wrong", "Before", "After", "Change"]
    made = table("Strategies in the order in which they run", headers, rows, numbers=(2, 3, 5, 6, 7), named=1)
    return section("strategies", "Strategies", made)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _change(before: float, after: float) -> str:
    if before == after:
        return "none"
    return f"{100 * (after - before) / before:+.0f}%".replace("-", "\u2212") if before else f"+{_number(after)}"


def policies_section(report: Report) -> Html:
    """What was planned for, in full."""
    shown = [
        element(
            "details",
            element(
                "summary", element("b", policy.name), f" \u00b7 {policy.mode} \u00b7 {', '.join(policy.strategies)}"
            ),
            element("pre", element("code", policy.yaml), tabindex=0),
        )
        for policy in report.policies
    ]
    told = note(
        "A policy's mode, suspend, interval and schedule do not matter to a plan: it shows a cycle that acts. Of a "
        "TaintManager the mode says whether it taints nodes (Own)."
    )
    return section("policies", "Policies", told, *shown)

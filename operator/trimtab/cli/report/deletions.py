"""Pods that go because of the taints of their nodes, and when."""

from __future__ import annotations

from typing import Final

from trimtab.api.plan import Plan
from trimtab.api.pod_deletion import BY_EVICTION, Delete
from trimtab.cli.report.excerpt import excerpt
from trimtab.cli.report.markup import Html, element
from trimtab.cli.report.parts import count, note, section, table

HEADERS: Final = ("Due", "Pod", "Node", "Reason", "Why")


def deletions_section(plan: Plan, most: int | None) -> Html:
    """When each pod goes whose time on its node is limited.

    Args:
        plan: with deletions, which may be none.
        most: rows that are shown, some of each node; ``None`` for all.
    """
    going = plan.deletions or ()
    if not going:
        return section("taints", "Taints", note("No pod has to leave its node because of a taint."))
    shown = excerpt(going, lambda each: each.node, most)
    told = f"{count(len(going), 'pod')} on {count(len({each.node for each in going}), 'tainted node')}"
    if len(shown) < len(going):
        told += f", of which {len(shown):,} are shown; --all puts all into the page"
    caption = "Pods that go because of taints, the first first"
    rows = [_row(each) for _, each in shown]
    return section("taints", "Taints", element("p", f"{told}."), table(caption, HEADERS, rows, named=1, long=4))


def _row(each: Delete) -> tuple[str | Html, ...]:
    pod = f"{each.namespace}/{each.pod}" + (" (evict)" if each.how == BY_EVICTION else "")
    return element("time", each.due, datetime=each.due), pod, each.node, each.reason, each.message

"""The page: its head, its sections in order, and what holds it together."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from importlib.resources import files
from typing import Final

from trimtab import __version__
from trimtab.api.plan import rfc3339
from trimtab.cli.report.content import Report
from trimtab.cli.report.kept import kept_section
from trimtab.cli.report.machines import machines_section
from trimtab.cli.report.markup import Html, element
from trimtab.cli.report.moves import moves_section
from trimtab.cli.report.nodes import nodes_section
from trimtab.cli.report.summary import policies_section, strategies_section, summary_section
from trimtab.cli.report.taints import taints_section

MOVES: Final = 2000
"""Rows of moves that the page shows unless all are asked for: about a megabyte."""

KEPT: Final = 2000
"""Likewise of what is kept."""


def page(report: Report, *, everything: bool = False) -> str:
    """The whole page as HTML.

    Args:
        report: what it tells.
        everything: every move and all that is kept, however many; without it :data:`MOVES` and :data:`KEPT` of them.
    """
    style, script = _asset("style.css"), _asset("script.js")
    when = rfc3339(report.plan.now)
    title = f"Plan for {report.cluster}, {when}"
    moves, kept = (None, None) if everything else (MOVES, KEPT)
    body = element(
        "body",
        element("a", "Skip to the moves", class_="skip", href="#moves"),
        element(
            "header",
            element("p", "trimtab plan", class_="mark"),
            element("h1", "Plan for ", report.cluster),
            element(
                "p", "What would be done at ", element("time", when, datetime=when), ", and why. Nothing was changed."
            ),
            _contents(machines=report.plan.scaling is not None, taints=report.plan.deletions is not None),
        ),
        element(
            "main",
            summary_section(report),
            None if report.plan.scaling is None else machines_section(report, moves),
            strategies_section(report),
            nodes_section(report.usage),
            moves_section(report.plan, moves),
            None if report.plan.deletions is None else taints_section(report.plan, moves),
            kept_section(report.plan, kept),
            policies_section(report),
        ),
        element(
            "footer",
            element("p", f"Made by trimtab {__version__}. The same cluster, policies and time give the same page."),
        ),
        element("script", Html(script)),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_allowed(style, script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", Html(style)),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _contents(*, machines: bool, taints: bool) -> Html:
    places = (
        ("summary", "Summary"),
        *([("machines", "Nodes added and removed")] if machines else []),
        ("strategies", "Strategies"),
        ("nodes", "Nodes"),
        ("moves", "Moves"),
        *([("taints", "Taints")] if taints else []),
        ("kept", "Kept"),
        ("policies", "Policies"),
    )
    links = [element("li", element("a", name, href=f"#{place}")) for place, name in places]
    return element("nav", element("ul", *links), aria_label="Contents")


def _asset(name: str) -> str:
    return files("trimtab.cli.report").joinpath(name).read_text(encoding="utf-8")


def _allowed(style: str, script: str) -> str:
    """The page's content security policy: its own style and script by their hashes, and nothing else from anywhere.

    Text is escaped as it is written; this is for the case that some is not.
    """
    own = f"style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    return f"default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; {own}"


def _hash(content: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode()}"

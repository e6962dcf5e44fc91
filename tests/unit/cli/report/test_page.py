"""The page as text: whole, escaped, the same every time, and of bounded size."""

from __future__ import annotations

import re

import msgspec
import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from tests.builders import budget, node, pod
from tests.fixtures.golden import Golden
from tests.unit.cli.report.pages import one_line_each, read, read_page, reported
from tests.unit.descheduling.planning import DUPLICATES, utilization, web
from trimtab.api.plan import Evict, Kept, Plan
from trimtab.cli.report import Report, page
from trimtab.cli.report.page import _environment

EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\x00\u202e"


def small() -> Report:
    """Two duplicates, one of which moves, and two others whose budget allows nothing."""
    return reported(
        [
            *(node(name) for name in ("n1", "n2", "n3")),
            *(web(name, "n1").cpu("1") for name in ("web-1", "web-2")),
            *(pod(f"db-{number}").on("n2").labels(app="db").owned_by("ReplicaSet", "db").ready() for number in (1, 2)),
            budget("db").selecting(app="db").allowing(0, healthy=2, expected=2),
        ],
        {DUPLICATES: {}},
    )


def evil() -> Report:
    """Everything that comes from outside tries to be markup."""
    report = small()
    moves = [
        msgspec.structs.replace(action, **dict.fromkeys(("pod", "target", "reason", "message", "policy"), EVIL))
        for action in report.plan.actions
    ]
    kept = [msgspec.structs.replace(each, reason=EVIL, message=EVIL, strategy=EVIL) for each in report.plan.kept]
    usage = msgspec.structs.replace(report.usage, names=(EVIL, *report.usage.names[1:]), resources=(EVIL,) * 3)
    policies = [msgspec.structs.replace(each, name=EVIL, mode=EVIL, yaml=EVIL) for each in report.policies]
    measures = [msgspec.structs.replace(each, policy=EVIL) for each in report.measures]
    return msgspec.structs.replace(
        report,
        cluster=EVIL,
        plan=msgspec.structs.replace(report.plan, actions=tuple(moves), kept=tuple(kept)),
        usage=usage,
        policies=tuple(policies),
        measures=tuple(measures),
    )


def test_page_shows_cluster_and_time(golden: Golden):
    found = read_page(small())

    golden(one_line_each(found.text.partition(found.sections["summary"].splitlines()[0])[0]))
    [[_, move]] = found.tables["moves"]
    assert move[:6] == ["1", "shop/web-1", "n1", "n3", "RemoveDuplicates", "DuplicateOnNode"]
    [[_, *kept]] = found.tables["kept-DisruptionBudget"]
    assert [row[0] for row in kept] == ["shop/db-1", "shop/db-2"]
    assert [table[1:] for table in found.tables["kept"]] == [[["DisruptionBudget", "2"]]]
    [[_, measured]] = found.tables["strategies"]
    assert measured[:4] + measured[5:] == ["default", "RemoveDuplicates", "1", "2", "2", "1", "\u221250%"]
    for section in ("strategies", "moves"):
        golden(found.sections[section], section)


def test_chart_numbers_are_in_a_table():
    [rows] = read_page(small()).tables["nodes"]

    assert rows[0] == ["Node", "Pods leaving", "Pods arriving", "cpu", "memory", "pods"]
    assert rows[1][:4] == ["n1", "1", "0", "50.0 \u2192 25.0"]
    assert rows[3][:4] == ["n3", "0", "1", "0.0 \u2192 25.0"]


def test_links_have_targets_and_ids_are_unique():
    found = read_page(small())
    links = {attributes["href"] for tag, attributes in found.tags if tag == "a"}

    assert len(found.ids) == len(set(found.ids))
    assert {link.removeprefix("#") for link in links if link} <= set(found.ids)
    named = {name for _, attributes in found.tags for name in (attributes.get("aria-labelledby") or "").split()}
    assert named <= set(found.ids)


def test_charts_and_tables_have_labels():
    found = read_page(small())
    pictures = [attributes for tag, attributes in found.tags if tag == "svg" and "aria-hidden" not in attributes]

    assert [attributes["role"] for attributes in pictures] == ["img", "img"]
    assert all(attributes["aria-labelledby"] for attributes in pictures)
    assert sum(tag == "caption" for tag, _ in found.tags) == sum(tag == "table" for tag, _ in found.tags)
    assert all(attributes.get("scope") in {"col", "row"} for tag, attributes in found.tags if tag == "th")
    assert [tag for tag, _ in found.tags if tag == "h1"] == ["h1"]


def test_page_has_no_external_content_and_escapes_cluster_data():
    content = page(evil())
    found = read(content)
    usual = read_page(small())

    assert {tag for tag, _ in found.tags} == {tag for tag, _ in usual.tags}
    assert not re.search(r"<img|<script>alert|[\x00\u202e]", content)
    assert "alert(1)" in found.text, "it is shown, not left out"
    links = [value for _, attributes in found.tags for name, value in attributes.items() if name in {"src", "href"}]
    assert all(link.startswith(("#", "data:,")) for link in links if link)
    events = {name for _, attributes in found.tags for name in attributes if name.startswith("on") or name == "style"}
    assert not events


def test_page_permits_only_its_own_script():
    found = read_page(small())
    [policy] = [tags["content"] for tag, tags in found.tags if tags.get("http-equiv") == "Content-Security-Policy"]

    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy


def test_equal_plans_are_equal_pages():
    assert page(small()) == page(small())


def test_empty_plan_is_reported(golden: Golden):
    found = read_page(reported([node("n1")], {DUPLICATES: {}}))

    assert not {"moves", "kept"} & set(found.tables)
    for section in ("summary", "moves", "kept"):
        golden(found.sections[section], section)


def test_a_cluster_without_nodes_has_a_page_too(golden: Golden):
    found = read_page(reported([pod()], {DUPLICATES: {}}))

    assert "nodes" not in found.tables
    golden(found.sections["nodes"])


def large(nodes: int, moves: int, kept: int) -> Report:
    """Many nodes and many rows, without planning them."""
    pods = [pod(f"p{index}").on(f"n{index:05}").cpu(f"{index % 40}00m").build() for index in range(nodes)]
    report = reported([*(node(f"n{index:05}") for index in range(nodes)), *pods], utilization({"cpu": 20}, {"cpu": 50}))
    message = "the cpu utilization of n00001 is 92%, above the target of 50%; that of n00002 is 7%"
    actions = [
        Evict("default", f"S{index % 3}", "shop", f"p{index}", "n00001", "n00002", "NodeOverutilized", message)
        for index in range(moves)
    ]
    stays = [
        Kept("Pod", "shop", f"q{index}", "S", "NoPlace" if index else "BarePod", "0/5 nodes are available: " * 4)
        for index in range(kept)
    ]
    plan = Plan(report.plan.now, tuple(actions), tuple(stays))
    return msgspec.structs.replace(report, plan=plan)


def test_large_plan_is_truncated_fairly(golden: Golden):
    content = page(large(600, 9000, 9000))
    found = read(content)

    assert len(content) < 2_000_000
    [moves] = found.tables["moves"]
    assert len(moves) == 2001
    assert {row[4] for row in moves[1:]} == {"S0", "S1", "S2"}
    assert len(found.tables["kept-BarePod"][0]) == 2
    assert len(found.tables["kept-NoPlace"][0]) == 2000
    golden(found.sections["moves"].splitlines()[1], "moves")
    golden(found.sections["nodes"].splitlines()[1], "nodes")


def test_all_rows_are_shown_on_request():
    found = read_page(large(90, 2500, 2500), everything=True)

    assert len(found.tables["moves"][0]) == 2501
    assert "--all" not in found.text


@pytest.mark.parametrize(
    ("template", "value", "expected"),
    [
        ("<p>{{ value }}</p>", "<b>&", "<p>&lt;b&gt;&amp;</p>"),
        ("<p>{{ value }}</p>", Markup("<b>x</b>"), "<p><b>x</b></p>"),
        ('<p title="{{ value }}">', '"><script>', '<p title="&#34;&gt;&lt;script&gt;">'),
        ('<rect y="{{ value }}">', 2.345, '<rect y="2.35">'),
        ('<rect y="{{ value }}">', 1.0, '<rect y="1">'),
        ("{{ value }}", 3, "3"),
        ("{{ value }}", "a\x00\u202eb\ud800", "a\ufffd\ufffdb\ufffd"),
    ],
)
def test_template_escapes_values(template: str, value: object, expected: str):
    assert _environment().from_string(template).render(value=value) == expected


def test_undefined_template_value_is_an_error():
    with pytest.raises(UndefinedError):
        _environment().from_string("{{ value }}").render()

"""The page of ``trimtab plan -o html`` in a real browser: rendering, search, keyboard, dark mode and print."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.builders import budget, node, pod
from tests.fixtures.browser import Tab, browsing
from tests.unit.cli.report.pages import reported
from tests.unit.cli.report.test_page import evil
from tests.unit.descheduling.planning import DUPLICATES, restarts, utilization, web
from trimtab.cli.report import page

pytestmark = pytest.mark.core

ROOT = Path(__file__).parents[2]
Show = Callable[..., Any]

SIZES = """[...document.querySelectorAll("main table, main svg[role=img], main .cards li")]
    .filter((each) => each.checkVisibility())
    .map((each) => [each.tagName + (each.id && "#" + each.id), each.getBoundingClientRect()])
    .map(([name, box]) => [name, box.width, box.height])"""
SHOWN = '[...document.querySelectorAll("#{} tbody tr")].filter((row) => row.checkVisibility()).length'


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    async with browsing(tmp_path / "profile") as tab:
        yield tab
        assert tab.complaints == []
        assert {url.partition(":")[0] for url in tab.requests} <= {"file", "data"}, "it asks the network for nothing"


@pytest.fixture
def show(tab: Tab, tmp_path: Path) -> Show:
    """Open a generated page."""

    async def show(content: str, **size: int) -> None:
        path = tmp_path / "plan.html"
        path.write_text(content, encoding="utf-8")
        await tab.open(path, **size)

    return show


def duplicates() -> Iterable[Any]:
    """Two pairs of duplicates on three nodes, and a pair that its budget protects."""
    yield from (node(name) for name in ("n1", "n2", "n3"))
    for owner in ("cart", "web"):
        yield from (web(f"{owner}-{number}", "n1", owner=owner).cpu("1") for number in (1, 2))
    yield from (pod(f"db-{number}").on("n2").labels(app="db").owned_by("ReplicaSet", "db").ready() for number in (1, 2))
    yield budget("db").selecting(app="db").allowing(0, healthy=2, expected=2)


def crowded(number: int) -> Iterable[Any]:
    """The first half of the nodes is full, the second empty."""
    for index in range(number):
        yield node(f"node-{index:05}")
        if index < number // 2:
            yield from (
                web(f"app-{index}-{each}", f"node-{index:05}", owner=f"app-{index}").cpu("900m") for each in range(4)
            )


SMALL = page(reported(duplicates(), {DUPLICATES: {}}))


async def test_charts_and_tables_are_rendered(tab: Tab, show: Show) -> None:
    await show(SMALL)

    sizes = {name: (width, height) for name, width, height in await tab.evaluate(SIZES)}
    assert {"TABLE#moves-table", "svg#heat", "svg#bars"} <= set(sizes)
    assert all(width >= 100 and height >= 40 for width, height in sizes.values()), sizes
    texts = await tab.evaluate('[...document.querySelectorAll("#heat text")].map((each) => each.lastChild.textContent)')
    assert {"n1", "n2", "n3", "cpu", "memory", "pods"} <= set(texts)
    assert (await tab.screenshot()).startswith(b"\x89PNG")


async def test_heat_map_labels_are_neither_cut_off_nor_overlapping(tab: Tab, show: Show) -> None:
    name = "ip-10-100-200-123.eu-central-1.compute.internal"
    await show(page(reported([node(name), node("n2"), web("a", name), web("b", name)], {DUPLICATES: {}})))

    left = await tab.evaluate("""(() => {
        const picture = document.querySelector("#heat").getBoundingClientRect();
        const cell = document.querySelector("#heat rect").getBoundingClientRect();
        return [...document.querySelectorAll("#heat .label")].map((label) => label.getBoundingClientRect())
            .map((box) => [box.left - picture.left, cell.left - box.right]);
    })()""")
    assert len(left) == 2
    assert all(before >= 0 and after > 0 for before, after in left), left


async def test_search_shows_rows_with_every_word(tab: Tab, show: Show) -> None:
    await show(SMALL)
    assert await tab.evaluate(SHOWN.format("moves-table")) == 2

    await tab.evaluate('document.querySelector("[data-finder=moves-table] input").focus()')
    await tab.type("WEB n1")

    assert await tab.evaluate(SHOWN.format("moves-table")) == 1
    assert await tab.evaluate('document.querySelector("[data-finder=moves-table] output").value') == "1 of 2 moves"


async def test_search_hides_reasons_without_a_match(tab: Tab, show: Show) -> None:
    await show(SMALL)
    groups = '[...document.querySelectorAll("#kept-groups > details")].filter((each) => !each.hidden).length'
    assert await tab.evaluate(groups) == 1

    await tab.evaluate('document.querySelector("[data-finder=kept-groups] input").focus()')
    await tab.type("db-2")
    assert (await tab.evaluate(groups), await tab.evaluate(SHOWN.format("kept-groups"))) == (1, 1)

    await tab.type(" nowhere")
    assert (await tab.evaluate(groups), await tab.evaluate(SHOWN.format("kept-groups"))) == (0, 0)


async def test_strategy_filter_selects_rows(tab: Tab, show: Show) -> None:
    ill = web("ill", "n2", owner="ill").restarted(200)
    await show(page(reported([*duplicates(), ill], {DUPLICATES: {}, **restarts()})))
    assert await tab.evaluate(SHOWN.format("moves-table")) == 3

    await tab.evaluate("""(() => {
        const choice = document.querySelector("[data-finder=moves-table] select");
        choice.value = "RemovePodsHavingTooManyRestarts";
        choice.dispatchEvent(new Event("input", { bubbles: true }));
    })()""")

    assert await tab.evaluate(SHOWN.format("moves-table")) == 1


async def test_first_tab_stop_skips_to_the_content(tab: Tab, show: Show) -> None:
    await show(SMALL)

    await tab.press("Tab")
    assert await tab.evaluate("document.activeElement.textContent") == "Skip to the moves"
    assert await tab.evaluate("document.activeElement.getBoundingClientRect().left") >= 0


async def test_dark_and_light_mode_have_enough_contrast(tab: Tab, show: Show) -> None:
    contrast = """(() => {
        const light = (color) => {
            const [r, g, b] = color.match(/\\d+/g).map((part) => part / 255)
                .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const ratio = (one, two) => (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
        const style = (each) => getComputedStyle(each);
        const body = style(document.body);
        const pairs = [[body.color, body.backgroundColor]];
        pairs.push([style(document.querySelector(".note")).color, body.backgroundColor]);
        pairs.push([style(document.querySelector("a[href]")).color, body.backgroundColor]);
        for (let step = 0; step <= 10; step++) {
            const cell = document.querySelector("#heat rect"), text = cell.nextElementSibling;
            cell.setAttribute("class", "h" + step);
            text.setAttribute("class", "t" + step);
            pairs.push([style(text).fill, style(cell).fill]);
        }
        return pairs.map(([front, back]) => ratio(light(front), light(back)));
    })()"""
    seen = []
    for scheme in ("light", "dark"):
        await tab.media(prefers_color_scheme=scheme)
        await show(SMALL)
        seen.append(await tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        ratios = await tab.evaluate(contrast)
        assert min(ratios) >= 4.5, (scheme, ratios)  # WCAG 2, AA
    assert seen == ["rgb(255, 255, 255)", "rgb(17, 22, 29)"]


async def test_print_expands_all_sections(tab: Tab, show: Show) -> None:
    await show(SMALL)

    paper = await tab.paper()

    assert paper.startswith(b"%PDF")
    await tab.evaluate('dispatchEvent(new Event("beforeprint"))')
    assert await tab.evaluate('document.querySelectorAll("details:not([open])").length') == 0
    await tab.evaluate('dispatchEvent(new Event("afterprint"))')
    assert await tab.evaluate('document.querySelectorAll("details:not([open])").length') > 0


async def test_narrow_window_scrolls_only_the_tables(tab: Tab, show: Show) -> None:
    await show(SMALL, width=400)

    assert await tab.evaluate("document.documentElement.scrollWidth") <= 400


async def test_names_and_messages_are_escaped(tab: Tab, show: Show) -> None:
    await show(page(evil()))

    assert await tab.evaluate('document.querySelectorAll("img, main script").length') == 0
    assert "alert(1)" in await tab.evaluate('document.querySelector("#moves-table").textContent')


async def test_many_nodes_are_grouped(tab: Tab, show: Show) -> None:
    await show(page(reported(crowded(400), utilization({"cpu": 20}, {"cpu": 50}))))

    sizes = {name: (width, height) for name, width, height in await tab.evaluate(SIZES)}
    assert sizes["svg#heat"][1] < 1000
    assert sizes["svg#bars"][1] > 100
    assert await tab.evaluate('document.querySelectorAll("#heat .label").length') == 40
    assert await tab.evaluate(SHOWN.format("moves-table")) > 100


async def test_plan_command_writes_the_html_page(tab: Tab, tmp_path: Path) -> None:
    policy, out = ROOT / "examples/policies/report-only.yaml", tmp_path / "plan.html"
    command = [sys.executable, "-m", "trimtab", "plan", "--cluster", "examples/cluster", "--policy", str(policy)]
    run = partial(subprocess.run, [*command, "-o", "html"], cwd=ROOT, capture_output=True, check=True)
    done = await asyncio.to_thread(run)
    out.write_bytes(done.stdout)

    await tab.open(out)

    assert (await tab.evaluate("document.title")).startswith("Plan for examples/cluster, ")
    assert await tab.evaluate(SHOWN.format("moves-table")) == 3

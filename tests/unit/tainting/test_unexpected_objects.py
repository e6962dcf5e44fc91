"""Objects as nobody should write them and somebody does: each costs itself at most, and never the others."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tests.unit.tainting.running_taint_manager import NODES, a_cell, a_pod, running
from trimtab.tainting.deadlines import SINCE_ANNOTATION
from trimtab.tainting.lifecycle.record import LifecycleState, decode_record

pytestmark = pytest.mark.looptime(start=0)

DEEP = "[" * 100_000 + "]" * 100_000
"""What a parser that calls itself for each level gives up on."""


@pytest.mark.parametrize("mode", ["Observe", "EvictPods", "TaintAndEvict"])
@pytest.mark.parametrize(
    "seconds", [2**63 - 1, 10**12, 300_000_000_000], ids=["as long as can be", "31,000 years", "after the year 9999"]
)
async def test_very_long_toleration_does_not_break_others(mode: str, seconds: int) -> None:
    cell = a_cell()
    cell.add(a_pod("ages", seconds=seconds), a_pod("web", seconds=60))
    async with running(cell, mode=mode) as process:
        cell.taint("n1", added=0)
        await asyncio.sleep(70)
        assert process.condition("Degraded") == ("False", "AllWell")
        recorded = {each["pod"]: each["due"] for each in process.status["nextDeadlines"]}
        assert recorded["ages"] == "9999-12-31T23:59:59Z"
    assert [uid for uid, _ in cell.gone] == ([] if mode == "Observe" else ["uid-web"])


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "null", '"x"', "[1]", "\x00", '[{"key":"a"}]', '[{"key":"a","since":"soon"}]',
        '[{"key":"a","since":"2026-11-20T12:00:00"}]', '[{"key":"a","since":"99999-01-01T00:00:00Z"}]',
        '[{"key":"a","since":"x","more":' + DEEP + "}]", DEEP,
    ],
    ids=lambda text: f"{text[:30]!r} of {len(text)}",
)  # fmt: skip
@pytest.mark.parametrize("mode", ["EvictPods", "TaintAndEvict"])
async def test_invalid_annotation_affects_its_node_only(mode: str, text: str) -> None:
    cell = a_cell("n1", "n2")
    cell.add(a_pod("web", "n1", seconds=60), a_pod("other", "n2", seconds=60))
    for name in ("n1", "n2"):
        cell.taint(name)
    cell.objects[f"{NODES}/n1"]["metadata"]["annotations"] = {SINCE_ANNOTATION: text}
    async with running(cell, mode=mode) as process:
        await asyncio.sleep(70)
        assert process.condition("Degraded")[0] == "False"
    assert dict(cell.gone) == {"uid-web": pytest.approx(60, abs=0.2), "uid-other": pytest.approx(60, abs=0.2)}


async def test_very_old_annotation_affects_its_node_only() -> None:
    """Whoever may write it may as well put the taint on with such a time."""
    cell = a_cell("n1", "n2")
    cell.add(a_pod("web", "n1", seconds=60), a_pod("other", "n2", seconds=60))
    for name in ("n1", "n2"):
        cell.taint(name)
    text = '[{"key":"a","since":"0001-01-01T00:00:00+14:00"}]'
    cell.objects[f"{NODES}/n1"]["metadata"]["annotations"] = {SINCE_ANNOTATION: text}
    async with running(cell, mode="EvictPods") as process:
        await asyncio.sleep(70)
        assert process.condition("Degraded")[0] == "False"
    assert [uid for uid, _ in cell.gone] == ["uid-web", "uid-other"]
    assert cell.gone[1][1] == pytest.approx(60, abs=0.2)


async def test_annotation_added_at_runtime_is_ignored() -> None:
    cell = a_cell("n1", "n2")
    cell.add(a_pod("web", "n1", seconds=60), a_pod("other", "n2", seconds=60))
    async with running(cell, mode="EvictPods") as process:
        cell.taint("n1")
        await asyncio.sleep(10)
        node = cell.objects[f"{NODES}/n1"]
        node["metadata"]["annotations"] = {SINCE_ANNOTATION: f'[{{"key":"a","since":"x","more":{DEEP}}}]'}
        cell._store(f"{NODES}/n1", node)
        cell.taint("n2")
        await asyncio.sleep(65)
        assert process.condition("Degraded")[0] == "False"
    assert [uid for uid, _ in cell.gone] == ["uid-web", "uid-other"]


@pytest.mark.parametrize("added", [-62_135_596_800 - 50_000, 253_402_300_800 + 50_000], ids=["year 0", "year 10000"])
@pytest.mark.parametrize("mode", ["EvictPods", "TaintAndEvict"])
async def test_extreme_taint_times_stop_nothing(mode: str, added: int) -> None:
    """An API server takes ``0001-01-01T00:00:00+14:00``, which no calendar of ours has; in protobuf it is a number."""
    cell = a_cell("n1", "n2")
    cell.add(a_pod("web", "n1", seconds=60), a_pod("other", "n2", seconds=60))
    for key in ("node.kubernetes.io/not-ready", "a"):
        cell.taint("n1", key, added=0)
    found = cell.objects[f"{NODES}/n1"]
    found["status"]["conditions"][0]["status"] = "Unknown"
    async with running(cell, mode=mode) as process:
        odd = process.caches.lister.nodes["n1"]
        taints = tuple(replace(each, time_added=float(added)) for each in odd.taints)
        process.caches.apply(odd, replace(odd, taints=taints, resource_version="odd"))
        cell.taint("n2")
        await asyncio.sleep(70)
        assert process.condition("Degraded")[0] == "False"
    assert "uid-other" in dict(cell.gone)


@pytest.mark.parametrize("text", [DEEP, '{"more":' + DEEP + "}", "[]", '{"silent":[]}', "\x00", '{"back":"x"}'])
def test_unreadable_record_counts_as_empty(text: str) -> None:
    assert decode_record(text) == LifecycleState()


@pytest.mark.parametrize(
    "what",
    ["tainting.deadlines.TaintDeadlineTracker.resync", "tainting.since_annotations.SinceAnnotations.resync"],
)
async def test_failed_start_is_retried(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a bug that one object brings out: whoever begins half would never end a pod, and not say so."""
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    cell.taint("n1", added=0)
    with monkeypatch.context() as patched:
        patched.setattr(f"trimtab.{what}", lambda *_, **__: 1 / 0)
        async with running(cell, mode="EvictPods") as process:
            await asyncio.sleep(3)
            assert process.condition("Degraded") == ("True", "IterationFailed")
            assert process.condition("Ready") == ("False", "IterationFailed")
            patched.undo()
            await asyncio.sleep(65)
            assert process.condition("Degraded")[0] == "False"
    assert dict(cell.gone) == {"uid-web": pytest.approx(60, abs=0.2)}


async def test_failed_events_are_retried_by_resync(monkeypatch: pytest.MonkeyPatch) -> None:
    from trimtab.tainting.deadlines import TaintDeadlineTracker

    cell = a_cell()
    cell.add(a_pod(seconds=60))
    async with running(cell, mode="EvictPods"):
        with monkeypatch.context() as patched:
            patched.setattr(TaintDeadlineTracker, "node_changed", lambda *_, **__: 1 / 0)
            patched.setattr(TaintDeadlineTracker, "resync", lambda *_, **__: 1 / 0)
            cell.taint("n1", added=0)
            await asyncio.sleep(5)
        await asyncio.sleep(65)
    assert [uid for uid, _ in cell.gone] == ["uid-web"]

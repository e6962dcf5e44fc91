"""One place to tell of a pass, which nothing that goes wrong in telling can stop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from tests.fakes.api import Call, FakeApi
from tests.unit.autoscaling.reporting import NOW, group, grown, removal, removed, report, scale_up
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.report.compatible_metrics import CompatibleMetrics
from trimtab.autoscaling.report.config_map import NAME, StatusConfigMap
from trimtab.autoscaling.report.events import EventTeller
from trimtab.autoscaling.report.metrics import AutoscalerMetrics
from trimtab.autoscaling.report.reporter import Reporter

SPEC = ClusterAutoscalerSpec()
PATH = f"/api/v1/namespaces/trimtab-system/configmaps/{NAME}"


class Recorder:
    """Keeps the reasons of events, or breaks."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.broken = False

    def event(self, regarding: object, *, reason: str, **more: Any) -> None:
        if self.broken:
            raise RuntimeError("broken")
        self.reasons.append(reason)


def reporter(recorder: Recorder, api: FakeApi | None = None) -> tuple[Reporter, CollectorRegistry]:
    registry = CollectorRegistry()
    return (
        Reporter(
            EventTeller(recorder),
            AutoscalerMetrics(registry),
            compatible=CompatibleMetrics(registry),
            config_map=None if api is None else StatusConfigMap(api, namespace="trimtab-system"),
        ),
        registry,
    )


async def settled() -> None:
    """Until what is being written is written."""
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "write the status ConfigMap"))


async def test_a_pass_is_told_in_events_metrics_and_the_config_map() -> None:
    recorder, api = Recorder(), FakeApi()
    telling, registry = reporter(recorder, api)
    telling.tell(report(group(), grown=[grown(scale_up())]), SPEC)
    telling.began(removal())
    telling.ended(removed())
    await settled()
    await telling.stop()

    assert recorder.reasons == ["ScaledUpGroup", "TriggeredScaleUp", "ScaleDown", "ScaleDown"]
    assert registry.get_sample_value("trimtab_autoscaler_passes_total", {"mode": "Act", "result": "Completed"}) == 1
    assert registry.get_sample_value("cluster_autoscaler_cluster_safe_to_autoscale") == 1
    assert PATH in api.objects


async def test_what_breaks_in_telling_is_logged_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    recorder, api = Recorder(), FakeApi()
    recorder.broken = True
    telling, registry = reporter(recorder, api)
    telling.tell(report(group(), grown=[grown(scale_up())]), SPEC)
    telling.began(removal())
    await settled()
    assert "could not be told" in caplog.text
    assert registry.get_sample_value("trimtab_autoscaler_passes_total", {"mode": "Act", "result": "Completed"}) == 1
    assert PATH in api.objects


async def test_no_pass_waits_for_a_slow_write_and_the_newest_report_is_written_after_it() -> None:
    api, gate = FakeApi(), asyncio.Event()

    async def slowly(call: Call) -> None:
        await gate.wait()

    api.before = slowly
    telling, _ = reporter(Recorder(), api)
    for target in (2, 3, 4):
        telling.tell(report(group(target=target), started=NOW + target, finished=NOW + target), SPEC)
        await asyncio.sleep(0)
    assert len(api.calls) == 1
    gate.set()
    await settled()
    (of,) = yaml.safe_load(api.objects[PATH]["data"]["status"])["nodeGroups"]
    assert of["health"]["cloudProviderTarget"] == 4
    assert len(api.sent("PATCH")) == 2


async def test_stopping_ends_a_write_that_hangs() -> None:
    api = FakeApi()

    async def hang(call: Call) -> None:
        await asyncio.Event().wait()

    api.before = hang
    telling, _ = reporter(Recorder(), api)
    telling.tell(report(group()), SPEC)
    await asyncio.sleep(0)
    await telling.stop()
    assert api.objects == {}


async def test_without_a_config_map_none_is_written() -> None:
    telling, _ = reporter(Recorder())
    telling.tell(report(group()), SPEC)
    await telling.stop()

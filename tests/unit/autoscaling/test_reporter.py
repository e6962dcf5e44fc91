"""The reporter: errors and slow writes never stop an iteration."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from tests.fakes.api import Call, FakeApi
from tests.unit.autoscaling.iteration_reports import NOW, group, grown, removal, removed, report, scale_up
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.report.events import AutoscalerEventReporter
from trimtab.autoscaling.report.metrics import AutoscalerMetrics, CompatibleMetrics
from trimtab.autoscaling.report.reporter import AutoscalerReporter
from trimtab.autoscaling.report.status_config_map import NAME, StatusConfigMap

SPEC = ClusterAutoscalerSpec()
PATH = f"/api/v1/namespaces/trimtab-system/configmaps/{NAME}"


class Recorder:
    """Records the reasons of events, or raises."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.broken = False

    def event(self, regarding: object, *, reason: str, **more: Any) -> None:
        if self.broken:
            raise RuntimeError("broken")
        self.reasons.append(reason)


def reporter(recorder: Recorder, api: FakeApi | None = None) -> tuple[AutoscalerReporter, CollectorRegistry]:
    registry = CollectorRegistry()
    return (
        AutoscalerReporter(
            AutoscalerEventReporter(recorder),
            AutoscalerMetrics(registry),
            compatible=CompatibleMetrics(registry),
            config_map=None if api is None else StatusConfigMap(api, namespace="trimtab-system"),
        ),
        registry,
    )


async def settled() -> None:
    """Wait until outstanding writes are done."""
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "write the status ConfigMap"))


async def test_iteration_is_reported_in_events_metrics_and_the_config_map() -> None:
    recorder, api = Recorder(), FakeApi()
    reporting, registry = reporter(recorder, api)
    reporting.report(report(group(), scale_up_outcomes=[grown(scale_up())]), SPEC)
    reporting.began(removal())
    reporting.ended(removed())
    await settled()
    await reporting.stop()

    assert recorder.reasons == ["ScaledUpGroup", "TriggeredScaleUp", "ScaleDown", "ScaleDown"]
    assert registry.get_sample_value("trimtab_autoscaler_passes_total", {"mode": "Act", "result": "Completed"}) == 1
    assert registry.get_sample_value("cluster_autoscaler_cluster_safe_to_autoscale") == 1
    assert PATH in api.objects


async def test_reporting_errors_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    recorder, api = Recorder(), FakeApi()
    recorder.broken = True
    reporting, registry = reporter(recorder, api)
    reporting.report(report(group(), scale_up_outcomes=[grown(scale_up())]), SPEC)
    reporting.began(removal())
    await settled()
    assert "Failed to report events" in caplog.text
    assert registry.get_sample_value("trimtab_autoscaler_passes_total", {"mode": "Act", "result": "Completed"}) == 1
    assert PATH in api.objects


async def test_slow_write_delays_no_iteration() -> None:
    api, gate = FakeApi(), asyncio.Event()

    async def slowly(call: Call) -> None:
        await gate.wait()

    api.before = slowly
    reporting, _ = reporter(Recorder(), api)
    for target in (2, 3, 4):
        reporting.report(report(group(target=target), started=NOW + target, finished=NOW + target), SPEC)
        await asyncio.sleep(0)
    assert len(api.calls) == 1
    gate.set()
    await settled()
    (of,) = yaml.safe_load(api.objects[PATH]["data"]["status"])["nodeGroups"]
    assert of["health"]["cloudProviderTarget"] == 4
    assert len(api.sent("PATCH")) == 2


async def test_stop_cancels_a_hanging_write() -> None:
    api = FakeApi()

    async def hang(call: Call) -> None:
        await asyncio.Event().wait()

    api.before = hang
    reporting, _ = reporter(Recorder(), api)
    reporting.report(report(group()), SPEC)
    await asyncio.sleep(0)
    await reporting.stop()
    assert api.objects == {}


async def test_config_map_is_optional() -> None:
    reporting, _ = reporter(Recorder())
    reporting.report(report(group()), SPEC)
    await reporting.stop()

"""The page of /metrics is rendered at most once a second."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest
from aiohttp.test_utils import make_mocked_request
from prometheus_client import CollectorRegistry, Counter, Gauge, Metric
from prometheus_client.registry import Collector
from tools.generate.reference import metrics

from tests.fakes.clock import SetClock
from trimtab.runtime.metrics.page import MAX_SAMPLES, MetricsPage


@asynccontextmanager
async def page_of(registry: CollectorRegistry, clock: SetClock) -> AsyncIterator[MetricsPage]:
    page = MetricsPage(registry, clock=clock)
    yield page
    page.close()


async def text(page: MetricsPage, **headers: str) -> str:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = await page.answer(make_mocked_request("GET", "/metrics", headers=named))
    assert response.status == 200
    assert isinstance(response.body, bytes)
    zipped = response.headers.get("Content-Encoding") == "gzip"
    return (gzip.decompress(response.body) if zipped else response.body).decode()


async def test_requests_of_one_second_share_a_page() -> None:
    registry, clock = CollectorRegistry(), SetClock()
    counter = Counter("seen", "x", registry=registry)
    async with page_of(registry, clock) as page:
        pages = await asyncio.gather(*(text(page) for _ in range(100)))
        counter.inc()
        clock.time += 0.9
        pages += [await text(page), await text(page, Accept_Encoding="gzip"), await text(page, Accept="text/html")]
        assert set(pages) == {pages[0]}
        assert "seen_total 0.0" in pages[0]
        assert page.collections == 1
        clock.time += 0.2
        assert "seen_total 1.0" in await text(page)
        assert page.collections == 2


async def test_open_metrics_is_written_from_the_same_collection() -> None:
    async with page_of(CollectorRegistry(), SetClock()) as page:
        assert not (await text(page)).endswith("# EOF\n")
        assert (await text(page, Accept="application/openmetrics-text;version=1.0.0")).endswith("# EOF\n")
        assert page.collections == 1


async def test_any_number_of_versions_that_clients_accept_makes_two_pages() -> None:
    async with page_of(CollectorRegistry(), SetClock()) as page:
        for version in range(50):
            await text(page, Accept=f"application/openmetrics-text;version={version}.0.{version};escaping=x{version}")
        assert page._current is not None
        assert len(page._current.bodies) == 1


class Held(Collector):
    """Collects only once it may, or fails so many times."""

    def __init__(self, *, failures: int = 0) -> None:
        self.may = threading.Event()
        self.failures = failures
        self.threads: list[str] = []

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        self.threads.append(threading.current_thread().name)
        assert self.may.wait(5)
        if self.failures:
            self.failures -= 1
            raise RuntimeError("dictionary changed size during iteration")
        return [Metric("held", "x", "gauge")]


async def test_slow_rendering_does_not_block_the_event_loop_and_is_shared() -> None:
    registry, clock, held = CollectorRegistry(), SetClock(), Held()
    registry.register(held)
    async with page_of(registry, clock) as page:
        first = asyncio.create_task(text(page))
        await asyncio.sleep(0)
        clock.time += 5
        second = asyncio.create_task(text(page))
        await asyncio.sleep(0)
        held.may.set()
        assert await first == await second
        assert len(held.threads) == page.collections == 1
        assert held.threads[0] != threading.current_thread().name


async def test_collection_is_repeated_after_a_concurrent_change() -> None:
    registry, held = CollectorRegistry(), Held(failures=2)
    registry.register(held)
    held.may.set()
    async with page_of(registry, SetClock()) as page:
        assert "held" in await text(page)


async def test_failure_returns_500_and_is_logged_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    registry, clock, held = CollectorRegistry(), SetClock(), Held(failures=3)
    registry.register(held)
    held.may.set()
    async with page_of(registry, clock) as page:
        for _ in range(10):
            assert (await page.answer(make_mocked_request("GET", "/metrics"))).status == 500
        assert len(caplog.records) == 1
        clock.time += 1
        assert "held" in await text(page)


async def test_a_metric_with_too_many_series_is_cut() -> None:
    registry = CollectorRegistry()
    many, few = (Gauge(name, "x", ["group"], registry=registry) for name in ("many", "few"))
    for number in range(MAX_SAMPLES + 7):
        many.labels(f"g{number}").set(1)
    few.labels("g").set(1)
    async with page_of(registry, SetClock()) as page:
        shown = await text(page)
    assert shown.count("many{") == MAX_SAMPLES
    assert shown.count("few{") == 1
    assert "trimtab_metrics_dropped_samples 7.0" in shown


def test_no_metric_label_has_values_from_tenants() -> None:
    labels = {label for metric in metrics() for label in metric.labels}
    objects = {"annotation", "container", "image", "label", "namespace", "node", "owner", "pod", "resource_name"}
    assert not labels & objects

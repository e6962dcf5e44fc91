"""Measures the live page of ``trimtab ui`` in headless Chromium: its first paint, its JavaScript heap, and its updates.

``python benchmarks/live_page.py (--kubeconfig FILE | --cluster FILE) [--seconds S] [--json]``

The page is opened once the server shows the cluster, so the time to read the cluster is separate: ``server ready`` is
the time from the start of the command until the page's first state. ``first_paint`` and ``loaded`` are measured by the
browser, from the start of the navigation to its first contentful paint and until all nodes are shown. ``heap_mb`` is
the used JavaScript heap of the page after a garbage collection, and ``heap_after_mb`` the same after the page has been
open for some seconds. Chromium is Debian's package, or the one of $TRIMTAB_CHROMIUM.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "operator"), str(ROOT / "local"), str(ROOT)]

from benchmarks.processes import cpu_seconds, memory_mb  # noqa: E402
from tests.fixtures.browser import Tab, browsing  # noqa: E402

LOADED: Final = "Boolean(document.body?.classList.contains('loaded'))"
WATCH: Final = """
new MutationObserver((_, observer) => {
  if (!document.body?.classList.contains('loaded')) return;
  window.loadedAt = performance.now();
  requestAnimationFrame(() => requestAnimationFrame(() => { window.paintedAt = performance.now(); }));
  observer.disconnect();
}).observe(document, {attributes: true, childList: true, subtree: true});
"""
"""Runs before the page's scripts, and records when all nodes are shown, and when they have been painted."""
PATIENCE: Final = 600.0

Result = dict[str, Any]


@asynccontextmanager
async def serving(*arguments: str) -> AsyncIterator[tuple[str, int]]:
    """Run ``trimtab ui``, and return its URL and its process id."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trimtab", "ui", "--no-open", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT / "operator")},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            line = (await process.stdout.readline()).decode()
        yield line.rpartition(" at ")[2].strip(), process.pid
    finally:
        process.terminate()
        await process.wait()


async def measure(arguments: list[str], *, seconds: float) -> Result:
    """Open the page, wait until it shows all nodes, open it again, and leave it open for some seconds."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-", ignore_cleanup_errors=True) as profile:
        async with serving(*arguments) as (url, pid), browsing(Path(profile)) as tab:
            await tab.send("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
            await _open(tab, url)
            ready = time.perf_counter() - began
            opened = []
            for _ in range(3):
                await _open(tab, url.partition("?")[0])  # the first one has set the cookie
                opened.append(await _times(tab))
            heap = await _heap(tab)
            nodes = await tab.evaluate("document.querySelectorAll('#heat .cell').length")
            elements = await tab.evaluate("document.querySelectorAll('*').length")
            before = cpu_seconds(pid)
            await asyncio.sleep(seconds)
            after = await _heap(tab)
            return {
                "name": "live-page",
                "nodes": nodes,
                "elements": elements,
                "server_ready_s": round(ready, 2),
                "first_paint_s": sorted(each["paint"] for each in opened),
                "loaded_s": sorted(each["loaded"] for each in opened),
                "all_painted_s": sorted(each["painted"] for each in opened),
                "heap_mb": heap,
                "heap_after_mb": after,
                "server_mb": memory_mb(pid, "VmRSS"),
                "server_cpu_share": round((cpu_seconds(pid) - before) / seconds, 2),
                "errors": len(tab.complaints),
                "load": round(os.getloadavg()[0], 1),
            }


async def _open(tab: Tab, url: str) -> None:
    await tab.send("Emulation.setDeviceMetricsOverride", width=1440, height=900, deviceScaleFactor=1, mobile=False)
    await tab.send("Page.navigate", url=url)
    async with asyncio.timeout(PATIENCE):
        while not await tab.evaluate(f"{LOADED} && Boolean(window.paintedAt)"):  # noqa: ASYNC110 (there is no event)
            await asyncio.sleep(0.1)


async def _times(tab: Tab) -> dict[str, float]:
    paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
    found = await tab.evaluate(f"[{paint}, window.loadedAt, window.paintedAt]")
    return dict(zip(("paint", "loaded", "painted"), (round(each / 1000, 2) for each in found), strict=True))


async def _heap(tab: Tab) -> float:
    """Return the used heap in MB, after a garbage collection."""
    await tab.send("HeapProfiler.collectGarbage")
    used = await tab.send("Runtime.getHeapUsage")
    return round(used["usedSize"] / 1e6, 1)


def main() -> None:
    """Print the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--kubeconfig", metavar="FILE", help="a live cluster")
    source.add_argument("--cluster", metavar="FILE", help="a cluster in a file")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the page stays open (default: 30)")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    given = ["--kubeconfig", options.kubeconfig] if options.kubeconfig else ["--cluster", options.cluster]
    result = asyncio.run(measure(given, seconds=options.seconds))
    print(json.dumps(result) if options.json else "\n".join(f"{key}: {value}" for key, value in result.items()))


if __name__ == "__main__":
    main()

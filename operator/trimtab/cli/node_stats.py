"""Reads the stats of nodes in a live cluster: through the API server's proxy, or from metrics.k8s.io.

The stats of a node are read with the user's own credentials from ``/api/v1/nodes/NAME/proxy/stats/summary``, which
needs permission to get ``nodes/proxy``. A user with this permission may also run commands in all pods, so kubelets are
only read on request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from trimtab.api.bounds import plural
from trimtab.api.reasons import STATS_FORBIDDEN, STATS_INVALID, STATS_UNKNOWN
from trimtab.inspection.node_stats import NodeStats, slim_summary
from trimtab.kube.api import Api, ApiError, NotFound, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.printable import printable
from trimtab.kube.resources import NODE_METRICS, POD_METRICS
from trimtab.pressure.measurement import ReadFailure
from trimtab.pressure.readings import ReadError
from trimtab.pressure.summary import InvalidSummary, read_summary

if TYPE_CHECKING:
    from trimtab.cli.live import Progress

METRICS_TIMEOUT: Final = 60.0
"""Timeout of a list of metrics in seconds. metrics-server supports no pages."""

NOT_REQUESTED: Final = "the kubelet is only read with --stats"
ON_REQUEST: Final = "with --stats, plan and explain node read the kubelets"

CONCURRENT: Final = 20
"""Number of kubelets that are asked at the same time."""


async def read_summaries(
    api: Api, names: Sequence[str], *, progress: Progress, on_summary: Callable[[str, bytes], None]
) -> dict[str, ReadFailure]:
    """Read the summaries of nodes through the API server's proxy.

    If the user may not get ``nodes/proxy``, only one request is sent.

    Args:
        api: the API server.
        names: the names of the nodes.
        progress: shows the progress.
        on_summary: called with the name of each node and the summary with the fields that planners read.

    Returns:
        why nodes could not be read, by name.
    """
    failures: dict[str, ReadFailure] = {}
    slots = asyncio.Semaphore(CONCURRENT)
    done = 0

    async def read(name: str) -> None:
        nonlocal done
        async with slots:
            failure = await _read_one(api, name, on_summary)
        if failure is not None:
            failures[name] = failure
        done += 1
        progress.show("node stats", done, len(names))

    first, *others = names or [""]
    if not first:
        return failures
    await read(first)
    refused = failures.get(first)
    if refused is not None and refused.reason == STATS_FORBIDDEN:
        failures.update({name: msgspec.structs.replace(refused, node=name) for name in others})
    else:
        await asyncio.gather(*map(read, others))
    progress.end()
    return failures


async def _read_one(api: Api, name: str, on_summary: Callable[[str, bytes], None]) -> ReadFailure | None:
    from trimtab.pressure.kubelet_client import read_through_proxy  # it imports a network library

    try:
        found, summary = slim_summary(await read_through_proxy(api, name))
        read_summary(summary, node=name, read_at=0.0)
    except ReadError as error:
        return _failure(name, error.reason, error.message)
    except InvalidSummary as error:
        return _failure(name, STATS_INVALID, str(error))
    on_summary(found, summary)
    return None


def _failure(name: str, reason: str, message: str) -> ReadFailure:
    return ReadFailure(name, reason, printable(" ".join(message.split()))[:1000], SYSTEM_CLOCK.now())


async def read_live_stats(api: Api, names: Iterable[str], progress: Progress, *, kubelets: bool) -> NodeStats:
    """Read the stats of nodes, and metrics.k8s.io if some of them are not read or cannot be read.

    Warnings on stderr say which permission is missing, or how many nodes could not be read.

    Args:
        api: the API server.
        names: the names of the nodes.
        progress: shows the progress.
        kubelets: whether to read the kubelets. Otherwise only the memory is known.
    """
    stats, wanted = NodeStats(), sorted(names)
    if kubelets:
        stats.failures = await read_summaries(api, wanted, progress=progress, on_summary=stats.add)
    else:
        stats.failures = {name: _failure(name, STATS_UNKNOWN, NOT_REQUESTED) for name in wanted}
    if not stats.failures:
        return stats
    stats.metrics, problem = await _list_metrics(api)
    known = problem or "only their memory is known, from metrics.k8s.io"
    if kubelets:
        warn_of_failures(stats.failures, known)
    else:
        click.echo(f"trimtab: note: the kubelets of nodes are not read: {printable(known)}; {ON_REQUEST}", err=True)
    return stats


async def _list_metrics(api: Api) -> tuple[list[Mapping[str, Any]], str]:
    """Return NodeMetrics and PodMetrics, and why they cannot be listed."""
    found: list[Mapping[str, Any]] = []
    for resource in (NODE_METRICS, POD_METRICS):
        try:
            answer = await api.request("GET", resource.path(), timeout=METRICS_TIMEOUT)
        except NotFound:
            return found, f"{resource.name} is not served: is metrics-server installed?"
        except (ApiError, Unreachable) as error:
            return found, f"{resource.name} cannot be listed: {error}"
        items = answer.get("items") if isinstance(answer, Mapping) else None
        found += [{**item, "kind": resource.kind} for item in items or () if isinstance(item, Mapping)]
    return found, ""


def warn_of_failures(failures: Mapping[str, ReadFailure], instead: str = "") -> None:
    """Warn on stderr about nodes whose stats could not be read.

    Args:
        failures: why nodes could not be read, by name.
        instead: what is done instead, for the end of the message.
    """
    name, first = min(failures.items())
    if first.reason == STATS_FORBIDDEN:
        text = f"no permission to get nodes/proxy, which reading the stats of nodes needs: {first.message}"
    else:
        text = f"the stats of {plural(len(failures), 'node')} cannot be read, for example of {name}: {first.message}"
    end = f"; {instead}" if instead else ""
    click.echo(f"trimtab: warning: {printable(text + end)}", err=True)

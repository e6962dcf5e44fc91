"""Access to the live cluster: loads it into a snapshot, writes it as a v1 List page by page, and queries Prometheus.

A cluster with 150,000 pods is half a gigabyte of JSON, so it is written without keeping it in memory.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import IO, Any, Final, TextIO, TypeVar

import click
import msgspec

from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.cli.connection import connection_config
from trimtab.cli.errors import InvalidObjectReporter, server_error
from trimtab.cli.missing_permissions import forbidden_actions
from trimtab.cli.node_stats import read_live_stats, read_summaries, warn_of_failures
from trimtab.cli.redaction import redact
from trimtab.cluster.kinds import KINDS, SNAPSHOT_KINDS, versions
from trimtab.cluster.loader import RETRY, LoadFailed, OnAbsent, is_reported_absence, is_tolerated_absence, load
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage.measurement import Usage, read_usage
from trimtab.cluster.usage.prometheus import Prometheus, PrometheusSettings, read_prometheus_usage
from trimtab.cluster.workloads.rollouts import Rollouts, read_rollouts
from trimtab.descheduling.planning.node_usage import metrics_utilization_of
from trimtab.inspection.live import HISTORY_KINDS, POLICY_KINDS
from trimtab.inspection.node_stats import NodeStats
from trimtab.kube.api import Api, ApiError, Forbidden, Gone, NotFound, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.connection.config import ServerConfig
from trimtab.kube.connection.transport import Transport
from trimtab.kube.printable import printable
from trimtab.kube.resources import NODES, Resource

T = TypeVar("T")


def load_live(
    *,
    kubeconfig: str | None,
    context: str | None,
    skip_invalid: bool,
    on_server: Callable[[str], None] | None = None,
    on_usage: Callable[[Usage], None] | None = None,
    on_rollouts: Callable[[Rollouts], None] | None = None,
    machines: bool = False,
    on_stats: Callable[[NodeStats], None] | None = None,
    stats_of: str = "",
    kubelets: bool = False,
) -> Snapshot:
    """Load the live cluster into a snapshot.

    Args:
        kubeconfig: the kubeconfig file; ``None`` for kubectl's defaults or, if there are none, the service account.
        context: the context of the kubeconfig; ``None`` for its current one.
        skip_invalid: report invalid objects and continue.
        on_server: called with the API server's URL once it is known.
        on_usage: called with the usage from metrics.k8s.io; if ``None``, that API is not read.
        on_rollouts: called with the Deployments; if ``None``, they are not read.
        machines: whether to also read the objects that autoscalers need: machines, node groups such as MachineSets, and
            DaemonSets.
        on_stats: called with the stats of the nodes; if ``None``, they are not read.
        stats_of: the only node whose stats are read; empty for all nodes.
        kubelets: whether stats are read from kubelets. Otherwise only the memory is known, from metrics.k8s.io.

    Raises:
        InputError: the kubeconfig is invalid.
        CommandError: the API server does not respond or refuses a request. The message contains the server and the
            request.
    """
    skipping = InvalidObjectReporter() if skip_invalid else None

    async def work(api: Api) -> Snapshot:
        kinds = SNAPSHOT_KINDS if machines else KINDS
        snapshot = await load(api, kinds=kinds, on_invalid=skipping, on_absent=warn_absent)
        if on_usage is not None:
            on_usage(await read_usage(api, now=SYSTEM_CLOCK.now()))
        if on_rollouts is not None:
            on_rollouts(await read_rollouts(api))
        if on_stats is not None:
            names = [name for name in snapshot.nodes.slot_of if name == stats_of or not stats_of]
            on_stats(await read_live_stats(api, names, Progress(sys.stderr), kubelets=kubelets))
        return snapshot

    return with_api(
        work,
        kubeconfig=kubeconfig,
        context=context,
        on_server=on_server,
    )


def warn_absent(resource: Resource, error: ApiError) -> None:
    """Warn on stderr that a kind is treated as empty, because it is not served or the user may not list it."""
    why = "the API server does not serve it" if isinstance(error, NotFound) else "you have no permission to list it"
    click.echo(f"trimtab: warning: {resource.name} is treated as empty: {printable(why)}", err=True)


def with_api(
    work: Callable[[Api], Awaitable[T]],
    *,
    kubeconfig: str | None,
    context: str | None,
    on_server: Callable[[str], None] | None = None,
) -> T:
    """Connect to the API server, run ``work``, disconnect, and return the result of ``work``.

    Raises:
        InputError: the kubeconfig is invalid.
        CommandError: the API server does not respond or refuses a request.
    """
    config = connection_config(
        kubeconfig, context=context
    )  # before the event loop starts, because it may run an exec plugin
    if on_server is not None:
        on_server(config.server)
    import uvloop  # a sixth faster for a large cluster with hundreds of megabytes

    return uvloop.run(_within(config, work))


async def _within(config: ServerConfig, work: Callable[[Api], Awaitable[T]]) -> T:
    async with Transport(config, retries=RETRY) as api:
        try:
            return await work(api)
        except LoadFailed as error:
            action = error.action
            if isinstance(error.cause, Forbidden):
                action = ", ".join(await forbidden_actions(api, action))
            raise server_error(error.cause, source=config.source, action=action) from error
        except (ApiError, Unreachable) as error:
            raise server_error(error, source=config.source) from error


PAGE_SIZE: Final = 500
"""Objects per page, as in kubectl."""

OWN_KINDS: Final[tuple[Resource, ...]] = (*POLICY_KINDS, *HISTORY_KINDS)
"""trimtab's own custom resources. Of those that are not installed or that the user may not list, none are saved."""

SAVED_KINDS: Final[tuple[Resource, ...]] = (*SNAPSHOT_KINDS[:-1], *OWN_KINDS, *SNAPSHOT_KINDS[-1:])
"""The kinds that ``trimtab snapshot`` writes, the most numerous one last."""

RESTARTS: Final = 2
"""Maximum number of times that the list of a kind is restarted because its continue token has expired (after five
minutes)."""


class ListWriter(ABC):
    """Writes a v1 List to a seekable stream, so that a kind can be written again if listing it is restarted."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    @abstractmethod
    def begin(self) -> None:
        """Write the text before the first item."""

    @abstractmethod
    def item(self, item: dict[str, Any]) -> None:
        """Write an object."""

    @abstractmethod
    def end(self) -> None:
        """Write the text after the last item."""

    def mark(self) -> int:
        """Return the current position, for :meth:`rewind`."""
        return self._stream.tell()

    def rewind(self, mark: int) -> None:
        """Remove everything that was written after the mark."""
        self._stream.seek(mark)
        self._stream.truncate()


class JsonList(ListWriter):
    """Writes JSON, one object per line."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(stream)
        self._first = 0
        self._encode = msgspec.json.Encoder().encode

    def begin(self) -> None:
        """Write the text before the first item."""
        self._stream.write(b'{"apiVersion":"v1","kind":"List","items":[')
        self._first = self._stream.tell()

    def item(self, item: dict[str, Any]) -> None:
        """Write an object."""
        separator = b"\n" if self._stream.tell() == self._first else b",\n"
        self._stream.write(separator + self._encode(item))

    def end(self) -> None:
        """Write the text after the last item."""
        self._stream.write(b"\n]}\n")


class YamlList(ListWriter):
    """Writes YAML: one document that kubectl can read."""

    def begin(self) -> None:
        """Write the text before the first item."""
        self._stream.write(b"apiVersion: v1\nkind: List\nitems:\n")

    def item(self, item: dict[str, Any]) -> None:
        """Write an object as an element of a block sequence."""
        self._stream.write(msgspec.yaml.encode([item]))

    def end(self) -> None:
        """Do nothing, because a YAML list has no closing text."""


async def write_cluster(
    api: Api,
    writer: ListWriter,
    *,
    kinds: Sequence[Resource] = SAVED_KINDS,
    progress: Progress,
    on_absent: OnAbsent | None = None,
    stats: bool = False,
) -> None:
    """Write the objects of a live cluster as a list.

    The objects of one kind are consistent with each other, because all pages of a list have the same resource version.

    Args:
        api: the API server.
        writer: writes the list.
        kinds: the kinds to write.
        progress: shows the progress after each page.
        on_absent: called with each kind that is treated as empty, and the reason, see
            :func:`trimtab.cluster.loader.load`.
        stats: whether to also write the summaries of kubelets. Warnings on stderr say which cannot be read.

    Raises:
        LoadFailed: a kind cannot be listed.
    """
    writer.begin()
    absent: list[tuple[Resource, ApiError]] = []
    if stats:
        await _write_stats(api, writer, progress)
    for resource in kinds:
        try:
            await _write_newest(api, writer, resource, progress)
        except ApiError as error:
            own = resource in OWN_KINDS and isinstance(error, NotFound | Forbidden)
            if not (own or is_tolerated_absence(resource, error)):
                raise LoadFailed(resource, error) from error
            reported = isinstance(error, Forbidden) if own else is_reported_absence(resource, error)
            if reported:
                absent.append((resource, error))
        except Unreachable as error:
            raise LoadFailed(resource, error) from error
    writer.end()
    progress.end()
    for resource, reason in absent:
        if on_absent is not None:
            on_absent(resource, reason)


async def _write_stats(api: Api, writer: ListWriter, progress: Progress) -> None:
    """Write the summaries of all nodes. They are items without a kind, as kubelets return them."""
    names = sorted([item["metadata"]["name"] async for items in list_pages(api, NODES, progress) for item in items])
    failures = await read_summaries(
        api, names, progress=progress, on_summary=lambda _, summary: writer.item(msgspec.json.decode(summary))
    )
    if failures:
        warn_of_failures(failures)


async def _write_newest(api: Api, writer: ListWriter, resource: Resource, progress: Progress) -> None:
    *newer, oldest = versions(resource)
    for version in newer:
        try:
            await _write_kind(api, writer, version, progress)
            return
        except NotFound:
            continue
    await _write_kind(api, writer, oldest, progress)


async def _write_kind(api: Api, writer: ListWriter, resource: Resource, progress: Progress) -> None:
    start = writer.mark()
    for attempt in range(RESTARTS + 1):
        try:
            await _write_pages(api, writer, resource, progress)
            return
        except Gone:
            # The continue token has expired. The pages written so far have an older resource version than a new list.
            if attempt == RESTARTS:
                raise
            writer.rewind(start)


async def _write_pages(api: Api, writer: ListWriter, resource: Resource, progress: Progress) -> None:
    async for items in list_pages(api, resource, progress):
        for item in items:
            writer.item({"apiVersion": resource.api_version, "kind": resource.kind} | redact(resource.kind, item))


async def list_pages(api: Api, resource: Resource, progress: Progress) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the objects of a kind page by page, all of the same resource version, and show the progress.

    Raises:
        ApiError: the API server refuses a request; :class:`Gone` if the continue token has expired.
        Unreachable: there was no response.
    """
    token, count = "", 0
    while True:
        params = {"limit": str(PAGE_SIZE)} | ({"continue": token} if token else {})
        page = await api.request("GET", resource.path(), params=params, timeout=60.0)
        items = page.get("items") or []
        count += len(items)
        progress.show(resource.plural, count, count + (page["metadata"].get("remainingItemCount") or 0))
        yield items
        token = page["metadata"].get("continue") or ""
        if not token:
            return


class Progress:
    """Shows the progress on stderr. If stderr is not a terminal, nothing is shown, so that logs are not cluttered."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream if stream.isatty() else None

    def show(self, name: str, count: int, total: int) -> None:
        """Overwrite the line with the current progress."""
        if self._stream is not None:
            self._stream.write(f"\r\x1b[K{name} {count:,} of {total:,}")
            self._stream.flush()

    def end(self) -> None:
        """Clear the line."""
        if self._stream is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def query_prometheus(
    policies: Sequence[DeschedulerPolicy], settings: PrometheusSettings | None, *, now: int | None
) -> dict[str, Usage]:
    """Run the Prometheus queries of policies, and return the usage by policy name.

    Args:
        policies: the policies with a query.
        settings: the Prometheus server. If it is not configured (``None``), each result contains this as its problem.
        now: evaluation time in seconds since the epoch; ``None`` for the server's current time.

    Raises:
        InputError: the settings are invalid.
    """
    import uvloop

    return uvloop.run(_query_prometheus(policies, settings, now))


async def _query_prometheus(
    policies: Sequence[DeschedulerPolicy], settings: PrometheusSettings | None, now: int | None
) -> dict[str, Usage]:
    if settings is None:
        return await _query_each(policies, None, now)
    async with Prometheus(settings.server()) as prometheus:
        return await _query_each(policies, prometheus, now)


async def _query_each(
    policies: Sequence[DeschedulerPolicy], prometheus: Prometheus | None, now: int | None
) -> dict[str, Usage]:
    found = {}
    for policy in policies:
        wanted = metrics_utilization_of(policy)
        if wanted is not None and wanted.prometheus is not None:
            when = SYSTEM_CLOCK.now()
            found[policy.name] = await read_prometheus_usage(prometheus, wanted.prometheus, now=when, at=now)
    return found

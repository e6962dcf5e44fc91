"""The clusters that the page shows: a live one, kept up to date by informers, or one from files.

A live cluster has two snapshots that share all objects. The planner borrows one of them for seconds, and the page, its
search and its explanations borrow the other one, so that they never wait for a plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trimtab.api.plan import SURGE
from trimtab.api.strategies import KUBERNETES_METRICS
from trimtab.cli.cluster_input import policy_set_of
from trimtab.cli.cluster_policies import read_custom_resources
from trimtab.cli.ui.view import Connection
from trimtab.cluster.kinds import SNAPSHOT_KINDS
from trimtab.cluster.loader import LoadFailed
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.cluster.usage.measurement import Usage, read_usage
from trimtab.cluster.workloads.rollouts import Rollouts, read_rollouts
from trimtab.controller.loop import end_tasks
from trimtab.descheduling.planning.node_usage import metrics_utilization_of
from trimtab.inspection.cluster import ClusterInput, PolicySet, eviction_memories
from trimtab.inspection.history import entries_of
from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.errors import InputError
from trimtab.kube.objects import KubeObject
from trimtab.kube.resources import DESCHEDULING_RUNS, HISTORY_RECORDS, NODES, Resource
from trimtab.kube.verbs import get
from trimtab.runtime.informers import Informers

POLL: Final = 2.0
"""Seconds between two reads of the custom resources of trimtab. They are few, so lists cost less than watches."""

MEASUREMENT_PERIOD: Final = 30.0
"""Minimum number of seconds between two reads of metrics.k8s.io and of the Deployments."""

FIRST_FILL: Final = 15.0
"""Seconds to wait for kinds that the user may not list, before the page shows the cluster without them."""

Lent = AbstractAsyncContextManager[ClusterInput]


class Source(Protocol):
    """A cluster, as it is now.

    Attributes:
        live: whether the cluster changes.
        name: the API server's URL, or the file.
    """

    live: bool
    name: str

    @property
    def revision(self) -> int:
        """Return a number that increases with each change."""
        ...

    @property
    def ready(self) -> bool:
        """Return whether the cluster has been read completely once."""
        ...

    @property
    def connection(self) -> Connection:
        """Return the state of the connection to the API server."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what is missing and why, one sentence each."""
        ...

    def borrow(self) -> Lent:
        """Lend the cluster for a view, a search or an explanation, possibly to another thread."""
        ...

    def borrow_for_plan(self) -> Lent:
        """Lend the cluster for a plan, possibly to another thread."""
        ...

    async def managed_fields(self, node: str) -> tuple[Mapping[str, Any], ...]:
        """Return the managedFields of a node; empty if they are not known."""
        ...

    async def run(self) -> None:
        """Keep the cluster up to date until cancelled."""
        ...


class FileSource:
    """A cluster from files, which never changes."""

    live = False
    ready = True
    revision = 0
    connection = Connection()
    warnings: tuple[str, ...] = ()

    def __init__(self, cluster: ClusterInput) -> None:
        self.name = cluster.source
        self._cluster = cluster
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[ClusterInput]:
        """Lend the cluster exclusively, because planners and explanations change it for a moment."""
        async with self._lock:
            yield self._cluster

    borrow_for_plan = borrow

    async def managed_fields(self, node: str) -> tuple[Mapping[str, Any], ...]:
        """Return none: files of ``kubectl get`` do not contain them by default."""
        del node
        return ()

    async def run(self) -> None:
        """Wait until cancelled."""
        await asyncio.Event().wait()


class ReadOnly:
    """Sends only GET requests to the API server, whatever the code behind it asks for."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def request(self, method: str, path: str, **options: Any) -> Any:
        """Send a GET request.

        Raises:
            PermissionError: the method is not GET.
        """
        if method != "GET":
            raise PermissionError(f"{method} {path}: the live page only reads")
        return await self._api.request(method, path, **options)

    def stream(self, path: str, **options: Any) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Send a GET request and read the body in chunks."""
        return self._api.stream(path, **options)


class _CustomResources(Struct, frozen=True):
    """What was read from the custom resources of trimtab."""

    policies: PolicySet = PolicySet()
    history: tuple[Any, ...] = ()
    problems: tuple[str, ...] = ()


class _Measurements(Struct, frozen=True):
    """What was read for policies that need it.

    Attributes:
        usage: the actual utilization from metrics.k8s.io; ``None`` if no policy needs it.
        rollouts: the Deployments; ``None`` if no policy needs them.
        at: when they were read, in seconds since the epoch.
    """

    usage: Usage | None = None
    rollouts: Rollouts | None = None
    at: float = 0.0


def _measured_by(policies: PolicySet) -> list[str]:
    """Return the names of the policies that use metrics.k8s.io."""
    found = ((each.name, metrics_utilization_of(each)) for each in policies.descheduler)
    return [name for name, wanted in found if wanted is not None and wanted.source == KUBERNETES_METRICS]


class LiveSource:
    """A live cluster.

    Args:
        api: the API server.
        name: its URL.
        kinds: the kinds in the snapshot.
    """

    live = True

    def __init__(self, api: Api, name: str, *, kinds: Sequence[Resource] = SNAPSHOT_KINDS) -> None:
        self.name = name
        self._api: Api = ReadOnly(api)
        self._shown, self._planned = SharedSnapshot(kinds), SharedSnapshot(kinds)
        self._informers = Informers(self._api, self._shown, kinds)
        self._changes = 0
        for kind in kinds:
            self._informers.subscribe(kind, self._planned.apply)
            self._informers.subscribe(kind, self._count)
        self._custom = _CustomResources()
        self._measured = _Measurements()
        self._read: bytes = b""
        self._poll_error = ""
        self._current_at: float | None = None
        self._ready = False

    @property
    def revision(self) -> int:
        """Return the number of changes so far."""
        return self._changes

    @property
    def ready(self) -> bool:
        """Return whether every kind has been read, or has been refused for a while."""
        return self._ready

    @property
    def connection(self) -> Connection:
        """Return the state of the watches of nodes and pods, and of the reads of custom resources."""
        reason = self._informers.stale_reason_of(self._vital) or self._poll_error
        if not reason:
            self._current_at = SYSTEM_CLOCK.now()
            return Connection()
        return Connection(ok=False, message=reason, since=self._current_at)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the kinds that the user may not read, and the invalid policies."""
        waiting = self._informers.check()
        incomplete = (f"The cluster is shown incompletely: {waiting}",) if waiting and self._ready else ()
        return (*incomplete, *self._custom.problems)

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[ClusterInput]:
        """Lend the snapshot of the page."""
        async with self._shown.borrow() as snapshot:
            yield self._input(snapshot)

    @asynccontextmanager
    async def borrow_for_plan(self) -> AsyncIterator[ClusterInput]:
        """Lend the snapshot of the planner."""
        async with self._planned.borrow() as snapshot:
            yield self._input(snapshot)

    async def managed_fields(self, node: str) -> tuple[Mapping[str, Any], ...]:
        """Read the managedFields of a node; empty if it cannot be read."""
        try:
            manifest = await get(self._api, NODES, node, timeout=5.0)
        except (ApiError, Unreachable):
            return ()
        entries = manifest.get("metadata", {}).get("managedFields")
        return tuple(each for each in entries or () if isinstance(each, dict))

    async def run(self) -> None:
        """Run the informers and read the custom resources until cancelled."""
        tasks = [*self._informers.start(), asyncio.create_task(self._poll(), name="read the policies")]
        filling = asyncio.create_task(self._fill(), name="wait for the first fill")
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await end_tasks([filling, *tasks])
            await self._informers.stop()

    @property
    def _vital(self) -> tuple[Resource, ...]:
        return tuple(each for each in SNAPSHOT_KINDS if each.plural in ("nodes", "pods"))

    def _count(self, old: KubeObject | None, new: KubeObject | None) -> None:
        del old, new
        self._changes += 1

    def _input(self, snapshot: Any) -> ClusterInput:
        now, policies = SYSTEM_CLOCK.now(), self._custom.policies
        return ClusterInput(
            snapshot=snapshot,
            now=now,
            source=self.name,
            policies=policies,
            memories=eviction_memories(policies.descheduler, snapshot, now=now),
            usages={} if self._measured.usage is None else dict.fromkeys(_measured_by(policies), self._measured.usage),
            rollouts=self._measured.rollouts,
            history=self._custom.history,
        )

    async def _fill(self) -> None:
        """Wait until every kind is read, or for :data:`FIRST_FILL` if nodes and pods are."""
        started = SYSTEM_CLOCK.now()
        while not self._ready:
            patient = SYSTEM_CLOCK.now() - started < FIRST_FILL
            if self._informers.check() is None or (
                not patient and self._informers.stale_reason_of(self._vital) is None
            ):
                self._ready = True
                self._changes += 1
            await asyncio.sleep(0.05)

    async def _poll(self) -> None:
        while True:
            try:
                await self._read_custom_resources()
                await self._read_measurements()
                self._poll_error = ""
            except LoadFailed as error:
                self._poll_error = str(error)
            except (ApiError, Unreachable) as error:
                self._poll_error = str(error)
            await asyncio.sleep(POLL)

    async def _read_custom_resources(self) -> None:
        problems: list[str] = []

        documents = await read_custom_resources(self._api, warn=problems.append)
        records = await read_custom_resources(self._api, (HISTORY_RECORDS, DESCHEDULING_RUNS), warn=problems.append)
        read = msgspec.json.encode([[document.content for _, document in (*documents, *records)], problems])
        if read == self._read:
            return
        self._read = read
        entries = entries_of(each.content for _, each in records if isinstance(each.content, dict))

        def report(error: InputError) -> None:
            problems.append(f"An invalid policy is not shown: {error}")

        policies = policy_set_of(documents, report)
        self._custom = _CustomResources(policies, entries, tuple(problems))
        self._measured = replace(self._measured, at=0.0)
        self._changes += 1

    async def _read_measurements(self) -> None:
        """Read the actual utilization and the Deployments, if a policy needs them."""
        now, policies = SYSTEM_CLOCK.now(), self._custom.policies
        surging = any(each.spec.single_replica == SURGE for each in policies.descheduler)
        if now - self._measured.at < MEASUREMENT_PERIOD or not (surging or _measured_by(policies)):
            return
        usage = await read_usage(self._api, now=now) if _measured_by(policies) else None
        self._measured = _Measurements(usage, await read_rollouts(self._api) if surging else None, now)
        self._changes += 1


def without_omitted(cluster: ClusterInput) -> tuple[ClusterInput, tuple[str, ...]]:
    """Return the cluster without policies that need data which the page does not read, and what its plan lacks.

    Node pressure needs the stats of every kubelet, and placement admission needs every object in every namespace.
    Policies with actual utilization, or with ``singleReplica: Surge``, stay in the cluster: their plan has no evictions
    that need the data that is missing.
    """
    policies = cluster.policies
    omitted = []
    if policies.pressure and not cluster.stats:
        policies = replace(policies, pressure=())
        omitted.append("NodePressurePolicy")
    if policies.admission is not None and cluster.audit is None:
        policies = replace(policies, admission=None)
        omitted.append("PlacementAdmission")
    return replace(cluster, policies=policies), (*omitted, *_missing_data(cluster))


def _missing_data(cluster: ClusterInput) -> Iterator[str]:
    """Yield which data for DeschedulerPolicies is missing, and why."""
    for policy in cluster.policies.descheduler:
        wanted = metrics_utilization_of(policy)
        if wanted is not None:
            usage = cluster.usages.get(policy.name)
            if usage is None:
                read = "is not read yet" if wanted.source == KUBERNETES_METRICS else "is not queried by this page"
                yield f"utilization for DeschedulerPolicy {policy.name}: {wanted.source} {read}"
            elif usage.problem:
                yield f"utilization for DeschedulerPolicy {policy.name}: {usage.problem}"
        if policy.spec.single_replica == SURGE and (cluster.rollouts is None or cluster.rollouts.problem):
            problem = "Deployments are not read yet" if cluster.rollouts is None else cluster.rollouts.problem
            yield f"single replicas of DeschedulerPolicy {policy.name}: {problem}"

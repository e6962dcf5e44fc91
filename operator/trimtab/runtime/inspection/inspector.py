"""Answers questions on the shared snapshot, one at a time, so that controllers are hardly delayed.

A question borrows the snapshot as a planner does, and is computed in a thread. Informers continue; planners that want
the snapshot in the meantime wait for the rest of one question. For each question, the snapshot is left to the
controllers for :data:`REST_SHARE` times as long as the question took, so that questions use it for at most a fifth of
the time, however many clients ask. A few questions after a quiet time need not wait, see :data:`MAX_OWED`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct

from trimtab.api.plan import SURGE
from trimtab.api.strategies import KUBERNETES_METRICS, PROMETHEUS
from trimtab.cluster.loader import LoadFailed
from trimtab.cluster.shared_snapshot import SharedSnapshot, in_thread
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage.measurement import read_usage
from trimtab.cluster.workloads.rollouts import read_rollouts
from trimtab.descheduling.planning.node_usage import metrics_utilization_of
from trimtab.descheduling.policy_conflicts import Scoring
from trimtab.inspection.cluster import ClusterInput, PolicySet, eviction_memories
from trimtab.inspection.history import entries_of
from trimtab.inspection.live import HISTORY_KINDS, POLICY_KINDS, list_manifests, policy_set
from trimtab.inspection.node_stats import NodeStats, OperatorStats
from trimtab.inspection.planning import UNCHANGED_SECONDS, JointPlanCache
from trimtab.kube.api import Api, ApiError, NotFound, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.errors import InputError
from trimtab.kube.resources import Resource
from trimtab.kube.verbs import get
from trimtab.pressure.measurement import NodeReadings
from trimtab.runtime.inspection.questions import RESOURCES, InspectedResource, NotServed, Question, not_found

log = logging.getLogger(__name__)

MAX_WAITING: Final = 16
"""Maximum number of different questions that wait at the same time."""
WAIT_TIMEOUT: Final = 3.0
"""Seconds that a question waits for others and for the snapshot. Then the client reads the cluster itself."""
READ_TIMEOUT: Final = 5.0
REST_SHARE: Final = 4.0
MAX_REST: Final = 30.0
MAX_OWED: Final = MAX_REST
"""Seconds of rest that questions may owe to the controllers before the next question waits.

It is the rest for one question, so that those after it are answered, which use the same joint plan.
"""
FRESH_SECONDS: Final = 2.0
"""Seconds for which policies and the history that were read for one question serve others too."""


class _Read(Struct, frozen=True):
    """Objects that were read from the API server, and when."""

    at: float
    manifests: tuple[Mapping[str, Any], ...]


class Inspector:
    """Answers questions. All methods run on the controllers' event loop.

    Args:
        api: the API server, for policies, the history, and what else informers do not watch.
        shared: the snapshot.
        not_ready: returns why the snapshot is not up to date; ``None`` if it is.
        source: the URL of the API server, for documents.
        scoring: the scheduler's scoring strategy, for the check for policy conflicts.
        node_readings: returns what this process has read from nodes, by name; ``None`` if it reads none, because it is
            not the leader or has no node-pressure controller.
        clock: provides the time.
        observe: called with the resource of each computed question and the seconds for which it used the snapshot.
    """

    def __init__(
        self,
        api: Api,
        shared: SharedSnapshot,
        *,
        not_ready: Callable[[], str | None],
        source: str = "",
        scoring: Scoring | None = None,
        node_readings: Callable[[], Mapping[str, NodeReadings] | None] = lambda: None,
        clock: Clock = SYSTEM_CLOCK,
        observe: Callable[[str, float], None] = lambda _resource, _seconds: None,
    ) -> None:
        self._api = api
        self._shared = shared
        self._not_ready = not_ready
        self._source = source
        self._scoring = scoring
        self._node_readings = node_readings
        self._clock = clock
        self._observe = observe
        self._answers: dict[Question, asyncio.Task[bytes]] = {}
        self._read: dict[tuple[Resource, ...], _Read] = {}
        self._plans = JointPlanCache(clock)
        self._turn = asyncio.Lock()
        self._free_at = 0.0

    async def answer(self, question: Question) -> bytes:
        """Return the document of a question as JSON. Equal questions at the same time are computed once.

        Raises:
            NotServed: the question cannot be answered from memory, or not now.
        """
        running = self._answers.get(question)
        if running is None:
            if len(self._answers) >= MAX_WAITING:
                raise NotServed("too many requests are waiting", status=429, reason="TooManyRequests")
            running = self._answers[question] = asyncio.create_task(self._answer(question), name="inspection")
            running.add_done_callback(partial(self._answered, question))
        return await asyncio.shield(running)

    async def close(self) -> None:
        """Cancel the questions that wait, and wait for the one that is being computed."""
        running = list(self._answers.values())
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _answered(self, question: Question, task: asyncio.Task[bytes]) -> None:
        self._answers.pop(question, None)
        if not task.cancelled():
            task.exception()  # the clients may all be gone

    async def _answer(self, question: Question) -> bytes:
        resource = RESOURCES[question.resource]
        if (reason := self._not_ready()) is not None:
            raise NotServed(f"the operator's caches are not in sync: {reason}")
        # 1. Read what no informer watches.
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                cluster = await self._collect(resource, question)
        except TimeoutError:
            raise NotServed("the API server does not respond in time") from None
        except (ApiError, Unreachable, LoadFailed, InputError) as error:
            raise NotServed(str(error)) from error
        # 2. Wait for the snapshot, and compute the answer in a thread.
        deadline = self._clock.monotonic() + WAIT_TIMEOUT
        try:
            async with asyncio.timeout(WAIT_TIMEOUT):
                await self._turn.acquire()
        except TimeoutError:
            raise NotServed("the operator is answering other requests", status=429, reason="TooManyRequests") from None
        try:
            return await self._compute(resource, question, cluster, deadline)
        finally:
            self._turn.release()

    async def _compute(
        self, resource: InspectedResource, question: Question, cluster: ClusterInput, deadline: float
    ) -> bytes:
        free_at = self._free_at - MAX_OWED
        await self._clock.sleep(max(0.0, min(free_at, deadline) - self._clock.monotonic()))
        if free_at > deadline:
            raise NotServed("the operator is answering other requests", status=429, reason="TooManyRequests")
        borrowed = self._shared.borrow()
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                snapshot = await borrowed.__aenter__()
        except TimeoutError:
            raise NotServed("a controller is planning") from None
        current = msgspec.structs.replace(
            cluster, snapshot=snapshot, revision=self._shared.revision, plans=self._plans if resource.plans else None
        )
        started = time.perf_counter()
        try:
            return await in_thread(partial(_document, resource, question, current))
        finally:
            seconds = time.perf_counter() - started
            self._free_at = max(self._free_at, self._clock.monotonic()) + min(MAX_REST, REST_SHARE * seconds)
            self._observe(resource.name, seconds)
            asyncio.get_running_loop().call_later(UNCHANGED_SECONDS, self._plans.drop_expired)
            await borrowed.__aexit__(None, None, None)

    async def _collect(self, resource: InspectedResource, question: Question) -> ClusterInput:
        """Return the input of a question without the snapshot.

        Raises:
            NotServed: the operator lacks what the question needs.
            ApiError, Unreachable, LoadFailed: a request failed.
            InputError: a policy is invalid.
        """
        policies = policy_set(await self._list(POLICY_KINDS), scoring=self._scoring)
        readings = self._node_readings() if resource.plans and policies.pressure else None
        if resource.plans:
            _check_can_plan(policies, reads_nodes=readings is not None)
        now = float(int(self._clock.now()))
        measured = [each for each in policies.descheduler if _usage_source(each) == KUBERNETES_METRICS]
        surging = any(each.spec.single_replica == SURGE for each in policies.descheduler)
        usage = await read_usage(self._api, now=now) if resource.plans and measured else None
        return ClusterInput(
            snapshot=_EMPTY,
            now=now,
            source=self._source,
            policies=policies,
            usages={} if usage is None else {each.name: usage for each in measured},
            rollouts=await read_rollouts(self._api) if resource.plans and surging else None,
            stats=NodeStats() if readings is None else OperatorStats(readings),
            managed_fields=await self._managed_fields(resource.managed_fields, question),
            history=entries_of(await self._list(HISTORY_KINDS)) if resource.history else (),
        )

    async def _list(self, kinds: tuple[Resource, ...]) -> tuple[Mapping[str, Any], ...]:
        found = self._read.get(kinds)
        if found is None or self._clock.monotonic() - found.at > FRESH_SECONDS:
            at = self._clock.monotonic()
            found = self._read[kinds] = _Read(at, tuple(await list_manifests(self._api, kinds)))
        return found.manifests

    async def _managed_fields(
        self, resource: Resource | None, question: Question
    ) -> Mapping[tuple[str, str], tuple[Mapping[str, Any], ...]]:
        if resource is None:
            return {}
        try:
            found = await get(self._api, resource, question.name, namespace=question.namespace)
        except NotFound:
            raise not_found(resource, question.name) from None
        entries = (found.get("metadata") or {}).get("managedFields") or ()
        return {(resource.kind, question.name): tuple(each for each in entries if isinstance(each, dict))}


_EMPTY: Final = Snapshot()


def _document(resource: InspectedResource, question: Question, cluster: ClusterInput) -> bytes:
    """Compute a document. Runs in a thread."""
    memories = eviction_memories(cluster.policies.descheduler, cluster.snapshot, now=cluster.now)
    complete = msgspec.structs.replace(cluster, memories=memories)
    return msgspec.json.encode(resource.answer(complete, question))


def _usage_source(policy: Any) -> str:
    wanted = metrics_utilization_of(policy)
    return "" if wanted is None else wanted.source


def _check_can_plan(policies: PolicySet, *, reads_nodes: bool) -> None:
    """Check that the operator can plan for these policies without the caller's permissions and options.

    Args:
        policies: the policies.
        reads_nodes: whether this process reads the stats of the nodes of NodePressurePolicies.

    Raises:
        NotServed: it cannot.
    """
    lacking = {
        "NodePressurePolicies need the stats of nodes": bool(policies.pressure) and not reads_nodes,
        "a PlacementAdmission needs the workloads": policies.admission is not None,
        "a policy needs a Prometheus server": any(_usage_source(each) == PROMETHEUS for each in policies.descheduler),
    }
    for problem, lacks in lacking.items():
        if lacks:
            raise NotServed(f"{problem}, which the operator does not keep in memory")

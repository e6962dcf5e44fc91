"""Keeps the view of a source current, and sends its changes to the open pages.

Two loops run side by side: one computes the view at most once a second, the other one the plan at most every five
seconds. Both do nothing while nothing changes.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

import msgspec

from trimtab.api.plan import Plan, rfc3339
from trimtab.autoscaling.cluster_state import count_by_readiness, count_upcoming, readiness_by_node
from trimtab.autoscaling.groups import NodeGroup
from trimtab.cli.ui.sources import Source, without_omitted
from trimtab.cli.ui.view import Connection, Document, PlanResult, View, change_between, view_of
from trimtab.cluster.shared_snapshot import in_thread
from trimtab.inspection.cluster import ClusterInput
from trimtab.inspection.planning import joint_plan
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.errors import InputError

log = logging.getLogger(__name__)

VIEW_PERIOD: Final = 1.0
"""Minimum number of seconds between two updates of the pages."""

PLAN_PERIOD: Final = 5.0
"""Minimum number of seconds between two plans."""

PLAN_SHARE: Final = 3.0
"""Planning uses at most one third of the time, so that pages and explanations respond in large clusters too."""

TICK: Final = 0.1
MAX_AGE: Final = 30.0
"""Seconds after which the view is computed even if nothing changed, because nodes stop booting at some time."""

QUEUE: Final = 8
"""Maximum number of updates that wait for one page. A slower page is disconnected, and reconnects with a new state."""


class LivePage:
    """Computes the view of a source, and passes its changes to subscribers.

    Args:
        source: the cluster.
        plan_period: minimum number of seconds between two plans.
    """

    def __init__(self, source: Source, *, plan_period: float = PLAN_PERIOD) -> None:
        self.source = source
        self.view: View | None = None
        self._period = plan_period
        self._result = PlanResult()
        self._plans = 0
        self._queues: set[asyncio.Queue[bytes | None]] = set()

    @property
    def plan(self) -> Plan | None:
        """Return the last plan, if there is one."""
        return self._result.plan

    def subscribe(self) -> asyncio.Queue[bytes | None]:
        """Return a queue of messages for a page: the complete state first, then changes; ``None`` ends the page."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUE)
        if self.view is not None:
            queue.put_nowait(self._complete(self.view))
        self._queues.add(queue)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[bytes | None]) -> None:
        """Stop adding messages to a queue."""
        self._queues.discard(queue)

    async def run(self) -> None:
        """Keep the view and the plan current until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.source.run(), name="keep the cluster up to date")
            group.create_task(self._update_views(), name="update the page")
            group.create_task(self._update_plans(), name="update the plan")

    async def _update_views(self) -> None:
        seen: object = None
        at = 0.0
        while True:
            await asyncio.sleep(TICK)
            connection = self.source.connection
            state = (self.source.revision, self._plans, connection.ok, connection.message, self.source.ready)
            now = SYSTEM_CLOCK.now()
            if not self.source.ready or (state == seen and (now - at < MAX_AGE or not self.source.live)):
                if self.view is None:
                    self._report_loading(connection)
                continue
            seen, at = state, now
            async with self.source.borrow() as cluster:
                view = await in_thread(partial(self._view, cluster, connection))
            self._publish(view)
            await asyncio.sleep(VIEW_PERIOD - TICK)

    def _view(self, cluster: ClusterInput, connection: Connection) -> View:
        source = self.source
        return view_of(cluster, self._result, live=source.live, connection=connection, warnings=source.warnings)

    def _report_loading(self, connection: Connection) -> None:
        """Tell the pages that are open already why they are still empty."""
        message = msgspec.json.encode({"loading": connection.message or "reading the cluster"})
        for queue in self._queues:
            if queue.empty():
                queue.put_nowait(message)

    def _publish(self, view: View) -> None:
        before, self.view = self.view, view
        if before is None:
            message = self._complete(view)
        else:
            change = change_between(before, view)
            if change is None:
                return
            message = _message("change", change)
        for queue in list(self._queues):
            if queue.full():
                self._drop(queue)
            else:
                queue.put_nowait(message)

    def _drop(self, queue: asyncio.Queue[bytes | None]) -> None:
        """Disconnect a page that does not read its updates."""
        self._queues.discard(queue)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)

    def _complete(self, view: View) -> bytes:
        sections = {name: msgspec.Raw(content) for name, content in view.sections.items()}
        content = msgspec.json.encode({"rows": list(view.nodes.values()), "gone": [], "sections": sections})
        return _message("state", content)

    async def _update_plans(self) -> None:
        seen = -1
        while True:
            await asyncio.sleep(TICK)
            if self.view is None or self.source.revision == seen or not self.source.connection.ok:
                continue
            seen = self.source.revision
            started = SYSTEM_CLOCK.now()
            async with self.source.borrow_for_plan() as cluster:
                self._result = await in_thread(partial(plan_of, cluster))
            self._plans += 1
            await asyncio.sleep(max(self._period, PLAN_SHARE * (SYSTEM_CLOCK.now() - started)))


def _message(kind: str, content: bytes) -> bytes:
    now = msgspec.json.encode(rfc3339(SYSTEM_CLOCK.now()))
    return b'{"kind":"%b","time":%b,"content":%b}' % (kind.encode(), now, content)


def plan_of(cluster: ClusterInput) -> PlanResult:
    """Plan what the applied policies would do now. A planner that fails is reported on the page, not raised."""
    started = SYSTEM_CLOCK.now()
    cluster, omitted = without_omitted(cluster)
    inputs = cluster.policies.autoscaling_inputs(now=cluster.now)
    groups = inputs.node_groups(cluster.snapshot)
    nodes = {name: cluster.snapshot.nodes.node(slot) for name, slot in cluster.snapshot.nodes.slot_of.items()}
    readiness = readiness_by_node(nodes, groups, now=cluster.now, startup=inputs.spec.startup_taints)
    counts = count_by_readiness(groups, readiness)
    group_of = {node: groups.by_id[group].key for node, group in groups.of_node.items()}
    rows = tuple(_group(each, count_upcoming(each, counts[each.id])) for each in groups.all)
    try:
        plan, error = joint_plan(cluster), ""
    except InputError as failed:
        plan, error = None, str(failed)
    except Exception as failed:  # the page must stay usable whatever the planner meets
        log.exception("Failed to compute the plan for the page of trimtab ui")
        plan, error = None, f"{type(failed).__name__}: {failed}"
    seconds = SYSTEM_CLOCK.now() - started
    return PlanResult(plan, seconds, error, omitted, group_of, rows)


def _group(group: NodeGroup, upcoming: int) -> Document:
    return {
        "name": group.key,
        "id": group.id,
        "minimum": group.minimum,
        "maximum": group.maximum,
        "target": group.target,
        "upcoming": upcoming,
        "paused": group.paused,
    }

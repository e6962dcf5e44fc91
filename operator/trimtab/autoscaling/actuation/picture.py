"""The live picture as removals ask it: always in turn with planners, never in the middle of their trials."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.node_removal import RemoveNode
from trimtab.autoscaling import scale_down
from trimtab.autoscaling.actuation.signs import CORDONED_BY, REMOVING, signs_of
from trimtab.autoscaling.groups import Groups
from trimtab.autoscaling.replace.record import Replacing
from trimtab.autoscaling.scale_down.drainability import Context, Outcome, judge_template
from trimtab.cluster.live import LiveCluster, in_thread
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import BudgetLedger
from trimtab.disruption.refusal import Refusal
from trimtab.kube.clock import Clock
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Node, Pod
from trimtab.kube.rules.taints import DELETION_CANDIDATE, TO_BE_DELETED

log = logging.getLogger(__name__)

Grouping = Callable[[Snapshot], Groups]
"""Makes the groups of a snapshot, with the MachineAutoscalers and whatever else they follow from."""

FRESH: Final = 1.0
"""Seconds for which groups count as fresh: many removals ask for them, and all may have the same."""

GATHERING: Final = 0.05
"""Seconds in which second looks are gathered, to be made in one."""

_LONG_AGO: Final = "1970-01-01T00:00:00Z"


class Picture:
    """What removals ask of the live picture.

    Args:
        live: the picture.
        grouping: makes its groups.
        clock: where the time comes from.
    """

    def __init__(self, live: LiveCluster, grouping: Grouping, clock: Clock) -> None:
        self._live = live
        self._grouping = grouping
        self._clock = clock
        self._groups: tuple[float, Groups] | None = None
        self._making: asyncio.Task[Groups] | None = None
        self._asked: dict[str, asyncio.Future[RemoveNode | Refusal]] = {}
        self._looking: asyncio.Task[None] | None = None
        self.spec = ClusterAutoscalerSpec()
        """As the last pass had it."""
        self.replaced: frozenset[str] = frozenset()
        """Nodes that go because others have taken their place, however much of them is used."""

    async def node(self, name: str) -> Node | None:
        """The node; ``None`` where there is none."""
        async with self._live.borrow() as snapshot:
            slot = snapshot.nodes.slot_of.get(name)
            return None if slot is None else snapshot.nodes.node(slot)

    async def pods(self, node: str) -> list[Pod]:
        """The pods of a node, by ``namespace/name``."""
        async with self._live.borrow() as snapshot:
            return snapshot.pods_on(node)

    async def blocks(self, key: str) -> Refusal | None:
        """Why a pod must not be evicted any more, budgets aside: it may have changed while they held it back."""
        async with self._live.borrow() as snapshot:
            pod = snapshot.pods.get(key)
            if pod is None or pod.priority < self.spec.pod_priority_threshold:
                return None
            context = Context(
                snapshot,
                BudgetLedger(snapshot),
                self._clock.now(),
                local_storage_blocks=self.spec.skip_nodes_with_local_storage,
            )
            verdict = judge_template(pod, context)
        if verdict.outcome not in (Outcome.BLOCK, Outcome.WAIT):
            return None
        return Refusal(verdict.reason or reasons.BLOCKED_BY_POD, f"pod {key}: {verdict.message}")

    async def groups(self) -> Groups:
        """The groups, as they were a moment ago."""
        if self._groups is not None and self._clock.monotonic() - self._groups[0] < FRESH:
            return self._groups[1]
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._make(), name="look at the groups of nodes")
        return await asyncio.shield(self._making)

    async def still_goes(self, node: str) -> RemoveNode | Refusal:
        """Judge a node again that has our taint: whether it would be removed now, or why not.

        Several that are asked for at once are judged together, as a plan would, so that no two of them count on each
        other's room.
        """
        asked = self._asked.get(node)
        if asked is None:
            asked = self._asked[node] = asyncio.get_running_loop().create_future()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="judge nodes again that go")
        return await asyncio.shield(asked)

    async def stop(self) -> None:
        """Wait for looks that nobody waits for any more: until their end they have the picture to themselves."""
        looks = [each for each in (self._making, self._looking) if each is not None]
        await asyncio.gather(*looks, return_exceptions=True)

    async def _make(self) -> Groups:
        async with self._live.borrow() as snapshot:
            found = await in_thread(partial(self._grouping, snapshot))
        self._groups = (self._clock.monotonic(), found)
        return found

    async def _look(self) -> None:
        await self._clock.sleep(GATHERING)
        while self._asked:
            asked, self._asked = self._asked, {}
            try:
                async with self._live.borrow() as snapshot:
                    now = self._clock.now()
                    found = await in_thread(
                        partial(
                            judge_again,
                            snapshot,
                            self._grouping,
                            self.spec,
                            tuple(asked),
                            now=now,
                            replaced=self.replaced,
                        )
                    )
            except Exception as error:  # a defect in the way of judging must not stop a removal where it is
                log.exception("could not judge again whether %s still go", ", ".join(sorted(asked)))
                for future in asked.values():
                    if not future.done():
                        future.set_exception(error)
                continue
            for name, future in asked.items():
                if not future.done():
                    future.set_result(found[name])


def judge_again(
    snapshot: Snapshot,
    grouping: Grouping,
    spec: ClusterAutoscalerSpec,
    nodes: tuple[str, ...],
    *,
    now: float,
    replaced: frozenset[str] = frozenset(),
) -> dict[str, RemoveNode | Refusal]:
    """Judge nodes that are on their way out as if they had not begun to go.

    How long they were unneeded counts no more: that was decided. Other nodes that go count as going, and what still
    runs there has its places first.

    Args:
        snapshot: the picture; changed meanwhile and as before afterwards.
        grouping: makes its groups.
        spec: of the ClusterAutoscaler.
        nodes: their names.
        now: seconds since the epoch.
        replaced: those whose place others have taken.
    """
    groups = _unmarked(grouping(snapshot), frozenset(nodes))
    with snapshot.fork():
        for name in nodes:
            slot = snapshot.nodes.slot_of.get(name)
            if slot is not None:
                snapshot.put(_as_before(snapshot.nodes.node(slot)))
        made = scale_down.plan(
            snapshot, groups, spec, now=now, only=frozenset(nodes), replacing=Replacing(old=replaced)
        )
    found: dict[str, RemoveNode | Refusal] = {action.node: action for action in made.actions}
    for kept in made.kept:
        found[kept.name] = Refusal(kept.reason, kept.message)
    gone = Refusal(reasons.ALREADY_GONE, "the node is gone")
    return {name: found.get(name, gone) for name in nodes}


def _as_before(node: Node) -> Node:
    """The node without the signs of its removal, and unneeded since long ago."""
    ours = signs_of(node).ours
    annotations = {key: value for key, value in node.annotations.items() if key not in (REMOVING, CORDONED_BY)}
    return replace(
        node,
        unschedulable=node.unschedulable and CORDONED_BY not in node.annotations,
        taints=tuple(
            taint
            for taint in node.taints
            if taint.key != DELETION_CANDIDATE and not (ours and taint.key == TO_BE_DELETED)
        ),
        annotations=Labels({**annotations, scale_down.UNNEEDED_SINCE: _LONG_AGO}),
    )


def _unmarked(groups: Groups, nodes: frozenset[str]) -> Groups:
    """The groups as if none of these nodes' machines were marked."""
    by_id = dict(groups.by_id)
    for name in sorted(nodes):
        group = groups.group_of(name)
        if group is not None:
            machines = tuple(
                replace(each, marked=False) if each.node in nodes else each for each in by_id[group.id].machines
            )
            by_id[group.id] = replace(by_id[group.id], machines=machines)
    return replace(groups, by_id=by_id)

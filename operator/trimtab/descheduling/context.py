"""What a strategy works with: candidates to ask for, moves to try, and a word on every pod that stays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter
from typing import Final

import numpy as np

from trimtab.api.plan import SURGE, Evict, Kept
from trimtab.api.reasons import NO_IMPROVEMENT, NO_PLACE
from trimtab.cluster.resources import BoolArray
from trimtab.descheduling.board import Board, Guard
from trimtab.descheduling.memory.recollection import Recollection
from trimtab.descheduling.overlap import HELD
from trimtab.descheduling.overlap import pending as pending
from trimtab.descheduling.scope import Scope
from trimtab.descheduling.wish import Wish as Wish
from trimtab.disruption.gate import Rules
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import ENDED, Pod
from trimtab.placement.scorer import Scorer

AT_HOME: Final = "node(s) already ran the pod"
NOT_SELECTED: Final = "node(s) were not selected by the policy"
NOT_UP: Final = "node(s) were not ready"

_KEY: Final = attrgetter("key")


class Context:
    """One strategy of one policy at work on the board."""

    def __init__(
        self,
        board: Board,
        scope: Scope,
        rules: Rules,
        *,
        policy: str,
        strategy: str,
        guards: Iterable[Guard] = (),
        memory: Recollection | None = None,
    ) -> None:
        self.board = board
        self.snapshot = board.snapshot
        self.placer = board.placer
        self.scope = scope
        self.policy = policy
        self.strategy = strategy
        self.guards = tuple(guard for guard in guards if guard.may_object())
        self._rules = rules
        self._memory = memory
        self._told: set[str] = set()

    def is_candidate(self, pod: Pod) -> bool:
        """Whether the strategy may judge a placed pod.

        Not if it is out of the policy's scope, at its end, on its way out, or moved by this plan already: a second
        move would rest on a first one that has yet to succeed.
        """
        return not pod.terminal and pod.deleted is None and pod.key not in self.board.moved and self.scope.covers(pod)

    def candidates(self, slot: int, concerned: Callable[[Pod], bool] | None = None) -> list[Pod]:
        """The candidates on a node, by name; only those ``concerned``, which is asked first."""
        return sorted(self.each_candidate(slot, concerned), key=_KEY)

    def each_candidate(self, slot: int, concerned: Callable[[Pod], bool] | None = None) -> list[Pod]:
        """The same in no particular order, for whoever has an order of its own."""
        there, moved = self.snapshot.items_on(self.snapshot.nodes.node(slot).name), self.board.moved
        found = [pod for key, pod in there if key not in moved and pod.phase not in ENDED and pod.deleted is None]
        if concerned is not None:
            found = [pod for pod in found if concerned(pod)]
        return [pod for pod in found if self.scope.covers(pod)] if self.scope.narrow else found

    def obstacle(self, pod: Pod) -> Refusal | None:
        """Why the pod must stay wherever it could go: protections, what did not help before, budgets, limits."""
        refusal = self._rules.protected(pod)
        if refusal is None and self._memory is not None:
            refusal = self._memory.refusal(pod, self.strategy)
        return refusal or self._rules.refusal(pod)

    def try_move(self, pod: Pod, wish: Wish, *, reason: str, message: Callable[[int], str]) -> Refusal | None:
        """Move the pod to the best node of the wish, or keep it, say why, and return that.

        Args:
            pod: a candidate.
            wish: where it would be better.
            reason: the code for the move.
            message: the numbers compared, given the slot chosen; called before the pod is moved.
        """
        found: int | Refusal = self.obstacle(pod) or self.find(pod, wish)
        refusal = found if isinstance(found, Refusal) else self.move(pod, found, reason=reason, message=message(found))
        if refusal is not None:
            self.keep(pod, refusal.reason, refusal.message)
        return refusal

    def find(self, pod: Pod, wish: Wish, scorer: Scorer | None = None) -> int | Refusal:
        """The slot for the pod, or why there is none: no node takes it, or none of those that do is better.

        Args:
            pod: a candidate.
            wish: where it would be better.
            scorer: chooses between nodes that are equally good; as kube-scheduler's default profile does without.
        """
        # Asked while the pod is in its place: guards compare others with it, and count it there.
        objections = [(self._all_but(slots), text) for slots, text in self.objections(pod)]
        mark = self.snapshot.mark()
        try:
            home = self.snapshot.nodes.slot_of[pod.node]
            overlaps = self._rules.stays_until_replaced(pod)
            lifted = pending(pod) if overlaps else self.placer.lift(pod)
            takes = self.placer.feasible(lifted) & self.scope.destinations
            free = self.board.overlap.free()
            if free is not None:
                free[home] |= not overlaps
                takes &= free
            if wish.stay:
                for welcome, _ in objections:
                    welcome[home] = True  # where the pod is already nothing gets worse
            else:
                takes[home] = False
            wished = takes & wish.among
            for welcome, _ in objections:
                wished &= welcome
            if wish.rank is not None and wished.any():
                wished &= wish.rank == wish.rank[wished].min()
            slot = (scorer or self.placer.scorer).first(lifted, wished)
            if slot is not None:
                return slot
            further = (
                *(() if wish.stay else ((self._all_but((home,)), AT_HOME),)),
                (self.scope.selected, NOT_SELECTED),
                (self.scope.up, NOT_UP),
                *(() if free is None else ((free, HELD),)),
                (wish.among, wish.otherwise),
                *objections,
            )
            code = NO_IMPROVEMENT if takes.any() else NO_PLACE
            return Refusal(reason=code, message=self.placer.why_not(lifted, further))
        finally:
            self.snapshot.undo(mark)

    def objections(self, pod: Pod) -> list[tuple[Collection[int], str]]:
        """The slots where strategies before this one would not have the pod, with what is told of them."""
        told = []
        for guard in self.guards:
            slots = guard.objections(pod)
            if slots:
                told.append((slots, guard.unwelcome_text))
        return told

    def move(self, pod: Pod, slot: int, *, reason: str, message: str) -> Refusal | None:
        """Reserve a place that was found for the pod and plan its eviction, or say what speaks against it."""
        stays = self.snapshot.nodes.slot_of[pod.node] == slot
        overlap, overlaps = self.board.overlap, self._rules.stays_until_replaced(pod)
        crowded = overlap.refusal(pod, slot, stays_until_replaced=overlaps)
        if crowded is not None:
            return crowded
        moved = pod if stays else self.board.leaning.reserve(pod, slot)
        if isinstance(moved, Refusal):
            return moved
        self._rules.take(pod)
        self.board.moved.add(pod.key)
        for watcher in self.board.watchers:
            watcher.moved(pod, moved)
        self.board.leaning.add(pod)
        if overlaps:
            overlap.hold(pod)
        self._plan(pod, moved.node, reason, message)
        return None

    def is_removable(self, pod: Pod) -> bool:
        """What :meth:`is_candidate` says of others, of a pod that has run to its end."""
        return pod.terminal and pod.deleted is None and pod.key not in self.board.moved and self.scope.covers(pod)

    def remove(self, pod: Pod, *, reason: str, message: str) -> Refusal | None:
        """Remove a pod that has run to its end, or keep it, say why, and return that.

        It holds no place and needs none: whoever made it has made others, if they are needed. No strategy counts it.
        """
        refusal = self._rules.protected_from_removal(pod) or self._rules.refusal(pod)
        if refusal is not None:
            self.keep(pod, refusal.reason, refusal.message)
            return refusal
        self.snapshot.remove(pod)
        self._rules.take(pod)
        self.board.moved.add(pod.key)
        self._plan(pod, "", reason, message)
        return None

    def _plan(self, pod: Pod, target: str, reason: str, message: str) -> None:
        owner = pod.controller
        self.board.actions.append(
            Evict(
                policy=self.policy,
                strategy=self.strategy,
                namespace=pod.namespace,
                pod=pod.name,
                node=pod.node,
                target=target,
                reason=reason,
                message=message,
                uid=pod.uid,
                owner=f"{owner.kind}/{owner.name}" if owner is not None else "",
                how=SURGE if target and self._rules.surges(pod) else "Evict",
            )
        )

    def move_all(
        self,
        pods: Sequence[Pod],
        find: Callable[[Pod], int | Refusal],
        *,
        reason: str,
        message: Callable[[Pod, int], str],
    ) -> tuple[Pod, Refusal] | None:
        """Move all of the pods or none: each to the place that is found for it once those before it have theirs.

        Args:
            pods: candidates, in the order in which they go.
            find: the slot for a pod, or why there is none.
            reason: the code for the moves.
            message: the numbers compared, given a pod and the slot chosen; called before the pod is moved.

        Returns:
            The first pod that cannot go, and why; ``None`` where all of them go.
        """
        board, mark = self.board, self.snapshot.mark()
        actions, leaning = len(board.actions), len(board.leaning)
        for number, pod in enumerate(pods):
            found: int | Refusal = self.obstacle(pod) or find(pod)
            if not isinstance(found, Refusal):
                refusal = self.move(pod, found, reason=reason, message=message(pod, found))
            else:
                refusal = found
            if refusal is not None:
                gone = [(before, self.snapshot.pods[before.key]) for before in reversed(pods[:number])]
                self.snapshot.undo(mark)
                del board.actions[actions:]
                board.leaning.cut(leaning)
                for before, after in gone:
                    self._take_back(before, after)
                return pod, refusal
        self.snapshot.commit(mark)
        return None

    def _take_back(self, before: Pod, after: Pod) -> None:
        self._rules.take_back(before)
        self.board.overlap.let_go(before)
        self.board.moved.discard(before.key)
        for watcher in self.board.watchers:
            watcher.moved(after, before)

    def keep(self, pod: Pod, reason: str, message: str) -> None:
        """Note that a candidate stays; the first word on it is the one that counts."""
        if pod.key in self._told:
            return
        self._told.add(pod.key)
        self.board.kept.append(
            Kept(
                kind="Pod",
                namespace=pod.namespace,
                name=pod.name,
                strategy=self.strategy,
                reason=reason,
                message=message,
                policy=self.policy,
                node=pod.node,
            )
        )

    def keep_node(self, slot: int, reason: str, message: str) -> None:
        """Note that nothing can be done for a node, whichever of its pods one takes."""
        self.board.kept.append(
            Kept(
                kind="Node",
                namespace="",
                name=self.snapshot.nodes.node(slot).name,
                strategy=self.strategy,
                reason=reason,
                message=message,
                policy=self.policy,
            )
        )

    def _all_but(self, slots: Collection[int]) -> BoolArray:
        mask: BoolArray = np.ones(self.snapshot.nodes.capacity, dtype=np.bool_)
        mask[list(slots)] = False
        return mask

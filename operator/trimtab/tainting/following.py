"""Keeps the book by what the watches tell, and tells those who act on it.

It is called by the stores' listeners, for which an exception is the end of the process: here one costs a look at the
whole cluster, and nothing is missed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from trimtab.kube.objects import Lease, Node, Pod
from trimtab.tainting.acting import Acting
from trimtab.tainting.deadlines import SINCE_ANNOTATION, Change, Deadline, DeadlineBook, Tolerating
from trimtab.tainting.deadlines.rule import concerned
from trimtab.tainting.services import Services

log = logging.getLogger(__name__)


class Following:
    """The book of deadlines, as the cluster changes.

    Args:
        services: the picture, the time, who is told.
        rule: how tolerations are read.

    Attributes:
        book: when which pod goes.
        acting: who acts on it; ``None`` while nobody does.
    """

    def __init__(self, services: Services, rule: Tolerating) -> None:
        self.book = DeadlineBook(services.picture.pods_on, rule)
        self.acting: Acting | None = None
        self._services = services
        self._end: Callable[[], None] | None = None
        self._missed = False

    def begin(self, *, notes: bool) -> None:
        """Look at the whole cluster, and follow it from now on.

        Args:
            notes: whether what is noted on nodes counts. Nobody keeps notes while nobody acts: they may be of taints
                that were put on again since, and would end pods too soon.
        """
        self._look_at_everything(notes=notes)
        self._end = self._services.picture.follow(self)

    def end(self) -> None:
        """Follow no more."""
        if self._end is not None:
            self._end()
            self._end = None

    def read_by(self, rule: Tolerating) -> None:
        """Read tolerations by another rule from now on."""
        self._settle(self.book.read_by(rule, now=self._services.clock.now()))

    def mend(self) -> None:
        """Look at the whole cluster where something could not be taken in."""
        if self._missed:
            self._look_at_everything(notes=self.acting is not None)
            self._missed = False

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came, changed or went; the picture has it already."""
        with self._taking_in(new or old):
            seen = new if new is None or self.acting is not None else _without_note(new)
            followed, now = self._services.followed(), self._services.clock.now()
            self._settle(self.book.node_changed(old, seen, now=now, followed=followed))
            if self.acting is not None:
                self.acting.node_changed(old, new)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod came, changed or went; the picture has it already."""
        with self._taking_in(new or old):
            self._settle(self.book.pod_changed(old, new, now=self._services.clock.now()))

    def lease_changed(self, old: Lease | None, new: Lease | None) -> None:
        """A node's Lease came, was renewed or went; the picture has it already."""
        with self._taking_in(new or old):
            if self.acting is not None:
                self.acting.lease_changed(old, new)

    def _look_at_everything(self, *, notes: bool) -> None:
        picture = self._services.picture
        nodes: Iterable[Node] = picture.nodes.values()
        if not notes:
            nodes = [_without_note(node) for node in nodes]
        self._settle(self.book.everything(nodes, picture.pods.every(), now=self._services.clock.now()))

    @contextmanager
    def _taking_in(self, what: Node | Pod | Lease | None) -> Iterator[None]:
        try:
            yield
        except Exception:
            key = "nothing" if what is None else what.key
            log.exception("%s could not be taken in; the whole cluster is looked at", key)
            self._missed = True

    def _settle(self, changes: Iterable[Change]) -> None:
        changes = tuple(changes)
        if not changes:
            return
        if self.acting is not None:
            self.acting.follow(changes)
        teller = self._services.teller
        for change in changes:
            if change.after is not None:
                teller.deadline_set(change.after, before=change.before)
            elif change.before is not None:
                teller.deadline_dropped(change.before, stays=self._stays(change.before))

    def _stays(self, deadline: Deadline) -> bool:
        """Whether the pod is there yet, on its node, and not on its way out."""
        pod = self._services.picture.pods.get(deadline.key)
        if pod is None or pod.uid != deadline.uid or not concerned(pod):
            return False
        return pod.node in self._services.picture.nodes


def _without_note(node: Node) -> Node:
    """The node as if nothing were noted on it."""
    if SINCE_ANNOTATION not in node.annotations:
        return node
    rest = {key: value for key, value in node.annotations.items() if key != SINCE_ANNOTATION}
    return msgspec.structs.replace(node, annotations=type(node.annotations)(rest))

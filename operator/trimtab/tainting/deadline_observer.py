"""Updates the pod deadlines from watch events, and forwards the changes to the taint manager's tasks and the reporter.

The observer is a listener of the caches. An exception in a listener would end the process. The observer catches it and
resyncs the whole cluster instead, so that no change is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from trimtab.kube.objects import Lease, Node, Pod
from trimtab.tainting.active_tasks import ActiveTasks
from trimtab.tainting.deadlines import SINCE_ANNOTATION, Deadline, DeadlineChange, TaintDeadlineTracker, TolerationRule
from trimtab.tainting.deadlines.rule import subject_to_taints
from trimtab.tainting.dependencies import TaintingDependencies

log = logging.getLogger(__name__)


class DeadlineObserver:
    """Feeds watch events to the deadline tracker, and forwards the changed deadlines to the tasks and the reporter.

    Args:
        services: the dependencies of the taint manager.
        rule: determines how tolerations are matched.

    Attributes:
        tracker: tracks the deadlines of all pods.
        tasks: the tasks that evict pods and taint nodes; ``None`` in Observe mode.
    """

    def __init__(self, services: TaintingDependencies, rule: TolerationRule) -> None:
        self.tracker = TaintDeadlineTracker(services.lister.items_on, rule)
        self.tasks: ActiveTasks | None = None
        self._services = services
        self._unsubscribe: Callable[[], None] | None = None
        self._out_of_sync = False

    def start(self, *, read_annotations: bool) -> None:
        """Read the whole cluster, and subscribe to changes.

        Args:
            read_annotations: whether to read the taint times from the nodes' annotations. They are up to date only in
                the modes EvictPods and TaintAndEvict. An outdated annotation may describe a taint that was removed and
                added again, and would set a deadline too early.
        """
        self._resync(read_annotations=read_annotations)
        self._unsubscribe = self._services.lister.subscribe(self)

    def stop(self) -> None:
        """Unsubscribe from changes."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def set_rule(self, rule: TolerationRule) -> None:
        """Apply a new rule for matching tolerations."""
        self._forward(self.tracker.set_rule(rule, now=self._services.clock.now()))

    def resync_if_needed(self) -> None:
        """Resync the whole cluster if processing an event has failed."""
        if self._out_of_sync:
            self._resync(read_annotations=self.tasks is not None)
            self._out_of_sync = False

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """Process an added, changed or removed node. The lister must already reflect the change."""
        with self._resync_on_error(new or old):
            observed = new if new is None or self.tasks is not None else _without_annotation(new)
            in_sync, now = self._services.nodes_in_sync(), self._services.clock.now()
            self._forward(self.tracker.node_changed(old, observed, now=now, in_sync=in_sync))
            if self.tasks is not None:
                self.tasks.node_changed(old, new)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Process an added, changed or removed pod. The lister must already reflect the change."""
        with self._resync_on_error(new or old):
            self._forward(self.tracker.pod_changed(old, new, now=self._services.clock.now()))

    def lease_changed(self, old: Lease | None, new: Lease | None) -> None:
        """Process an added, renewed or removed node Lease. The lister must already reflect the change."""
        with self._resync_on_error(new or old):
            if self.tasks is not None:
                self.tasks.lease_changed(old, new)

    def _resync(self, *, read_annotations: bool) -> None:
        lister = self._services.lister
        nodes: Iterable[Node] = lister.nodes.values()
        if not read_annotations:
            nodes = [_without_annotation(node) for node in nodes]
        self._forward(self.tracker.resync(nodes, lister.items(), now=self._services.clock.now()))

    @contextmanager
    def _resync_on_error(self, subject: Node | Pod | Lease | None) -> Iterator[None]:
        try:
            yield
        except Exception:
            key = "an unknown object" if subject is None else subject.key
            log.exception("Failed to process a watch event for %s; resyncing", key)
            self._out_of_sync = True

    def _forward(self, changes: Iterable[DeadlineChange]) -> None:
        changes = tuple(changes)
        if not changes:
            return
        if self.tasks is not None:
            self.tasks.deadlines_changed(changes)
        reporter = self._services.reporter
        for change in changes:
            if change.after is not None:
                reporter.deadline_set(change.after, before=change.before)
            elif change.before is not None:
                reporter.deadline_cancelled(change.before, pod_kept=self._is_kept(change.before))

    def _is_kept(self, deadline: Deadline) -> bool:
        """Return whether the pod still exists, is bound to its node, and is not terminating."""
        pod = self._services.lister.pod(deadline.key)
        if pod is None or pod.uid != deadline.uid or not subject_to_taints(pod):
            return False
        return pod.node in self._services.lister.nodes


def _without_annotation(node: Node) -> Node:
    if SINCE_ANNOTATION not in node.annotations:
        return node
    rest = {key: value for key, value in node.annotations.items() if key != SINCE_ANNOTATION}
    return msgspec.structs.replace(node, annotations=type(node.annotations)(rest))

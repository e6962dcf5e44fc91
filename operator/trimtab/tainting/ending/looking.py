"""What the book and the picture say of a pod that is due, at this moment."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from trimtab.api.taint_manager import TaintManagerSpec
from trimtab.kube.objects import Pod
from trimtab.tainting.deadlines.rule import Deadline
from trimtab.tainting.ending.again import marked
from trimtab.tainting.ending.job import Job
from trimtab.tainting.ending.judging import Verdict, judge, waits
from trimtab.tainting.services import Services
from trimtab.tainting.zones import zone_of


class Without(Protocol):
    """A pod's deadline if its node had no taints of some keys."""

    def __call__(self, pod: Pod, keys: Collection[str], *, now: float) -> Deadline | None:
        """``None`` where nothing would end its time."""
        ...


class Looks:
    """Looks at pods for who ends them.

    Args:
        services: the picture and the clock.
        spec: of the TaintManager.
        deadline_of: what the book has of a pod by its ``namespace/name``.
        deadline_without: what it would have without taints of some keys.

    Attributes:
        waits: for how many seconds pods are evicted before they are deleted, by the taint's key.
    """

    def __init__(
        self,
        services: Services,
        spec: TaintManagerSpec,
        deadline_of: Callable[[str], Deadline | None],
        deadline_without: Without,
    ) -> None:
        self.waits = waits(spec)
        self._services = services
        self._deadline_of = deadline_of
        self._deadline_without = deadline_without

    def judge(self, job: Job) -> Verdict:
        """What is to be done with a pod."""
        key, now = job.deadline.key, self._services.clock.now()
        found, pod = self._deadline_of(key), self._services.picture.pods.get(key)
        return judge(job.deadline, found, pod, waits=self.waits, now=now, without=self._by_deletion)

    def marked(self, job: Job) -> bool:
        """Whether a pod says already that it is deleted because of a taint."""
        return marked(job, self._services.picture.pods.get(job.deadline.key), now=self._services.clock.monotonic())

    def known(self, job: Job) -> bool:
        """Whether the book has a deadline of this very pod still."""
        found = self._deadline_of(job.deadline.key)
        return found is not None and found.uid == job.deadline.uid

    def zone_of(self, name: str) -> str:
        """The zone of a node; ``""`` of one that is not there."""
        node = self._services.picture.nodes.get(name)
        return "" if node is None else zone_of(node.labels)

    def _by_deletion(self, pod: Pod) -> Deadline | None:
        return self._deadline_without(pod, self.waits, now=self._services.clock.now())

"""What the book and the picture say of a pod that is due, at this moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from trimtab.api.taint_manager import TaintManagerSpec
from trimtab.kube.objects import Pod
from trimtab.tainting.conditions import NO_EXECUTE_KEYS
from trimtab.tainting.deadlines.rule import Deadline
from trimtab.tainting.ending.again import marked
from trimtab.tainting.ending.job import Job
from trimtab.tainting.ending.judging import Verdict, judge, waits
from trimtab.tainting.services import Services
from trimtab.tainting.zones import zone_of


class ByTaint(Protocol):
    """The deadlines that the taints of its node give a pod, each of them alone."""

    def __call__(self, pod: Pod, *, now: float) -> Iterable[Deadline]:
        """Of those taints that end its time."""
        ...


class Looks:
    """Looks at pods for who ends them.

    Args:
        services: the picture and the clock.
        spec: of the TaintManager.
        deadline_of: what the book has of a pod by its ``namespace/name``.
        deadlines_of: what each taint of its node alone gives a pod.

    Attributes:
        waits: for how many seconds pods are evicted before they are deleted, by the taint's key.
    """

    def __init__(
        self,
        services: Services,
        spec: TaintManagerSpec,
        deadline_of: Callable[[str], Deadline | None],
        deadlines_of: ByTaint,
    ) -> None:
        self.waits = waits(spec)
        self._services = services
        self._deadline_of = deadline_of
        self._deadlines_of = deadlines_of

    def judge(self, job: Job) -> Verdict:
        """What is to be done with a pod."""
        key, now = job.deadline.key, self._services.clock.now()
        found, pod = self._deadline_of(key), self._services.picture.pods.get(key)
        return judge(job.deadline, found, pod, waits=self.waits, now=now, each=self._each)

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

    def free_at(self, job: Job) -> float | None:
        """From when on no rate holds a pod, by the monotonic clock, because its node fails; ``None`` for never."""
        pod = self._services.picture.pods.get(job.deadline.key)
        if pod is None or pod.uid != job.deadline.uid:
            return None
        dues = [each.due for each in self._each(pod) if each.taint.key in NO_EXECUTE_KEYS]
        return self.monotonic(min(dues)) if dues else None

    def monotonic(self, at: float) -> float:
        """A time in seconds since the epoch by the monotonic clock."""
        clock = self._services.clock
        return clock.monotonic() + (at - clock.now())

    def _each(self, pod: Pod) -> Iterable[Deadline]:
        return self._deadlines_of(pod, now=self._services.clock.now())

"""Pods by kind: what is the same for all pods of one template is asked once, for a cluster may have 150,000 of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api.reasons import NOT_ENOUGH_PDB
from trimtab.autoscaling.scale_down.drainability import Context, Outcome, Verdict, judge, judge_template
from trimtab.autoscaling.scale_down.drainability.daemon_set import of_daemon_set
from trimtab.autoscaling.scale_down.drainability.rule import DRAIN, SKIP, block
from trimtab.cluster.resources import BoolArray
from trimtab.cluster.terms import bind
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

_ENDED: Final = ("Succeeded", "Failed")


class Likes(Struct, frozen=True, eq=False):
    """Pods that differ in nothing that a place is chosen by: the same amounts, on the same nodes.

    Attributes:
        number: of these likes, from 0.
        wanted: columns and amounts above 0, as :attr:`trimtab.cluster.amounts.Amounts.wanted`.
        eligible: bool, shape (capacity,): the slots whose nodes suit them, however full.
        sample: one of the pods, as if pending.
    """

    number: int
    wanted: tuple[tuple[int, int], ...]
    eligible: BoolArray
    sample: Pod


class Kind(Struct, frozen=True, eq=False):
    """Pods of one template in one namespace that run and are not being deleted.

    Attributes:
        template: what they share, held so that its ids stay its own.
        verdict: of the drain rules, budgets aside.
        budgets: whether a PodDisruptionBudget selects them.
        stays: whether they belong to their node and end with it: those of DaemonSets.
        placed: whether they need a place elsewhere: neither these, nor static ones, nor ones below the priority that
            keeps nodes.
        likes: by what places are chosen for them; ``None`` where other pods or volumes have a say.
    """

    template: tuple[object, ...]
    verdict: Verdict
    budgets: bool
    stays: bool
    placed: bool
    likes: Likes | None


Known = tuple[tuple[Pod, Kind], ...]
"""Pods with their kinds."""


def ordinary(pod: Pod) -> bool:
    """Whether the pod runs, or will, and nobody is deleting it: what holds of its kind holds of it."""
    return pod.deleted is None and pod.phase not in _ENDED


class Drain(Struct, frozen=True):
    """What draining a node comes to.

    Attributes:
        moving: pods that need a place elsewhere, by ``namespace/name``, with their kinds.
        evicted: pods whose eviction their budgets have been charged with.
        blocking: the pod that keeps the node, ``None`` where none does. Then nothing has been charged.
        verdict: what is said of it.
    """

    moving: Known = ()
    evicted: tuple[Pod, ...] = ()
    blocking: Pod | None = None
    verdict: Verdict = DRAIN


class Kinds:
    """The kinds of pods of one snapshot, made as they are met.

    Args:
        placer: of the snapshot.
        context: what drain rules compare with.
        least_priority: pods below it keep no node and go with it.
        coming: pods that are to be given places before nodes go; whom they keep away is not placed by amounts alone.
    """

    def __init__(self, placer: Placer, context: Context, *, least_priority: int, coming: Iterable[Pod] = ()) -> None:
        self._placer = placer
        self._context = context
        self._least = least_priority
        self._keeping_away = {bind(term, pod.namespace) for pod in coming for term in pod.spec.affinity.anti_required}
        self._known: dict[tuple[str, int, int, int, int], Kind] = {}
        self._alike: dict[tuple[object, ...], Likes | None] = {}
        self._likes: dict[tuple[tuple[tuple[int, int], ...], int], Likes] = {}

    def of(self, pod: Pod) -> Kind:
        """The kind of a pod."""
        key = (pod.namespace, id(pod.spec), id(pod.labels), id(pod.owners), id(pod.annotations))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._make(pod)
        return found

    def on(self, node: str) -> Known:
        """The pods of a node with their kinds, by ``namespace/name``."""
        return tuple((pod, self.of(pod)) for pod in self._placer.snapshot.pods_on(node))

    def drain(self, pods: Known) -> Drain:
        """Ask the drain rules about a node's pods, and charge their budgets; see :meth:`take_back`."""
        moving: list[tuple[Pod, Kind]] = []
        charged: list[Pod] = []
        for pod, kind in pods:
            live = ordinary(pod)
            verdict = kind.verdict if live else self._judge(pod)
            if verdict.outcome is Outcome.SKIP or kind.stays:
                continue
            if verdict.outcome is Outcome.DRAIN and kind.budgets:
                refusal = self._context.budgets.refusal(pod)
                if refusal is None:
                    self._context.budgets.take(pod)
                    charged.append(pod)
                else:
                    verdict = block(NOT_ENOUGH_PDB, refusal.message)
            if verdict.outcome is not Outcome.DRAIN:
                self.take_back(charged)
                return Drain(blocking=pod, verdict=verdict)
            if live and kind.placed:
                moving.append((pod, kind))
        return Drain(tuple(moving), tuple(charged))

    def take_back(self, evicted: Iterable[Pod]) -> None:
        """Give back what :meth:`drain` charged the budgets with: the node stays after all."""
        for pod in evicted:
            self._context.budgets.take_back(pod)

    def _judge(self, pod: Pod) -> Verdict:
        return SKIP if pod.priority < self._least else judge(pod, self._context)

    def _make(self, pod: Pod) -> Kind:
        expendable = pod.priority < self._least
        sample = replace(pod, node="", deleted=None, phase="Running")
        # Whoever is expendable goes with its node, but its disruption budget holds.
        verdict = DRAIN if expendable else judge_template(sample, self._context)
        return Kind(
            template=(pod.spec, pod.labels, pod.owners, pod.annotations),
            verdict=verdict,
            budgets=bool(self._context.budgets.matching(pod)),
            stays=of_daemon_set(pod),
            placed=not expendable and verdict.outcome is not Outcome.SKIP and not of_daemon_set(pod),
            likes=self._likes_of(sample),
        )

    def _likes_of(self, sample: Pod) -> Likes | None:
        """What a place is chosen by; specs that ask the same share the answer, which a template's labels may spoil."""
        spec = sample.spec
        if self._kept_away(sample):
            return None
        if spec.volumes or self._placer.snapshot.any_anti_affinity:
            return self._asked(sample)
        asks = (
            self._placer.snapshot.amounts(spec).wanted,
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            spec.topology_spread,
            spec.host_ports,
            spec.resource_claims,
            spec.required_features,
            spec.scheduling_gates,
        )
        if asks not in self._alike:
            self._alike[asks] = self._asked(sample)
        return self._alike[asks]

    def _kept_away(self, sample: Pod) -> bool:
        labels = self._placer.snapshot.namespace_labels(sample.namespace)
        return any(term.matches(sample.namespace, sample.labels, labels) for term in self._keeping_away)

    def _asked(self, sample: Pod) -> Likes | None:
        if not self._placer.plain(sample) or self._placer.refusal(sample) is not None:
            return None
        wanted = self._placer.snapshot.amounts(sample.spec).wanted
        eligible = self._placer.eligible(sample)
        key = (wanted, id(eligible))
        found = self._likes.get(key)
        if found is None:
            found = self._likes[key] = Likes(len(self._likes), wanted, eligible, sample)
        return found

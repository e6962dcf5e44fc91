"""The drain rules in upstream's order: the first that decides wins."""

from __future__ import annotations

from typing import Final

from trimtab.autoscaling.scale_down.drainability.budget import Budgets
from trimtab.autoscaling.scale_down.drainability.daemon_set import DaemonSetPods
from trimtab.autoscaling.scale_down.drainability.local_storage import LocalStorage
from trimtab.autoscaling.scale_down.drainability.long_terminating import LongTerminatingPods
from trimtab.autoscaling.scale_down.drainability.mirror import MirrorPods
from trimtab.autoscaling.scale_down.drainability.not_safe_to_evict import NotSafeToEvict
from trimtab.autoscaling.scale_down.drainability.on_completion import OnCompletion
from trimtab.autoscaling.scale_down.drainability.replica_count import ReplicaCount
from trimtab.autoscaling.scale_down.drainability.replicated import Replicated
from trimtab.autoscaling.scale_down.drainability.rule import DRAIN, Context, Rule, Verdict
from trimtab.autoscaling.scale_down.drainability.safe_to_evict import SafeToEvict
from trimtab.autoscaling.scale_down.drainability.system import SystemPods
from trimtab.autoscaling.scale_down.drainability.terminal import TerminalPods
from trimtab.kube.objects import Pod

IN_ORDER: Final[tuple[Rule, ...]] = (
    MirrorPods(),
    LongTerminatingPods(),
    ReplicaCount(),
    DaemonSetPods(),
    SafeToEvict(),
    TerminalPods(),
    OnCompletion(),
    Replicated(),
    SystemPods(),
    NotSafeToEvict(),
    LocalStorage(),
    Budgets(),
)

_OF_TEMPLATES: Final = tuple(rule for rule in IN_ORDER if rule.reads == "template")


def judge(pod: Pod, context: Context) -> Verdict:
    """What becomes of a pod when its node is drained; a pod that no rule decides on may be evicted."""
    return _first(IN_ORDER, pod, context)


def judge_template(pod: Pod, context: Context) -> Verdict:
    """The same for all pods like this one that run and are not being deleted, budgets aside."""
    return _first(_OF_TEMPLATES, pod, context)


def _first(rules: tuple[Rule, ...], pod: Pod, context: Context) -> Verdict:
    for rule in rules:
        verdict = rule.judge(pod, context)
        if verdict is not None:
            return verdict
    return DRAIN

"""The filters and scores of a SchedulerPolicy: legacy predicates and priorities, or plugins of a profile.

All predicates and priorities of Kubernetes v1.11 are supported; case is ignored in their names. A predicate or priority
with an argument may have any name and is always evaluated. Kubernetes v1.11 ignored predicates whose name is not in its
predicate order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from trimtab.api.scheduler_plugins import SYSTEM
from trimtab.api.scheduler_policy import (
    AUTOSCALER_PROVIDER,
    REQUESTED_TO_CAPACITY_RATIO,
    Policy,
    Predicate,
    Priority,
    SchedulerPolicySpec,
    ScoringStrategy,
)
from trimtab.api.scheduler_policy import Profile as ProfileSpec
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement import filters, scores
from trimtab.placement.filters import legacy as legacy_filters
from trimtab.placement.interface import MAX_SCORE, Filter, FilterFactory, Score, ScoreFactory
from trimtab.placement.registry import DEFAULT, Profile
from trimtab.placement.scores import legacy as legacy_scores
from trimtab.placement.scores.legacy import MAX_PRIORITY
from trimtab.placement.scores.nodes import ResourceAllocation, ResourceBalance
from trimtab.placement.topology_spread import SYSTEM_DEFAULTS, SpreadDefaults

_ALWAYS: Final[tuple[FilterFactory, ...]] = (
    filters.Complexity,
    filters.NamespaceComplexity,
    filters.SchedulingGates,
    filters.NamedNodes,
    filters.NodeUnschedulable,
    filters.TaintToleration,
    filters.DynamicResources,
)
"""Filters that every policy uses: they reject pods that trimtab cannot evaluate, or are mandatory in kube-scheduler
v1.22.
"""

_GENERAL: Final[tuple[FilterFactory, ...]] = (
    filters.NodeName,
    filters.NodeAffinity,
    filters.NodePorts,
    filters.NodeResourcesFit,
)

_MAX_VOLUMES: Final = "KUBE_MAX_PD_VOLS"
"""kube-scheduler's environment variable with the limit of attached disks per node."""


def _volume_limit(kind: type[legacy_filters.MaxVolumeCount], snapshot: Snapshot) -> Filter:
    text = os.environ.get(_MAX_VOLUMES, "")
    return kind(snapshot, most=int(text) if re.fullmatch(r"[1-9][0-9]{0,8}", text) else None)


PREDICATES: Final[Mapping[str, tuple[FilterFactory, ...]]] = {
    "CheckNodeCondition": (legacy_filters.CheckNodeCondition,),
    "CheckNodeUnschedulable": (filters.NodeUnschedulable,),
    "GeneralPredicates": _GENERAL,
    "HostName": (filters.NodeName,),
    "PodFitsHostPorts": (filters.NodePorts,),
    "PodFitsPorts": (filters.NodePorts,),
    "MatchNodeSelector": (filters.NodeAffinity,),
    "PodFitsResources": (filters.NodeResourcesFit,),
    "NoDiskConflict": (filters.VolumeRestrictions,),
    "PodToleratesNodeTaints": (filters.TaintToleration,),
    "PodToleratesNodeNoExecuteTaints": (legacy_filters.NoExecuteTaints,),
    "CheckNodeLabelPresence": (),
    "CheckServiceAffinity": (),
    "MaxEBSVolumeCount": (partial(_volume_limit, legacy_filters.MaxEBSVolumeCount),),
    "MaxGCEPDVolumeCount": (partial(_volume_limit, legacy_filters.MaxGCEPDVolumeCount),),
    "MaxCSIVolumeCount": (filters.NodeVolumeLimits,),
    "MaxCSIVolumeCountPred": (filters.NodeVolumeLimits,),
    "MaxAzureDiskVolumeCount": (partial(_volume_limit, legacy_filters.MaxAzureDiskVolumeCount),),
    "CheckVolumeBinding": (filters.VolumeBinding,),
    "NoVolumeZoneConflict": (filters.VolumeZone,),
    "CheckNodeMemoryPressure": (legacy_filters.CheckNodeMemoryPressure,),
    "CheckNodePIDPressure": (legacy_filters.CheckNodePIDPressure,),
    "CheckNodeDiskPressure": (legacy_filters.CheckNodeDiskPressure,),
    "MatchInterPodAffinity": (filters.InterPodAffinity,),
    "EvenPodsSpread": (filters.PodTopologySpread,),
}
"""The filters of each predicate, in the order in which Kubernetes v1.11 evaluates predicates (``predicates.Ordering``).

Without an argument, ``CheckNodeLabelPresence`` and ``CheckServiceAffinity`` have no labels, so every node passes.
"""

_WITH_ARGUMENT: Final = "CheckNodeLabelPresence"
"""Predicates with an argument are evaluated at the position of this predicate."""

LegacyFactory = Callable[..., legacy_scores.LegacyScore]

PRIORITIES: Final[Mapping[str, LegacyFactory]] = {
    "LeastRequestedPriority": legacy_scores.LeastRequestedPriority,
    "MostRequestedPriority": legacy_scores.MostRequestedPriority,
    "RequestedToCapacityRatioPriority": partial(
        legacy_scores.RequestedToCapacityRatioPriority, shape=((0, 10), (100, 0))
    ),
    "BalancedResourceAllocation": legacy_scores.BalancedResourceAllocation,
    "SelectorSpreadPriority": legacy_scores.SelectorSpreadPriority,
    "ServiceSpreadingPriority": partial(legacy_scores.SelectorSpreadPriority, services_only=True),
    "InterPodAffinityPriority": legacy_scores.InterPodAffinityPriority,
    "NodePreferAvoidPodsPriority": legacy_scores.NodePreferAvoidPodsPriority,
    "NodeAffinityPriority": legacy_scores.NodeAffinityPriority,
    "TaintTolerationPriority": legacy_scores.TaintTolerationPriority,
    "ImageLocalityPriority": legacy_scores.ImageLocalityPriority,
    "EqualPriority": legacy_scores.EqualPriority,
}
"""The score plugin of each priority."""

_DEFAULT_PREDICATES: Final = (
    "GeneralPredicates",
    "NoDiskConflict",
    "MaxEBSVolumeCount",
    "MaxGCEPDVolumeCount",
    "MaxAzureDiskVolumeCount",
    "MaxCSIVolumeCount",  # in DefaultProvider since v1.12; without it, other CSI drivers would have no limit
    "CheckVolumeBinding",
    "NoVolumeZoneConflict",
    "CheckNodeMemoryPressure",
    "CheckNodePIDPressure",
    "CheckNodeDiskPressure",
    "MatchInterPodAffinity",
)
_DEFAULT_PRIORITIES: Final[Mapping[str, int]] = {
    "SelectorSpreadPriority": 1,
    "InterPodAffinityPriority": 1,
    "LeastRequestedPriority": 1,
    "BalancedResourceAllocation": 1,
    "NodePreferAvoidPodsPriority": 10_000,
    "NodeAffinityPriority": 1,
    "TaintTolerationPriority": 1,
}
"""The priorities of DefaultProvider in Kubernetes v1.11 with their weights (``algorithmprovider/defaults``)."""

_LOWER_PREDICATES: Final = {name.lower(): name for name in PREDICATES}
_LOWER_PRIORITIES: Final = {name.lower(): name for name in PRIORITIES}


def profile_of(spec: SchedulerPolicySpec) -> Profile:
    """Return the filters and scores of a valid policy, see :func:`trimtab.api.rules.check_scheduler_policy`."""
    if spec.policy is not None:
        found = _legacy(spec.policy)
    elif spec.provider is not None:
        found = _provided(spec.provider)
    else:
        found = _modern(spec.profile or ProfileSpec())
    ignored = tuple(
        each.name for extender in spec.extenders for each in extender.managed_resources if each.ignored_by_scheduler
    )
    kept = tuple(_ignoring(each, ignored) for each in found.filters) if ignored else found.filters
    return Profile(kept, found.scores, found.checks_all, preempts=not spec.disable_preemption)


def extender_scale(spec: SchedulerPolicySpec) -> int:
    """Return the factor between the scores of extenders, 0 to 10, and those of the policy's other scores."""
    return 1 if spec.policy is not None or spec.provider is not None else MAX_SCORE // MAX_PRIORITY


def _ignoring(factory: FilterFactory, ignored: tuple[str, ...]) -> FilterFactory:
    """Return the filter. NodeResourcesFit is configured to ignore the resources that extenders manage."""
    if factory is filters.NodeResourcesFit:
        return partial(filters.NodeResourcesFit, ignored=ignored)
    if isinstance(factory, partial) and factory.func is filters.NodeResourcesFit:
        return partial(factory, ignored=(*factory.keywords["ignored"], *ignored))
    return factory


# --- legacy Policy ------------------------------------------------------------------------------------------------


def _provided(provider: str) -> Profile:
    weights = dict(_DEFAULT_PRIORITIES)
    if provider == AUTOSCALER_PROVIDER:
        weights = {
            "MostRequestedPriority" if name == "LeastRequestedPriority" else name: weight
            for name, weight in weights.items()
        }
    return Profile(_filters([Predicate(name) for name in _DEFAULT_PREDICATES]), _scores_of(weights))


def _legacy(policy: Policy) -> Profile:
    predicates = policy.predicates
    if predicates is None:
        predicates = tuple(Predicate(name) for name in _DEFAULT_PREDICATES)
    if policy.priorities is None:
        made = _scores_of(_DEFAULT_PRIORITIES, policy)
    else:
        made = tuple(_score(priority, policy) for priority in policy.priorities)
    return Profile(
        _filters(predicates), made or (legacy_scores.EqualPriority,), checks_all=policy.always_check_all_predicates
    )


def _filters(predicates: Sequence[Predicate]) -> tuple[FilterFactory, ...]:
    """Return the filters of the predicates without duplicates, in the predicate order of Kubernetes v1.11.

    Several predicates may use the same filter.
    """
    by_name: dict[str, list[FilterFactory]] = {}
    for predicate in predicates:
        argument = predicate.argument
        if argument is None:
            name = _LOWER_PREDICATES[predicate.name.lower()]
            by_name.setdefault(name, []).extend(PREDICATES[name])
        elif argument.labels_presence is not None:
            presence = argument.labels_presence
            by_name.setdefault(_WITH_ARGUMENT, []).append(
                partial(legacy_filters.NodeLabelPresence, labels=presence.labels, presence=presence.presence)
            )
        elif argument.service_affinity is not None:
            by_name.setdefault(_WITH_ARGUMENT, []).append(
                partial(legacy_filters.ServiceAffinity, labels=argument.service_affinity.labels)
            )
    ordered = [*_ALWAYS, *(each for name in PREDICATES for each in by_name.get(name, ()))]
    return tuple(dict.fromkeys(ordered))


def _scores_of(weights: Mapping[str, int], policy: Policy | None = None) -> tuple[ScoreFactory, ...]:
    return tuple(_score(Priority(name, weight), policy or Policy()) for name, weight in weights.items())


def _score(priority: Priority, policy: Policy) -> ScoreFactory:
    argument = priority.argument
    if argument is None:
        name = _LOWER_PRIORITIES[priority.name.lower()]
        made = PRIORITIES[name]
        if name == "InterPodAffinityPriority":
            made = partial(made, hard_weight=policy.hard_pod_affinity_weight)
    elif argument.service_anti_affinity is not None:
        made = partial(legacy_scores.ServiceAntiAffinityPriority, label=argument.service_anti_affinity.label)
    elif argument.label_preference is not None:
        preference = argument.label_preference
        made = partial(legacy_scores.LabelPreference, label=preference.label, presence=preference.presence)
    else:
        ratio = argument.requested_to_capacity_ratio_arguments
        shape = [(point.utilization, point.score) for point in ratio.shape] if ratio is not None else []
        made = partial(legacy_scores.RequestedToCapacityRatioPriority, shape=shape)
    return partial(made, name=priority.name, weight=priority.weight)


# --- profile of a KubeSchedulerConfiguration ------------------------------------------------------------------------

FILTER_PLUGINS: Final[Mapping[str, FilterFactory]] = {
    factory.name: factory  # type: ignore[attr-defined]
    for factory in DEFAULT.filters
    if factory not in (filters.Complexity, filters.NamespaceComplexity, filters.DynamicResources)
}
SCORE_PLUGINS: Final[Mapping[str, ScoreFactory]] = {
    factory.name: factory  # type: ignore[attr-defined]
    for factory in DEFAULT.scores
}
DEFAULT_WEIGHTS: Final[Mapping[str, int]] = {
    name: factory.weight  # type: ignore[attr-defined]
    for name, factory in SCORE_PLUGINS.items()
}


class WeightedScore(Struct, frozen=True):
    """A score plugin with the weight of a profile.

    Attributes:
        score: the plugin.
        weight: the factor by which its scores are multiplied.
    """

    score: Score
    weight: int

    @property
    def name(self) -> str:
        """Name of the plugin."""
        return self.score.name

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        """See :meth:`trimtab.placement.interface.Score.scores`."""
        return self.score.scores(pod, among)


def _modern(spec: ProfileSpec) -> Profile:
    weights: dict[str, int] = {each.name: each.weight for each in spec.scores}
    made: list[ScoreFactory] = []
    for name, factory in SCORE_PLUGINS.items():
        weight = weights.get(name)
        if weight == 0:
            continue
        configured = _configured_score(factory, spec)
        made.append(configured if weight is None else partial(_weighted, factory=configured, weight=weight))
    disabled = {FILTER_PLUGINS[name] for name in spec.disabled_filters}
    if filters.NodeAffinity in disabled:
        disabled.add(filters.NamedNodes)  # the part of NodeAffinity that is evaluated first
    kept = (each for each in DEFAULT.filters if each not in disabled)
    return Profile(tuple(found for each in kept for found in _configured_filter(each, spec)), tuple(made))


def _weighted(snapshot: Snapshot, *, factory: ScoreFactory, weight: int) -> WeightedScore:
    return WeightedScore(factory(snapshot), weight)


def _configured_filter(factory: FilterFactory, spec: ProfileSpec) -> Iterable[FilterFactory]:
    """Yield a filter with the arguments of the profile, or the factory itself if they are the defaults."""
    if factory is filters.NodeAffinity and spec.added_affinity is not None:
        required = spec.added_affinity.compile().required
        if required is not None:
            yield partial(filters.AddedNodeAffinity, required=required)
    if factory is filters.PodTopologySpread and (defaults := _spread_defaults(spec)) != SYSTEM_DEFAULTS:
        yield partial(filters.PodTopologySpread, defaults=defaults)
    elif factory is filters.NodeResourcesFit and (spec.ignored_resources or spec.ignored_resource_groups):
        yield partial(
            filters.NodeResourcesFit, ignored=spec.ignored_resources, ignored_groups=spec.ignored_resource_groups
        )
    else:
        yield factory


def _configured_score(factory: ScoreFactory, spec: ProfileSpec) -> ScoreFactory:
    """Return a score factory with the arguments of the profile, or the factory itself if they are the defaults."""
    strategy = spec.scoring_strategy
    if factory is scores.LeastAllocated and strategy != ScoringStrategy():
        shape = tuple((point.utilization, 10 * point.score) for point in strategy.shape or ())
        return partial(
            ResourceAllocation,
            resources=tuple((each.name, each.weight) for each in strategy.resources),
            strategy=strategy.type,
            shape=shape if strategy.type == REQUESTED_TO_CAPACITY_RATIO else (),
        )
    if factory is scores.BalancedAllocation and spec.balanced_resources != ProfileSpec().balanced_resources:
        return partial(ResourceBalance, resources=spec.balanced_resources)
    if factory is scores.NodeAffinity and spec.added_affinity is not None:
        return partial(scores.NodeAffinity, added=spec.added_affinity.compile().preferred)
    if factory is scores.PodTopologySpread and (defaults := _spread_defaults(spec)) != SYSTEM_DEFAULTS:
        return partial(scores.PodTopologySpread, defaults=defaults)
    ignore_existing = spec.ignore_preferred_terms_of_existing_pods
    if factory is scores.InterPodAffinity and (spec.hard_pod_affinity_weight != 1 or ignore_existing):
        return partial(
            scores.InterPodAffinity, hard_weight=spec.hard_pod_affinity_weight, ignore_existing=ignore_existing
        )
    return factory


def _spread_defaults(spec: ProfileSpec) -> SpreadDefaults:
    arguments = spec.pod_topology_spread
    if arguments.defaulting_type == SYSTEM:
        return SYSTEM_DEFAULTS
    return SpreadDefaults(tuple(each.compile() for each in arguments.default_constraints))

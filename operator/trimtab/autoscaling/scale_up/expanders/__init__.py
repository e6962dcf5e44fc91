"""Expanders select a node group if several groups could be scaled up for the same pods.

:data:`EXPANDERS` lists all of them. As in cluster-autoscaler, each expander narrows down the options, and the next one
selects among the rest. Two expanders have their own modules: :mod:`.priority` reads a ConfigMap, and :mod:`.advice`
stores the responses of an external server.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import ClassVar, Final, Protocol, TypeVar

from msgspec import Struct

from trimtab.api.bounds import plural
from trimtab.autoscaling.groups.annotations import PRICE
from trimtab.autoscaling.groups.node_group import NodeGroup
from trimtab.autoscaling.scale_up.expanders.advice import Advice
from trimtab.autoscaling.scale_up.expanders.choice import NO_MEASURE, ComparedOption, ExpanderChoice, Measure
from trimtab.autoscaling.scale_up.expanders.priority import matches
from trimtab.autoscaling.scale_up.options import ScaleUpOption
from trimtab.cluster.resources import CPU, MEMORY
from trimtab.kube.objects import Pod

AnyOption = TypeVar("AnyOption", bound=ScaleUpOption)

_PRICE: Final = re.compile(r"[0-9]{1,9}([.][0-9]{1,9})?")
_CORE: Final = 1000
_MEMORY_OF_A_CORE: Final = 8 << 30
"""Bytes of memory that count as one core, because clouds charge about the same for 8 GiB and for a core."""


MAX_COMPARED: Final = 50
"""Maximum number of options of each expander that :func:`compare` compares."""

_NO_PRICE: Final = 10**18
"""The rank of groups without a price, which is larger than any price."""


def _no_pods(_option: ScaleUpOption) -> Iterable[Pod]:
    return ()


class ExpanderContext(Struct, frozen=True):
    """The inputs of expanders in addition to the options.

    Attributes:
        priorities: patterns of group ids by priority, from the Priority expander's ConfigMap.
        seed: seed of the Random expander; identical snapshots have the same seed.
        advice: the responses of an external expander; ``None`` if none is configured.
        pods: returns the pods of an option, for requests to an external expander.
    """

    priorities: Mapping[int, tuple[str, ...]] = {}
    seed: str = ""
    advice: Advice | None = None
    pods: Callable[[ScaleUpOption], Iterable[Pod]] = _no_pods


class Expander(Protocol):
    """A rule that prefers some options over others.

    Attributes:
        name: the name in ``spec.expanders``.
    """

    name: ClassVar[str]

    def best(self, options: Sequence[AnyOption], context: ExpanderContext) -> Sequence[AnyOption]:
        """Return the preferred options, at least one, in the given order."""
        ...

    def measure(self, option: ScaleUpOption, context: ExpanderContext) -> Measure:
        """Return the value by which the expander compares the option with others."""
        ...


class LeastWaste:
    """Prefers the smallest sum of unrequested cpu and memory shares of the new nodes (upstream's ``least-waste``)."""

    name: ClassVar = "LeastWaste"

    def best(self, options: Sequence[AnyOption], context: ExpanderContext) -> Sequence[AnyOption]:
        known: dict[tuple[int, bytes, int, int], Fraction] = {}  # cache: many groups have identical nodes
        wastes = []
        for option in options:
            amounts = option.candidate.amounts
            key = option.nodes, option.taken.tobytes(), amounts.get("cpu", 0), amounts.get("memory", 0)
            if key not in known:
                known[key] = option.waste
            wastes.append(known[key])
        least = min(wastes)
        return [option for option, waste in zip(options, wastes, strict=True) if waste == least]

    def measure(self, option: ScaleUpOption, context: ExpanderContext) -> Measure:
        shares = ", ".join(f"{float(100 * share):.3g}% of {name}" for name, share in option.unused.items())
        return Measure(option.waste, f"{shares} unused" if shares else "")


class Priority:
    """Prefers groups with the highest priority in the ConfigMap ``cluster-autoscaler-priority-expander``.

    The format is upstream's. The ConfigMap maps priorities to regular expressions (RE2), which may match anywhere in a
    group's id, for example in ``MachineSet/openshift-machine-api/workers-a``. Groups that match no expression are
    selected only if no group matches. If there is no ConfigMap, the next expander decides.
    """

    name: ClassVar = "Priority"

    def best(self, options: Sequence[AnyOption], context: ExpanderContext) -> Sequence[AnyOption]:
        for priority in sorted(context.priorities, reverse=True):
            patterns = context.priorities[priority]
            found = [each for each in options if any(matches(pattern, each.group.id) for pattern in patterns)]
            if found:
                return found
        return options

    def measure(self, option: ScaleUpOption, context: ExpanderContext) -> Measure:
        found = [
            priority
            for priority, patterns in context.priorities.items()
            if any(matches(pattern, option.group.id) for pattern in patterns)
        ]
        if not found:
            return Measure(1 - min(context.priorities, default=0), "no priority")
        return Measure(-max(found), f"priority {max(found)}")


class Random:
    """Selects an option pseudo-randomly. The seed depends only on the cluster state, so that a plan is reproducible.

    Pods and nodes change from plan to plan, so each group is selected about equally often.
    """

    name: ClassVar = "Random"

    def best(self, options: Sequence[AnyOption], context: ExpanderContext) -> Sequence[AnyOption]:
        def draw(option: AnyOption) -> bytes:
            return hashlib.sha256(f"{context.seed}\0{option.group.id}".encode()).digest()

        return [min(options, key=draw)]

    def measure(self, option: ScaleUpOption, context: ExpanderContext) -> Measure:
        return NO_MEASURE


class MostPods:
    """Prefers the groups on whose nodes the most pending pods fit (upstream's ``most-pods``)."""

    name: ClassVar = "MostPods"

    def best(self, options: Sequence[AnyOption], context: ExpanderContext) -> Sequence[AnyOption]:
        maximum = max(option.pods for option in options)
        return [option for option in options if option.pods == maximum]

    def measure(self, option: ScaleUpOption, context: ExpanderContext) -> Measure:
        return Measure(-option.pods, plural(option.pods, "pod"))


class LeastNodes:
    """Prefers the groups that need the fewest new nodes, regardless of the number of pods (upstream's ``least-nodes``).

    Put MostPods before it if groups fit different pods: a group that fits only one pod needs only one node.
    """

    name: ClassVar = "LeastNodes"

    def best(self, options: Sequence[AnyOption], context: ExpanderContext) -> Sequence[AnyOption]:
        fewest = min(option.nodes for option in options)
        return [option for option in options if option.nodes == fewest]

    def measure(self, option: ScaleUpOption, context: ExpanderContext) -> Measure:
        return Measure(option.nodes, plural(option.nodes, "node"))


class Price:
    """Prefers the lowest price per requested core. 8 GiB of memory count as one core.

    Machine APIs publish no prices, so the price of a group is in an annotation. Groups that have no price are selected
    only if no group has one. Upstream's expander also prefers certain node sizes, by constants that were tuned for one
    cloud.
    """

    name: ClassVar = "Price"

    def best(self, options: Sequence[AnyOption], context: ExpanderContext) -> Sequence[AnyOption]:
        priced = [(option, price) for option in options if (price := price_of(option.group)) is not None]
        if not priced:
            return options
        costs = [price * option.nodes / _requested_cores(option) for option, price in priced]
        least = min(costs)
        return [option for (option, _), cost in zip(priced, costs, strict=True) if cost == least]

    def measure(self, option: ScaleUpOption, context: ExpanderContext) -> Measure:
        price = price_of(option.group)
        if price is None:
            return Measure(_NO_PRICE, "no price")
        cost = price * option.nodes / _requested_cores(option)
        return Measure(cost, f"{float(cost):.3g} per requested core and hour")


def price_of(group: NodeGroup) -> Fraction | None:
    """Return the price of one node per hour; ``None`` if the annotation is missing or not a number."""
    text = group.template.annotations.get(PRICE, "")
    return Fraction(text) if _PRICE.fullmatch(text) else None


def _requested_cores(option: ScaleUpOption) -> Fraction:
    """Return the pods' requests in cores. Pods without requests count as one millicore each."""
    requested = Fraction(int(option.taken[CPU]), _CORE) + Fraction(int(option.taken[MEMORY]), _MEMORY_OF_A_CORE)
    return max(requested, Fraction(option.pods, _CORE))


class Grpc:
    """Prefers the groups that a server of cluster-autoscaler's expander API returns (upstream's ``grpc``).

    If the server does not respond, or returns none of the offered groups, the next expander decides.
    """

    name: ClassVar = "Grpc"

    def best(self, options: Sequence[AnyOption], context: ExpanderContext) -> Sequence[AnyOption]:
        found = context.advice.answer_to(options, context.pods) if context.advice is not None else None
        return [option for option in options if option.group.id in (found or ())] or options

    def measure(self, option: ScaleUpOption, context: ExpanderContext) -> Measure:
        return NO_MEASURE


EXPANDERS: Final[dict[str, Expander]] = {
    each.name: each for each in (LeastWaste(), Priority(), Random(), MostPods(), LeastNodes(), Price(), Grpc())
}

DEFAULT: Final = (LeastWaste.name,)
"""The expanders if ``spec.expanders`` is empty, as in upstream."""


def choose(options: Sequence[AnyOption], names: Sequence[str], context: ExpanderContext) -> tuple[AnyOption, str]:
    """Return the option that a chain of expanders selects, and the expander that decided.

    If several options remain, the first group by id is selected. Upstream selects one at random, which cannot be
    explained afterwards.

    Args:
        options: at least one option.
        names: names of the expanders (``spec.expanders``).
        context: the inputs of the expanders in addition to the options.

    Returns:
        The option, and the name of the expander that decided; empty if there was only one option, or if the group id
        decided.
    """
    option, by, _ = _eliminate(options, names, context)
    return option, by


def compare(options: Sequence[ScaleUpOption], names: Sequence[str], context: ExpanderContext) -> ExpanderChoice:
    """Return how the option that :func:`choose` selects compares with the others.

    At most :data:`MAX_COMPARED` options of each expander are compared, the first by group id.

    Args:
        options: at least one option.
        names: names of the expanders (``spec.expanders``).
        context: the inputs of the expanders in addition to the options.
    """
    option, by, eliminated = _eliminate(options, names, context)
    others: list[ComparedOption] = []
    for name, rejected in reversed(eliminated):
        measure = EXPANDERS[name].measure if name else _not_measured
        best = measure(option, context)
        compared = [_compared(each, name, measure(each, context), best) for each in rejected[:MAX_COMPARED]]
        others += sorted(compared, key=lambda each: (each.measure.rank, each.group))
    return ExpanderChoice(_compared(option, "", NO_MEASURE, NO_MEASURE), by, tuple(others))


def _not_measured(_option: ScaleUpOption, _context: ExpanderContext) -> Measure:
    return NO_MEASURE


def _compared(option: ScaleUpOption, expander: str, measure: Measure, best: Measure) -> ComparedOption:
    return ComparedOption(option.group.id, option.group.key, option.nodes, option.pods, expander, measure, best)


def _eliminate(
    options: Sequence[AnyOption], names: Sequence[str], context: ExpanderContext
) -> tuple[AnyOption, str, list[tuple[str, list[AnyOption]]]]:
    """Return the selected option, the expander that decided, and the options that each expander rejected."""
    left = sorted(options, key=lambda option: option.group.id)
    if len(left) == 1:
        return left[0], "", []
    undecided = ""
    eliminated: list[tuple[str, list[AnyOption]]] = []
    for name in _chain(names):
        preferred = list(EXPANDERS[name].best(left, context))
        if name == Grpc.name and preferred == left:
            undecided = f" ({name} made no choice)"
        kept = {option.group.id for option in preferred}
        eliminated.append((name, [option for option in left if option.group.id not in kept]))
        left = preferred
        if len(left) == 1:
            return left[0], name + undecided, eliminated
    return left[0], "", [*eliminated, ("", left[1:])]


def _chain(names: Sequence[str]) -> Sequence[str]:
    """Return the names of the expanders to apply, in order.

    If the expander Grpc is among them, the default expander is appended, because the server may not respond.
    """
    if not names:
        return DEFAULT
    return names if Grpc.name not in names else tuple(dict.fromkeys((*names, *DEFAULT)))

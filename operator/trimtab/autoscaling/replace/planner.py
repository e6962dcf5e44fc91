"""The planner of replacements: which nodes fewer or cheaper ones of other groups would stand in for. No I/O, no clock.

It asks only while the cluster is at rest: nothing waits, nothing comes, nothing goes. Of the nodes that may be drained
those come first that save most for each pod that has to move, and of these the longest set is sought whose pods have
places for less. Each plan lowers the price by a share, so no sequence of them goes round in a circle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import KIND, NAME
from trimtab.api.cluster_autoscaler_status import MAX_REPLACED, ReplacedNode, Replacement, ReplacingGroup
from trimtab.api.plan import Kept, ScaleUp
from trimtab.autoscaling.groups import Groups, NodeGroup
from trimtab.autoscaling.replace.candidates import Candidate, Candidates
from trimtab.autoscaling.replace.record import DRAINING, ENABLED, Replacing
from trimtab.autoscaling.replace.rest import unrest
from trimtab.autoscaling.replace.trial import New, Trial
from trimtab.autoscaling.scale_down.planner import ScalingDown
from trimtab.autoscaling.scale_up import Inputs, ScalingUp
from trimtab.autoscaling.scale_up.expanders.price import price_of
from trimtab.autoscaling.template import NodeTemplate, templates
from trimtab.cluster.snapshot import Snapshot
from trimtab.placement.placer import Placer

STRATEGY: Final = "Replace"
"""In the place of a strategy, in everything that a plan keeps and that is about replacing nodes."""

MAX_TRIALS: Final = 24
"""Sets of nodes that are tried in one plan: a pass must not take long in which nothing is found, as in most."""
MAX_FAMILIES: Final = 8
"""Groups whose nodes are tried apart from those of others."""

_LENGTHS: Final = (MAX_REPLACED, 15, 10, 7, 5, 4, 3, 2, 1)
_NAMED: Final = 3


class Found(Struct, frozen=True):
    """A set of nodes with what would take its place.

    Attributes:
        old: the nodes.
        new: the new nodes, each with its pods.
        before: what the old ones cost an hour.
        after: what the new ones cost an hour.
    """

    old: tuple[Candidate, ...]
    new: New
    before: Fraction
    after: Fraction

    @property
    def saved(self) -> Fraction:
        """The share of the price that it saves."""
        return (self.before - self.after) / self.before

    @property
    def merit(self) -> tuple[Fraction, int, int]:
        """The larger the better: what is saved, then fewer pods that move, then fewer nodes."""
        return self.before - self.after, -sum(len(each.moving) for each in self.old), -len(self.old)


class Replaced(Struct, frozen=True):
    """What is to be replaced.

    Attributes:
        actions: new nodes, by the groups' ids.
        begun: what is to be written down once they have been asked for; ``None`` where nothing is replaced.
        kept: why nothing is replaced, or why a group's nodes are not.
    """

    actions: tuple[ScaleUp, ...] = ()
    begun: Replacement | None = None
    kept: tuple[Kept, ...] = ()


def plan(
    snapshot: Snapshot, groups: Groups, inputs: Inputs, *, standing: Replacing, up: ScalingUp, down: ScalingDown
) -> Replaced:
    """Which nodes to replace by which.

    Args:
        snapshot: the cluster; changed while planning and as before afterwards.
        groups: of the snapshot.
        inputs: the ClusterAutoscaler's spec and what goes with it.
        standing: how far earlier replacements are.
        up: what is added by the same plan.
        down: what is removed by the same plan.
    """
    scaling = inputs.spec.scaling_down
    if scaling.replace != ENABLED or not scaling.enabled:
        return Replaced()
    against = unrest(snapshot, groups, inputs, standing=standing, up=up, down=down)
    if against:
        return Replaced(kept=(_kept(KIND, "", NAME, reasons.REPLACEMENT_WAITS, against),))
    with snapshot.fork():
        return _Planner(snapshot, groups, inputs).plan()


class _Planner:
    def __init__(self, snapshot: Snapshot, groups: Groups, inputs: Inputs) -> None:
        self._snapshot, self._groups, self._inputs = snapshot, groups, inputs
        self._prices = {group.id: price for group in groups.all if (price := price_of(group)) is not None}
        priced = [group for group in groups.all if group.id in self._prices]
        made = templates(snapshot, priced, now=inputs.now, startup_taints=inputs.spec.startup_taints)
        self._templates: Mapping[str, NodeTemplate] = made.of_group
        self._targets = [group for group in priced if self._may_grow(group)]
        self._placer = Placer(snapshot)
        self._trial = Trial(snapshot, self._placer, self._templates, inputs.spec.resource_limits)
        self._trials = MAX_TRIALS

    def plan(self) -> Replaced:
        """Plan; in a fork."""
        unpriced = tuple(_unpriced(group) for group in self._groups.all if group.id not in self._prices and group.nodes)
        if len(self._prices) < 2 or not self._targets:
            return Replaced(kept=unpriced)
        candidates = Candidates(self._snapshot, self._placer, self._groups, self._inputs, self._prices)
        best, tried = self._best(candidates), candidates.groups
        if best is None or best.saved < self._share:
            message = self._not_cheaper(best)
            told = [_kept(group.kind, group.namespace, group.name, reasons.NOT_CHEAPER, message) for group in tried]
            return Replaced(kept=(*unpriced, *told))
        return Replaced(self._actions(best), self._begun(best), unpriced)

    @property
    def _share(self) -> Fraction:
        return Fraction(self._inputs.spec.scaling_down.replace_threshold)

    def _may_grow(self, group: NodeGroup) -> bool:
        inputs = self._inputs
        held = group.paused or any(group.id in words for words in (inputs.backoff, inputs.unhealthy, inputs.asked))
        return not held and group.id in self._templates and group.target < group.maximum

    def _best(self, candidates: Candidates) -> Found | None:
        """The best of the first family that saves enough; else the best of all. First nodes of whatever group."""
        best: Found | None = None
        families: list[NodeGroup | None] = [None, *candidates.groups[:MAX_FAMILIES]]
        for family in families if len(candidates.groups) > 1 else families[1:]:
            with candidates.of(family) as accepted:
                found = self._best_prefix(accepted)
            if found is not None and (best is None or found.merit > best.merit):
                best = found
            if best is not None and best.saved >= self._share:
                break
        return best

    def _best_prefix(self, accepted: Sequence[Candidate]) -> Found | None:
        best: Found | None = None
        lengths = [length for length in _LENGTHS if length < len(accepted)]
        for length in (len(accepted), *lengths) if accepted else ():
            new = self._try(accepted[:length])
            if new == []:
                break  # what finds its places without new nodes is no replacement, and neither is a part of it
            found = self._found(accepted[:length], new)
            better = found is not None and (best is None or _rank(found, self._share) > _rank(best, self._share))
            best = found if better else best
        return best

    def _try(self, old: Sequence[Candidate]) -> New | None:
        """The new nodes that a set of nodes takes; ``None`` where some pod finds no place, or nothing may be tried."""
        sources = {each.group.id for each in old}
        targets = [group for group in self._targets if group.id not in sources]
        if not targets or not self._trials:
            return None
        self._trials -= 1
        pods = (pod for each in old for pod in each.moving)
        return self._trial.new_nodes([each.node for each in old], pods, targets)

    def _found(self, old: Sequence[Candidate], new: New | None) -> Found | None:
        before = sum((self._prices[each.group.id] for each in old), start=Fraction(0))
        if new is None or not before:
            return None
        after = sum((self._prices[id_] for id_, _ in new), start=Fraction(0))
        return Found(tuple(old), new, before, after)

    def _not_cheaper(self, best: Found | None) -> str:
        threshold = f"replaceThreshold is {_percent(self._share)}"
        if best is None:
            return f"no other group's nodes would hold the pods of its nodes that may be drained; {threshold}"
        if best.after >= best.before:
            return f"other groups' nodes would cost as much or more; {threshold}"
        return f"the best that was found saves {_percent(best.saved)}; {threshold}"

    def _actions(self, best: Found) -> tuple[ScaleUp, ...]:
        counts = Counter(id_ for id_, _ in best.new)
        return tuple(self._action(self._groups.by_id[id_], counts[id_], best) for id_ in sorted(counts))

    def _action(self, group: NodeGroup, nodes: int, best: Found) -> ScaleUp:
        names = [each.node.name for each in best.old]
        shown = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        moved = sum(len(each.moving) for each in best.old)
        return ScaleUp(
            machine_set=group.key,
            from_=group.target,
            to=group.target + nodes,
            reason=reasons.REPLACEMENT,
            pods=(),  # nobody waits: these are told, and counted, as pods that do
            message=(
                f"{_plural(len(best.new), 'new node')} for {float(best.after):g} an hour in place of "
                f"{_plural(len(names), 'node')} for {float(best.before):g}: {shown}; saves {_percent(best.saved)}, "
                f"replaceThreshold is {_percent(self._share)}; {_plural(moved, 'pod')} to move"
            ),
            group=group.id,
        )

    def _begun(self, best: Found) -> Replacement:
        counts = dict(sorted(Counter(id_ for id_, _ in best.new).items()))
        own = (self._groups.by_id[id_].options.provision_seconds for id_ in counts)
        usual = self._inputs.spec.provision_seconds
        now = int(self._inputs.now)
        deadline = now + max(usual if each is None else each for each in own) + DRAINING
        return Replacement(
            nodes=tuple(ReplacedNode(each.node.name, each.node.uid) for each in best.old),
            groups=tuple(
                ReplacingGroup(id_, self._groups.by_id[id_].target, self._groups.by_id[id_].target + count)
                for id_, count in counts.items()
            ),
            since=datetime.fromtimestamp(now, UTC),
            deadline=datetime.fromtimestamp(int(deadline), UTC),
            message=f"0 of {sum(counts.values())} new nodes are ready",
        )


def _rank(found: Found, share: Fraction) -> tuple[bool, tuple[Fraction, int, int]]:
    return found.saved >= share, found.merit


def _unpriced(group: NodeGroup) -> Kept:
    message = "no annotation trimtab.dev/price says what a node of it costs an hour, or what it says is no price"
    return _kept(group.kind, group.namespace, group.name, reasons.PRICE_UNKNOWN, message)


def _kept(kind: str, namespace: str, name: str, reason: str, message: str) -> Kept:
    return Kept(kind=kind, namespace=namespace, name=name, strategy=STRATEGY, reason=reason, message=message)


def _plural(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.3g}%"

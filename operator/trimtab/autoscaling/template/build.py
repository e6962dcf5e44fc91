"""The templates of all groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from trimtab.autoscaling.groups.node_group import NodeGroup, Problem
from trimtab.autoscaling.template.annotated import annotated
from trimtab.autoscaling.template.daemon_sets import DaemonPods, daemon_set_of
from trimtab.autoscaling.template.learned import Sample, Standing, learned, sample_of
from trimtab.autoscaling.template.node_template import NodeTemplate, TemplateOrigin, Templates
from trimtab.autoscaling.template.provided import is_provided, provided
from trimtab.autoscaling.template.recorded import recorded
from trimtab.autoscaling.template.taints import starts_up
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import DaemonSet, Pod

MIRROR = "kubernetes.io/config.mirror"


def templates(
    snapshot: Snapshot, groups: Iterable[NodeGroup], *, now: float, startup_taints: Collection[str] = ()
) -> Templates:
    """What a new node of each group would be.

    A ready node of the group teaches it. Without one it is what was written down of its last nodes; without that the
    group's annotations or its provider say it, and without these a node that is not well. Pure, and the same whatever
    the order of objects.

    Args:
        snapshot: with the groups' nodes and their pods, and DaemonSets where they are known.
        groups: of :func:`trimtab.autoscaling.groups.groups`.
        now: seconds since the epoch: nodes that have just become ready are not learned from if there is another one.
        startup_taints: keys of ``spec.startupTaints``.
    """
    daemons = DaemonPods(snapshot)
    startup = frozenset(startup_taints)
    found: dict[str, NodeTemplate] = {}
    problems: list[Problem] = []
    for group in sorted(groups, key=lambda each: each.id):
        made, wrong = _template(group, snapshot, daemons, now=now, startup=startup)
        problems += wrong
        if made is not None:
            found[group.id] = made
    return Templates(of_group=found, problems=tuple(sorted(problems)))


def _template(
    group: NodeGroup, snapshot: Snapshot, daemons: DaemonPods, *, now: float, startup: frozenset[str]
) -> tuple[NodeTemplate | None, tuple[Problem, ...]]:
    sample = sample_of(group, snapshot, now=now, startup=startup)
    told: tuple[Problem, ...] = ()
    if sample is None or sample.standing is Standing.UNWELL:
        known, told = recorded(group, daemons_known=daemons.known)
        if known is not None:
            return _with_pods(_up(known, startup), None, snapshot, daemons), told
        estimate, wrong = (provided(group, startup=startup), ()) if is_provided(group) else annotated(group)
        if isinstance(estimate, NodeTemplate):
            return _with_pods(_up(estimate, startup), None, snapshot, daemons), (*told, *wrong)
        if sample is None:
            return None, (estimate, *told, *wrong)
    taught = _up(learned(group, sample, snapshot, startup=startup), startup)
    return _with_pods(taught, sample, snapshot, daemons), told


def _up(template: NodeTemplate, startup: frozenset[str]) -> NodeTemplate:
    """The template of a node that has started: a group's object gives its nodes the taints of starting as well."""
    taints = tuple(taint for taint in template.node.taints if not starts_up(taint, startup))
    return template if taints == template.node.taints else replace(template, node=replace(template.node, taints=taints))


def _with_pods(template: NodeTemplate, sample: Sample | None, snapshot: Snapshot, daemons: DaemonPods) -> NodeTemplate:
    """The template with the pods that come with each node.

    Of a sample they are those that it has, which is how they are once admission has changed them; DaemonSets whose pods
    it lacks though they suit it (on their way, or newer than the node) add theirs.
    """
    own = template.pods if sample is None else _bound(sample, template.node.name, snapshot)
    there = {daemon_set_of(pod) for pod in own}
    written = template.origin is TemplateOrigin.RECORDED
    coming = daemons.on(template.node, there=there) if daemons.known or not (sample or written) else ()
    assumed = template.assumed
    if not daemons.known and coming:
        names = ", ".join(sorted(map(daemon_set_of, coming)))
        assumed = (*assumed, f"as no DaemonSets are known, from pods elsewhere that these are on each node: {names}")
    pods = sorted((*own, *coming), key=lambda pod: pod.key)
    return replace(template, pods=tuple(pods), assumed=assumed)


def _bound(sample: Sample, node: str, snapshot: Snapshot) -> tuple[Pod, ...]:
    """The pods of a sample that every node like it has: of DaemonSets, and static ones; none on its way out."""
    made = snapshot.shelves.of(DaemonSet)
    found = []
    for pod in snapshot.pods_on(sample.node.name):
        owner = daemon_set_of(pod)
        gone = owner in made and made[owner].deleted is not None
        if pod.terminal or pod.deleted is not None or gone:
            continue
        if owner or MIRROR in pod.annotations:
            name = owner.rpartition("/")[2] if owner else pod.name.removesuffix(f"-{sample.node.name}")
            found.append(replace(pod, name=name, node=node))
    return tuple(found)

"""Counts how many more instances of a pod fit into a cluster, on which nodes, and what limits their number.

Example::

    document = capacity(cluster, pod_of(cluster.snapshot, manifest, now=cluster.now))

The instances are placed one after another with kube-scheduler's filters and scores, as cluster-capacity does. Pending
pods are ignored, and no pod is preempted. With an autoscaler, the scale-up planner then adds nodes for more instances,
up to the limits of the node groups and of the ClusterAutoscaler.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from msgspec.structs import replace

from trimtab.api.reasons import FITS_ON_UPCOMING_NODE
from trimtab.autoscaling.cluster_state import inputs_from_status
from trimtab.autoscaling.scale_up import scale_up
from trimtab.autoscaling.template import build_templates
from trimtab.cluster.snapshot import Snapshot
from trimtab.inspection.cluster import ClusterInput
from trimtab.kube.objects import Pod
from trimtab.kube.objects.pod import PodCondition
from trimtab.placement.equal_pods import EqualPodPlacer
from trimtab.placement.placer import Placer

Document = dict[str, Any]

MAX_INSTANCES: Final = 1_000_000
"""Maximum number of instances that are placed."""

_BATCH: Final = 10_000
_UNSCHEDULABLE: Final = (PodCondition("PodScheduled", "False", "Unschedulable"),)


def capacity(cluster: ClusterInput, pod: Pod, *, limit: int = MAX_INSTANCES) -> Document:
    """Count the instances of a pod that fit in addition to the existing pods.

    Args:
        cluster: the cluster. Its snapshot is unchanged afterwards.
        pod: the pod, without a node.
        limit: the maximum number of instances to place.

    Returns:
        The document of ``trimtab capacity -o json``: ``instances``, ``limitedBy`` (the most frequent of the scheduler's
        reasons), ``message`` (all reasons), ``nodes``, and with an autoscaler ``withNodeGroups``, ``nodeGroups`` and
        ``limitedByWithNodeGroups``.
    """
    snapshot = cluster.snapshot
    with snapshot.fork():
        for waiting in [each for _, each in snapshot.unbound()]:
            snapshot.remove(waiting)
        placer = Placer(snapshot)
        counts = _place_all(EqualPodPlacer(placer), pod, limit)
        instances = sum(counts.values())
        document: Document = {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "Capacity",
            "pod": pod.key,
            "instances": instances,
            "limitedBy": "limit" if instances >= limit else _main_reason(placer, pod),
            "message": "" if instances >= limit else placer.unschedulable_message(pod),
            "nodes": [{"node": name, "instances": counts[name]} for name in sorted(counts)],
            "withNodeGroups": None,
        }
        if cluster.policies.autoscaled and instances < limit:
            document |= _with_node_groups(cluster, pod, instances, limit)
        return document


def _place_all(placer: EqualPodPlacer, pod: Pod, limit: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    number = 0
    while number < limit:
        batch = [_instance(pod, each) for each in range(number + 1, min(number + _BATCH, limit) + 1)]
        found = placer.place(batch)
        counts.update(each.node for each in found.placed)
        if found.left:
            break
        number += len(batch)
    return counts


def _instance(pod: Pod, number: int) -> Pod:
    return replace(pod, name=f"{pod.name}-{number}", uid=f"{pod.name}-{number}")


def _main_reason(placer: Placer, pod: Pod) -> str:
    """Return the reason for which most nodes do not fit the next instance."""
    diagnosis = placer.diagnose(pod)
    if diagnosis.refusal is not None:
        return diagnosis.refusal
    counts: Counter[str] = Counter()
    for texts, slots in diagnosis.failures:
        counts.update(dict.fromkeys(texts, len(slots)))
    return max(counts, key=lambda text: (counts[text], text), default="no nodes available to schedule pods")


def _with_node_groups(cluster: ClusterInput, pod: Pod, instances: int, limit: int) -> Document:
    """Return how many instances fit if the autoscaler adds nodes, by node group, and what limits them then."""
    snapshot = cluster.snapshot
    inputs = cluster.policies.autoscaling_inputs(now=cluster.now)
    inputs = inputs_from_status(snapshot, replace(inputs, groups=inputs.node_groups(snapshot)))
    possible = _possible_on_new_nodes(snapshot, inputs, pod)
    more = [
        replace(_instance(pod, number), conditions=_UNSCHEDULABLE, phase="Pending", created=None)
        for number in range(instances + 1, min(instances + possible, limit) + 2)
    ]
    for each in more:
        snapshot.put(each)
    made = scale_up(snapshot, inputs)
    on_upcoming = sum(each.reason == FITS_ON_UPCOMING_NODE for each in made.kept if each.kind == "Pod")
    left = [each for each in made.kept if each.kind == "Pod" and each.reason != FITS_ON_UPCOMING_NODE]
    return {
        "withNodeGroups": instances + on_upcoming + sum(len(each.pods) for each in made.actions),
        "nodeGroups": [
            {"nodeGroup": each.machine_set, "from": each.from_, "to": each.to, "instances": len(each.pods)}
            for each in made.actions
        ],
        "limitedByWithNodeGroups": left[0].reason if left else "limit",
        "messageWithNodeGroups": left[0].message if left else "",
    }


def _possible_on_new_nodes(snapshot: Snapshot, inputs: Any, pod: Pod) -> int:
    """Return an upper bound of the instances that fit on new nodes of all groups, by their requests."""
    groups = inputs.node_groups(snapshot).all
    templates = build_templates(snapshot, groups, now=inputs.now, spec=inputs.spec).of_group
    requests = {**{name: amount for name, amount in pod.spec.requests.items() if amount > 0}, "pods": 1}
    total = 0
    for group in groups:
        template = templates.get(group.id)
        if template is not None:
            free = template.free
            each = min(free.get(name, 0) // amount for name, amount in requests.items())
            total += each * max(0, group.maximum - len(group.nodes))
    return total

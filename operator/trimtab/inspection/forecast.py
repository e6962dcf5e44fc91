"""Forecasts what would happen to a cluster in a scenario: nodes fail, are drained or added, and objects are applied.

Example::

    document = what_if(cluster, Scenario(without=(parse_selection("zone=a"),)))

The forecast uses the planners of the operator: the placer with kube-scheduler's filters and scores, preemption, the
budget ledger, the autoscaler's scale-up planner and the descheduler's planner. All changes are made in a fork of the
snapshot.

These rules apply:

- A node that fails is gone with its machine, and its pods are deleted. PodDisruptionBudgets do not protect them. The
  target sizes of node groups stay, and failed machines are not replaced.
- A node that is drained stays, cordoned, with its DaemonSet and static pods. A pod that a budget protects is evicted
  once the replacement of the pod before it runs; a pod that the budget never releases is blocked.
- Controllers recreate their pods. A pod without a controller and a static pod are lost. DaemonSet pods end with their
  node.
- The scheduler places pods by priority, then by creation time. A pod that fits on no node may preempt others.
- The autoscaler then adds nodes for pods that stay pending. These pods are listed as pending with the node group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.plan import Kept, ScaleUp, rfc3339
from trimtab.autoscaling.cluster_state import inputs_from_status
from trimtab.autoscaling.groups import Groups, MachineState, NodeGroup
from trimtab.autoscaling.scale_up import PlanInputs, scale_up
from trimtab.autoscaling.scale_up.expanders import price_of
from trimtab.autoscaling.scale_up.upcoming_nodes import add_template_node
from trimtab.autoscaling.template import NodeTemplate, build_templates
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import BudgetLedger, guarded
from trimtab.inspection.applied_objects import AppliedObjects, apply_objects
from trimtab.inspection.cluster import ClusterInput
from trimtab.inspection.displaced_pods import Outcome, fate_of, recreate
from trimtab.inspection.missing_nodes import pods_without_node
from trimtab.inspection.rescheduling import Rescheduler
from trimtab.inspection.scenario import NodeSelection, Scenario, find_group, select_nodes
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Node, Pod, PodDisruptionBudget, Taint
from trimtab.kube.objects.pod import PodCondition

Document = dict[str, Any]

_CORDONED: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
_UNSCHEDULABLE: Final = (PodCondition("PodScheduled", "False", "Unschedulable"),)


def what_if(cluster: ClusterInput, scenario: Scenario, *, descheduling: bool = True) -> Document:
    """Forecast the consequences of a scenario.

    Args:
        cluster: the cluster with the policies that are in force. Its snapshot is unchanged afterwards.
        scenario: the changes.
        descheduling: whether to plan what the DeschedulerPolicies would do afterwards.

    Returns:
        The document of ``trimtab what-if -o json``, kind ``Forecast``.

    Raises:
        InputError: the scenario names a node, label or node group that does not exist, or an object to apply is
            invalid.
    """
    with cluster.snapshot.fork():
        return _Forecast(cluster, scenario).document(descheduling=descheduling)


class _Budget(Struct):
    """The disruptions of one PodDisruptionBudget in a scenario."""

    budget: PodDisruptionBudget
    pods: int = 0
    blocked: list[str] = []


class _Forecast:
    """Applies a scenario to the snapshot, step by step, and collects its consequences."""

    def __init__(self, cluster: ClusterInput, scenario: Scenario) -> None:
        self._cluster = cluster
        self._scenario = scenario
        self._snapshot: Snapshot = cluster.snapshot
        self._now = cluster.now
        self._inputs = _autoscaling_inputs(cluster)
        self._groups = self._inputs.node_groups(self._snapshot)
        self._removed = _selected(self._snapshot, scenario.without, self._groups)
        self._drained = _selected(self._snapshot, scenario.drain, self._groups)
        both = sorted(self._removed.keys() & self._drained.keys())
        if both:
            raise InputError(f"node {both[0]} is both removed and drained; select it once")
        self._templates = self._templates_of_changed_groups()
        self._budgets: dict[str, _Budget] = {}
        self._from: dict[str, str] = {}
        self._lost: dict[str, Document] = {}
        self._blocked: dict[str, Document] = {}
        self._before = {key for key, pod in self._snapshot.unbound() if not pod.terminal and pod.deleted is None}
        self._added: list[Document] = []
        self._applied = AppliedObjects()
        self._ended = 0

    def document(self, *, descheduling: bool) -> Document:
        """Run the scenario and return the forecast."""
        self._scheduler = Rescheduler(self._snapshot, self._cluster.policies, now=self._now)
        stray = pods_without_node(self._snapshot)
        # 1. Change the cluster: objects, then new nodes, then nodes that fail or are cordoned.
        self._applied = apply_objects(self._snapshot, self._scenario.apply, now=self._now)
        self._ledger = BudgetLedger(self._snapshot)
        self._add_nodes()
        displaced = self._remove_nodes()
        self._cordon_nodes()
        # 2. Schedule the pods that need a node, and drain nodes.
        pending = (self._snapshot.pods[key] for key in sorted(self._before) if key in self._snapshot.pods)
        self._scheduler.schedule((*pending, *self._applied.pending, *displaced))
        self._drain_nodes()
        # 3. Let the autoscaler add nodes for pods that stay pending.
        scaling, kept = self._scale_up()
        # 4. Let the descheduler balance the nodes.
        return self._document(stray, scaling, kept, self._evictions() if descheduling else None)

    # --- the steps --------------------------------------------------------------------------------------------------

    def _templates_of_changed_groups(self) -> Mapping[str, NodeTemplate]:
        """Return the templates of the groups that get or lose nodes, learned before nodes are removed."""
        names = self._removed.keys()
        wanted = {id_ for name in names if (id_ := self._groups.of_node.get(name)) is not None}
        wanted |= {find_group(self._groups, name).id for name in self._scenario.add}
        if not wanted:
            return {}
        groups = [self._groups.by_id[id_] for id_ in wanted]
        return build_templates(self._snapshot, groups, now=self._now, spec=self._inputs.spec).of_group

    def _add_nodes(self) -> None:
        for name, number in self._scenario.add.items():
            group = find_group(self._groups, name)
            template = self._templates.get(group.id)
            if template is None:
                raise InputError(f"the nodes of node group {name} are unknown: it has no node and no capacity")
            names = [f"new-{each}-of-{group.name}" for each in range(1, number + 1)]
            for new in names:
                add_template_node(self._snapshot, template, new)
            self._groups = _with_group(self._groups, replace(group, target=group.target + number))
            self._inputs = replace(
                self._inputs, upcoming={**self._inputs.upcoming, group.id: _upcoming(self._inputs, group)}
            )
            self._added.append({"nodeGroup": group.key, "from": group.target, "to": group.target + number})

    def _remove_nodes(self) -> list[Pod]:
        """Remove the failed nodes, and return the replacements of their pods."""
        recreated = []
        for name, node in self._removed.items():
            pods = self._snapshot.pods_on(name)
            self._snapshot.remove(node)
            for pod in pods:
                if self._take_from_node(pod, name):
                    recreated.append(recreate(self._scheduler.replacement(pod), self._snapshot, now=self._now))
                else:
                    self._snapshot.remove(pod)
        self._groups = _without_nodes(self._groups, self._removed, self._templates)
        return recreated

    def _cordon_nodes(self) -> None:
        for node in self._drained.values():
            taints = node.taints if _CORDONED in node.taints else (*node.taints, _CORDONED)
            self._snapshot.put(replace(node, unschedulable=True, taints=taints))

    def _take_from_node(self, pod: Pod, node: str) -> bool:
        """Record what becomes of a pod that leaves its node, and return whether its controller recreates it."""
        fate = fate_of(pod, self._snapshot)
        if fate.outcome is Outcome.ENDS:
            self._ended += 1
            return False
        if guarded(pod):
            for budget in self._ledger.matching(pod):
                self._budgets.setdefault(budget.key, _Budget(budget, blocked=[])).pods += 1
        if fate.outcome is Outcome.LOST:
            self._lost[pod.key] = {"pod": pod.key, "from": node, "reason": fate.reason}
            return False
        self._from[pod.key] = node
        return True

    def _drain_nodes(self) -> None:
        """Evict the pods of drained nodes: first those without a budget, then the others one after another."""
        free: list[Pod] = []
        protected: list[Pod] = []
        for name in self._drained:
            for pod in self._snapshot.pods_on(name):
                fate = fate_of(pod, self._snapshot)
                if fate.outcome is Outcome.ENDS or fate.reason == reasons.STATIC_POD:
                    continue  # DaemonSet and static pods stay on a drained node
                budgets = self._ledger.matching(pod) if guarded(pod) else ()
                (protected if budgets else free).append(pod)
        self._scheduler.schedule(self._evicted(free))
        for pod in protected:
            refusal = self._ledger.refusal(pod)
            if refusal is not None:
                self._block(pod, refusal.message)
                continue
            self._ledger.take(pod)
            self._scheduler.schedule(self._evicted((pod,)))
            if pod.key in self._scheduler.placed:
                self._ledger.take_back(pod)  # its replacement becomes ready

    def _evicted(self, pods: Iterable[Pod]) -> list[Pod]:
        recreated = []
        for pod in pods:
            if self._take_from_node(pod, pod.node):
                recreated.append(recreate(self._scheduler.replacement(pod), self._snapshot, now=self._now))
            else:
                self._snapshot.remove(pod)
        return recreated

    def _block(self, pod: Pod, message: str) -> None:
        self._blocked[pod.key] = {
            "pod": pod.key,
            "from": pod.node,
            "reason": reasons.EVICTION_BLOCKED,
            "message": message,
        }
        for budget in self._ledger.matching(pod):
            self._budgets.setdefault(budget.key, _Budget(budget, blocked=[])).blocked.append(pod.key)

    def _scale_up(self) -> tuple[Sequence[ScaleUp], Mapping[str, Kept]]:
        """Return the planned scale-up of node groups, and by pod why no node is added for it."""
        if not self._scheduler.pending or not self._cluster.policies.autoscaled:
            return (), {}
        for pod, _ in self._scheduler.pending.values():
            self._snapshot.put(
                replace(
                    pod,
                    phase="Pending",
                    ready=False,
                    ready_since=None,
                    started=None,
                    created=None,  # so that no delay for new pods applies
                    conditions=_UNSCHEDULABLE,
                    container_states=(),
                )
            )
        gone = {
            group.id: "the scenario removes its nodes"
            for group in self._groups.all
            if any(self._removes(selection, group) for selection in self._scenario.without)
        }
        inputs = replace(
            self._inputs, groups=self._groups, unhealthy_groups={**self._inputs.unhealthy_groups, **gone}, moves=()
        )
        made = scale_up(self._snapshot, inputs)
        return made.actions, {f"{each.namespace}/{each.name}": each for each in made.kept if each.kind == "Pod"}

    def _removes(self, selection: NodeSelection, group: NodeGroup) -> bool:
        """Return whether a selection removes the new nodes of a group too, as a failed zone does."""
        if selection.by == "nodegroup":
            return find_group(self._groups, selection.name).id == group.id
        if selection.by == "node":
            return False
        template = self._templates.get(group.id)
        if template is not None:
            return template.node.labels.get(selection.name) == selection.value
        return group.template.labels.get(selection.name) == selection.value

    def _evictions(self) -> Document | None:
        """Return what the DeschedulerPolicies would do afterwards; ``None`` if there are none."""
        policies = self._cluster.policies.descheduler
        if not policies:
            return None
        from trimtab.descheduling.planning.planner import plan_evictions

        made = plan_evictions(self._snapshot, policies, **self._cluster.planner_options())
        counts = Counter(each.policy for each in made.actions)
        return {"evictions": len(made.actions), "policies": {each.name: counts[each.name] for each in policies}}

    # --- the document -----------------------------------------------------------------------------------------------

    def _document(
        self,
        stray: Document,
        scaling: Sequence[ScaleUp],
        kept: Mapping[str, Kept],
        evictions: Document | None,
    ) -> Document:
        scheduled = self._scheduler
        for pod, reason in scheduled.lost:
            self._lost[pod.key] = {"pod": pod.key, "from": pod.node, "reason": reason}
        came_from = {each.pod.key: each.node for each in scheduled.preempted}
        came_from |= {**self._applied.replaced, **self._from}
        moved = [
            {"pod": key, "from": came_from[key], "to": node}
            for key, node in sorted(scheduled.placed.items())
            if key in came_from
        ]
        started = [{"pod": key, "to": node} for key, node in sorted(scheduled.placed.items()) if key not in came_from]
        group_of = {pod: action.machine_set for action in scaling for pod in action.pods}
        pending: list[Document] = []
        still: list[Document] = []
        for key, (_, message) in sorted(scheduled.pending.items()):
            entry = _pending(key, message, came_from.get(key), group_of.get(key), kept.get(key))
            (still if key in self._before else pending).append(entry)
        scaled = [self._scaled(action) for action in scaling]
        document: Document = {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "Forecast",
            "now": rfc3339(self._now),
            "removed": list(map(str, self._scenario.without)),
            "drained": list(map(str, self._scenario.drain)),
            "added": self._added,
            "applied": list(self._applied.objects),
            "rescheduled": moved,
            "scheduled": started,
            "pending": pending,
            "stillPending": still,
            "blocked": [self._blocked[key] for key in sorted(self._blocked)],
            "lost": [self._lost[key] for key in sorted(self._lost)],
            "deleted": list(self._applied.deleted),
            "preempted": [
                {"pod": each.pod.key, "node": each.node, "for": each.beneficiary} for each in scheduled.preempted
            ],
            "scaleUp": scaled,
            "budgets": [_budget(self._budgets[key]) for key in sorted(self._budgets)],
            "descheduling": evictions,
            "podsWithoutNode": stray,
        }
        document["summary"] = {
            "nodes": len(self._removed) + len(self._drained),
            **{key: len(document[key]) for key in ("rescheduled", "scheduled", "pending", "stillPending")},
            **{key: len(document[key]) for key in ("blocked", "lost", "deleted", "preempted")},
            "endedWithNode": self._ended,
            "nodesAdded": sum(each["to"] - each["from"] for each in scaled),
            "budgetsViolated": sum(each["violated"] for each in document["budgets"]),
        }
        return document

    def _scaled(self, action: ScaleUp) -> Document:
        price = price_of(self._groups.by_id[action.group])
        found: Document = {
            "nodeGroup": action.machine_set,
            "from": action.from_,
            "to": action.to,
            "pods": list(action.pods),
            "message": action.message,
        }
        if price is not None:
            found["hourlyCost"] = round(float(price) * (action.to - action.from_), 6)
        return found


def _autoscaling_inputs(cluster: ClusterInput) -> PlanInputs:
    inputs = cluster.policies.autoscaling_inputs(now=cluster.now)
    inputs = replace(inputs, groups=inputs.node_groups(cluster.snapshot))
    return inputs_from_status(cluster.snapshot, inputs) if cluster.policies.autoscaled else inputs


def _selected(snapshot: Snapshot, selections: Iterable[NodeSelection], groups: Groups) -> dict[str, Node]:
    """Return the nodes of several selections by name, ordered by name."""
    found = {node.name: node for each in selections for node in select_nodes(snapshot, each, groups)}
    return dict(sorted(found.items()))


def _upcoming(inputs: PlanInputs, group: NodeGroup) -> int:
    return inputs.upcoming.get(group.id, group.upcoming)


def _with_group(groups: Groups, group: NodeGroup) -> Groups:
    return replace(groups, by_id={**groups.by_id, group.id: group})


def _without_nodes(groups: Groups, removed: Mapping[str, Node], templates: Mapping[str, NodeTemplate]) -> Groups:
    """Return the groups with the machines of removed nodes failed, so that they are neither nodes nor upcoming.

    A group that has lost all its nodes keeps the template that was learned from them.
    """
    changed = {}
    for id_ in {id_ for name in removed if (id_ := groups.of_node.get(name)) is not None}:
        group = groups.by_id[id_]
        machines = tuple(
            replace(each, node="", state=MachineState.FAILED) if each.node in removed else each
            for each in group.machines
        )
        left = replace(group, machines=machines)
        template = templates.get(id_)
        if not left.nodes and template is not None:
            left = replace(left, template=replace(group.template, node=template.node))
        changed[id_] = left
    of_node = {name: id_ for name, id_ in groups.of_node.items() if name not in removed}
    return replace(groups, by_id={id_: changed.get(id_, group) for id_, group in groups.by_id.items()}, of_node=of_node)


def _pending(key: str, message: str, came_from: str | None, group: str | None, kept: Kept | None) -> Document:
    found: Document = {"pod": key}
    if came_from is not None:
        found["from"] = came_from
    found |= {"reason": reasons.UNSCHEDULABLE, "message": message}
    if group is not None:
        found["nodeGroup"] = group
    elif kept is not None:
        found["scaleUp"] = {"reason": kept.reason, "message": kept.message}
    return found


def _budget(found: _Budget) -> Document:
    """Return the disruptions of a budget. It is violated if nodes fail with more of its pods than it allows."""
    allowed = found.budget.disruptions_allowed
    return {
        "pdb": found.budget.key,
        "disruptionsAllowed": allowed,
        "pods": found.pods,
        "violated": found.pods > allowed,
        "blocked": found.blocked,
    }

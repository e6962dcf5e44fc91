"""Explains node groups: their limits, nodes, template and backoff, and what the autoscaler plans for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.bounds import plural
from trimtab.inspection.pod_node_groups import backoff_document

if TYPE_CHECKING:
    from trimtab.api.plan import Kept, Plan, RemoveNode, ScaleUp
    from trimtab.autoscaling.cluster_state import Readiness
    from trimtab.autoscaling.groups import GroupMachine, NodeGroup
    from trimtab.autoscaling.planner import PlanReservations
    from trimtab.autoscaling.scale_up import PlanInputs
    from trimtab.autoscaling.scale_up.expanders.choice import ExpanderChoice
    from trimtab.autoscaling.template import NodeTemplate
    from trimtab.autoscaling.template.node_template import Templates
    from trimtab.inspection.cluster import ClusterInput
    from trimtab.kube.objects import Pod

Document = dict[str, Any]

MAX_CLASSES: Final = 200
"""Maximum number of kinds of pending pods that are tried on a new node. Equal pods of a namespace are one kind."""


def node_group_ids(cluster: ClusterInput) -> dict[str, str]:
    """Return the node groups of the cluster: ``namespace/name`` by id. Several groups may have the same name."""
    groups = cluster.policies.autoscaling_inputs(now=cluster.now).node_groups(cluster.snapshot)
    return {group.id: group.key for group in groups.all}


def find_node_groups(ids: Mapping[str, str], name: str, *, namespace: str = "") -> list[str]:
    """Return the ids of the node groups with a name.

    Args:
        ids: the node groups, see :func:`node_group_ids`.
        name: the name without its namespace.
        namespace: the namespace of the group's object; empty if it may be in any.
    """
    key = f"{namespace}/{name}" if namespace else name
    return [id_ for id_, each in ids.items() if each == key or (not namespace and each.rpartition("/")[2] == name)]


def explain_node_group(cluster: ClusterInput, id_: str) -> Document:
    """Return the state of a node group, and what the autoscaler does with it and why, ready for JSON.

    Args:
        cluster: the cluster.
        id_: the id of an existing group, see :func:`node_group_ids`.
    """
    return _NodeGroups(cluster).document(id_)


def explain_node_groups(cluster: ClusterInput) -> Document:
    """Return a row for each node group, ready for JSON. Groups that cannot be scaled up come first."""
    return _NodeGroups(cluster).table()


class _NodeGroups:
    """The node groups of a cluster, and the plan of the autoscaler for them."""

    def __init__(self, cluster: ClusterInput) -> None:
        from trimtab.autoscaling.cluster_state import inputs_from_status, readiness_by_node
        from trimtab.autoscaling.planner import plan
        from trimtab.autoscaling.template import build_templates

        snapshot, inputs = cluster.snapshot, cluster.policies.autoscaling_inputs(now=cluster.now)
        inputs = replace(inputs, groups=inputs.node_groups(snapshot))
        self._cluster = cluster
        self._inputs: PlanInputs = inputs_from_status(snapshot, inputs)
        self._groups = self._inputs.node_groups(snapshot)
        self._statuses = {each.id: each for each in inputs.status.node_groups}
        nodes = {node.name: node for node in snapshot.nodes.at if node is not None}
        startup = inputs.spec.startup_taints
        self._readiness: Mapping[str, Readiness] = readiness_by_node(
            nodes, self._groups, now=cluster.now, startup=startup
        )
        self._templates: Templates = build_templates(snapshot, self._groups.all, now=cluster.now, spec=inputs.spec)
        self._autoscaled = cluster.policies.cluster_autoscaler is not None
        self._plan: Plan
        self._reservations: PlanReservations
        self._plan, self._reservations = plan(snapshot, self._inputs)

    def table(self) -> Document:
        """Return a row for each group."""
        rows = [self._row(group) for group in self._groups.all]
        rows.sort(key=lambda row: (row["limit"] is None, row["id"]))
        limited = sum(row["limit"] is not None for row in rows)
        problems = [
            {"kind": each.kind, "namespace": each.namespace, "name": each.name, "reason": each.reason,
             "message": each.message}
            for each in (*self._groups.problems, *self._templates.problems)
        ]  # fmt: skip
        more = "" if self._autoscaled else "; there is no ClusterAutoscaler, so no group is scaled"
        return {
            "message": f"{plural(len(rows), 'node group')}, of which {limited} cannot be scaled up{more}",
            "nodeGroups": rows,
            "problems": problems,
        }

    def _row(self, group: NodeGroup) -> Document:
        from trimtab.autoscaling.providers.dialects import api_group_of

        return {
            "nodeGroup": group.key,
            "id": group.id,
            "kind": group.kind,
            "provider": api_group_of(group),
            "minimum": group.minimum,
            "maximum": group.maximum,
            **self._counts(group),
            "unneeded": sum(name in self._reservations.removals.unneeded for name in group.nodes),
            "limit": self._limit(group),
            **self._price(group),
            "scaleUp": self._scale_up(group),
        }

    def document(self, id_: str) -> Document:
        """Return everything about one group."""
        group = self._groups.by_id[id_]
        row = self._row(group)
        pods = self._pending_pods(group)
        nodes = [self._node(name) for name in group.nodes]
        document: Document = {
            **row,
            "limitsFrom": _limits_source(group),
            "notRegistered": [_machine(each) for each in group.machines if not each.node],
            "backoff": backoff_document(self._inputs.backoff.get(id_), self._statuses.get(id_)),
            "template": self._template(group),
            "pendingPods": pods,
            "choices": [_choice(each, id_) for each in self._reservations.choices if _concerns(each, id_)],
            "nodes": nodes,
            "problems": [
                {"reason": each.reason, "message": each.message}
                for each in (*self._groups.problems, *self._templates.problems)
                if each.name in (group.name, id_) and each.namespace in (group.namespace, "")
            ],
        }
        return {"nodeGroup": group.key, "id": id_, "message": self._message(group, row, pods), **document}

    def _message(self, group: NodeGroup, row: Document, pods: Document) -> str:
        sizes = f"{group.target} of {group.minimum} to {group.maximum} nodes"
        parts = [f"{sizes}, {row['ready']} ready"]
        parts += [
            f"{row[name]} {name}" for name in ("upcoming", "unready", "failed", "deleting", "unneeded") if row[name]
        ]
        text = ", ".join(parts)
        if not self._autoscaled:
            return f"{text}; it is not scaled, because there is no ClusterAutoscaler"
        scaled, limit = row["scaleUp"], row["limit"]
        if scaled is not None:
            return f"{text}; the plan scales it up to {scaled['to']}"
        fitting = len(pods["fits"])
        if limit is not None:
            wanted = f", and {plural(fitting, 'pending pod')} would fit" if fitting else ""
            return f"{text}; it cannot be scaled up ({limit['reason']}){wanted}"
        if fitting:
            return f"{text}; {plural(fitting, 'pending pod')} would fit, and no node is added to this group for them"
        return f"{text}; no pending pod needs it"

    # --- sizes and limits ---------------------------------------------------------------------------------------------

    def _counts(self, group: NodeGroup) -> Document:
        from trimtab.autoscaling.groups import MachineState

        by_readiness = Counter(str(self._readiness[name]) for name in group.nodes if name in self._readiness)
        return {
            "size": group.target,
            "registered": len(group.nodes),
            "ready": by_readiness["Ready"],
            "unready": by_readiness["Unready"],
            "starting": by_readiness["Starting"],
            "upcoming": self._inputs.upcoming.get(group.id, group.upcoming),
            "failed": len(group.in_state(MachineState.FAILED)),
            "deleting": len(group.in_state(MachineState.DELETING)),
        }

    def _limit(self, group: NodeGroup) -> Document | None:
        """Return why no node can be added to the group; ``None`` if nodes can be added."""
        from trimtab.autoscaling.scale_up.limits import Headroom

        found = self._inputs.paused_reason(group)
        template = self._templates.of_group.get(group.id)
        if found is None and self._inputs.cluster_unhealthy:
            return {"reason": reasons.CLUSTER_UNHEALTHY, "message": self._inputs.cluster_unhealthy}
        if found is None and template is None and group.target < group.maximum:
            return {"reason": reasons.NO_TEMPLATE, "message": "the template of its nodes is unknown"}
        if found is None:
            nodes = [node for node in self._cluster.snapshot.nodes.at if node is not None]
            room = Headroom(self._inputs.spec.resource_limits, nodes)
            found = room.limit_reason(group, nodes[0] if template is None else template.node)
        return None if found is None else {"reason": found.reason, "message": found.message}

    def _price(self, group: NodeGroup) -> Document:
        """Return the price of a node and of the group per hour; empty if the group has no price."""
        from trimtab.autoscaling.scale_up.expanders import price_of

        price = price_of(group)
        if price is None:
            return {}
        return {"nodeHourlyCost": round(float(price), 6), "hourlyCost": round(float(price * group.target), 6)}

    def _template(self, group: NodeGroup) -> Document | None:
        template = self._templates.of_group.get(group.id)
        return None if template is None else _template(template)

    # --- the plan -----------------------------------------------------------------------------------------------------

    def _scale_up(self, group: NodeGroup) -> Document | None:
        from trimtab.api.plan import ScaleUp

        for action in self._plan.scaling or ():
            if isinstance(action, ScaleUp) and action.group == group.id:
                return _scale_up(action)
        return None

    def _node(self, name: str) -> Document:
        """Return what the plan does with a node of the group, and why."""
        from trimtab.api.plan import rfc3339

        removal = self._removals.get(name)
        kept = self._kept_nodes.get(name)
        since = self._reservations.removals.unneeded.get(name)
        found = removal or kept
        return {
            "node": name,
            "readiness": str(self._readiness.get(name, "")),
            "unneededSince": None if since is None else rfc3339(since),
            "removed": removal is not None,
            "reason": "" if found is None else found.reason,
            "message": "" if found is None else found.message,
            "blockedBy": kept.pod if kept is not None and kept.pod else None,
        }

    @cached_property
    def _removals(self) -> dict[str, RemoveNode]:
        from trimtab.api.plan import RemoveNode

        return {each.node: each for each in self._plan.scaling or () if isinstance(each, RemoveNode)}

    @cached_property
    def _kept_nodes(self) -> dict[str, Kept]:
        return {each.name: each for each in self._plan.kept if each.kind == "Node"}

    def _pending_pods(self, group: NodeGroup) -> Document:
        """Return which pending pods would fit on a new node of the group, and why others would not."""
        from trimtab.autoscaling.scale_up.pending_pods import select_pending_pods
        from trimtab.autoscaling.scale_up.pod_classes import group_equal_pods

        selected = select_pending_pods(self._cluster.snapshot, self._inputs.spec, now=self._cluster.now)
        classes = group_equal_pods(selected.eligible)
        fits: list[str] = []
        failing: dict[tuple[str, ...], list[str]] = {}
        template = self._templates.of_group.get(group.id)
        if template is not None:
            for pods, texts in self._tried(template, classes[:MAX_CLASSES]):
                (failing.setdefault(texts, []) if texts else fits).extend(pod.key for pod in pods)
        return {
            "fits": sorted(fits),
            "doesNotFit": [
                {"reasons": list(texts), "pods": sorted(keys)}
                for texts, keys in sorted(failing.items(), key=lambda each: (-len(each[1]), each[0]))
            ],
            "notConsidered": [
                {"pod": f"{each.namespace}/{each.name}", "reason": each.reason, "message": each.message}
                for each in selected.kept
            ],
            "omitted": sum(map(len, classes[MAX_CLASSES:])),
        }

    def _tried(
        self, template: NodeTemplate, classes: Iterable[list[Pod]]
    ) -> Iterable[tuple[list[Pod], tuple[str, ...]]]:
        """Yield each class of pods with the reasons why it does not fit on a new node; empty if it fits."""
        from trimtab.autoscaling.scale_up.upcoming_nodes import probe_nodes
        from trimtab.placement.placer import Placer

        snapshot = self._cluster.snapshot
        with snapshot.fork():
            placer = Placer(snapshot)
            with probe_nodes(snapshot, [template]) as slots:
                slot = slots[template.group]
                for pods in classes:
                    if placer.feasible(pods[0])[slot]:
                        yield pods, ()
                        continue
                    diagnosis = placer.diagnose(pods[0])
                    texts = [found for found, failed in diagnosis.failures if slot in failed.tolist()]
                    yield pods, texts[0] if texts else (diagnosis.refusal or "the pod fits on no node",)


def _limits_source(group: NodeGroup) -> Document:
    if group.autoscaler:
        return {"kind": "MachineAutoscaler", "name": group.autoscaler}
    if group.namespace:
        return {"kind": group.kind, "name": f"annotations of {group.key}"}
    return {"kind": "Provider", "name": group.api_version}


def _machine(machine: GroupMachine) -> Document:
    from trimtab.api.plan import rfc3339

    # A MachinePool may have nodes without Machines.
    unconfirmed = f"node {machine.unconfirmed_node} exists, but does not confirm that it belongs to the group"
    return {
        "machine": machine.key if machine.name else "",
        "state": str(machine.state),
        "since": None if machine.since is None else rfc3339(machine.since),
        "reason": machine.reason,
        "message": machine.message or (unconfirmed if machine.unconfirmed_node else ""),
    }


def _template(template: NodeTemplate) -> Document:
    from trimtab.kube.rules.quantity import format_amount
    from trimtab.kube.rules.taints import format_taint

    free = template.free
    return {
        "origin": str(template.origin),
        "node": template.sample,
        "allocatable": {
            name: format_amount(name, amount) for name, amount in sorted(template.node.allocatable.items())
        },
        "free": {name: format_amount(name, amount) for name, amount in sorted(free.items())},
        "labels": dict(sorted(template.node.labels.items())),
        "taints": [format_taint(each) for each in template.node.taints],
        "pods": [pod.key for pod in template.pods],
        "assumptions": list(template.assumptions),
    }


def _scale_up(action: ScaleUp) -> Document:
    return {
        "from": action.from_,
        "to": action.to,
        "pods": list(action.pods),
        "reason": action.reason,
        "message": action.message,
    }


def _concerns(choice: ExpanderChoice, id_: str) -> bool:
    return id_ in choice.owners or any(each.group == id_ for each in choice.others)


def _choice(choice: ExpanderChoice, id_: str) -> Document:
    """Return one decision of the expanders from the point of view of a group."""
    own = next((each for each in choice.others if each.group == id_), None)
    chosen = id_ in choice.owners
    return {
        "verdict": "Chosen" if chosen else "Rejected",
        "by": choice.by if chosen or own is None else own.expander,
        "chosen": choice.chosen.key,
        "nodes": choice.chosen.nodes,
        "pods": choice.chosen.pods,
        "measure": None if own is None or chosen else own.measure.text,
        "chosenMeasure": None if own is None or chosen else own.best.text,
        "message": choice.describe() if chosen else _rejected(choice, id_),
    }


def _rejected(choice: ExpanderChoice, id_: str) -> str:
    own = next(each for each in choice.others if each.group == id_)
    if not own.expander:
        return f"{choice.chosen.key} was chosen, because it is equally good and its id comes first"
    if not own.measure.text:
        return f"{own.expander} preferred {choice.chosen.key}"
    return f"{own.expander} preferred {choice.chosen.key} ({own.best.text}) to this group ({own.measure.text})"

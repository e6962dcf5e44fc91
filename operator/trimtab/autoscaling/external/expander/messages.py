"""Options as such a server is told of them, with nodes and pods in Kubernetes' protobuf; pure.

The planner knows of a pod and a node what it reads, no more. So a server sees names, labels, owners, requests,
tolerations, node selectors and priorities, taints and amounts, and not, say, environment variables.
"""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.autoscaling.external.expander import expander_pb2 as pb
from trimtab.autoscaling.scale_up.expanders.advice import Question
from trimtab.kube.objects import Node, Pod
from trimtab.kube.rules.quantity import format_amount
from trimtab.kube.wire import slim_pb2


def request(question: Question) -> pb.Request:
    """The question, in the fields of today and in those of before."""
    found = pb.Request()
    known: dict[str, bytes] = {}
    for offer in question.offers:
        pods = [known.get(pod.key) or known.setdefault(pod.key, _pod(pod)) for pod in offer.examples]
        told = f"{_plural(offer.nodes, 'node')} for {_plural(offer.pods, 'pod')}"
        found.options.append(pb.Option(group=offer.group, nodes=offer.nodes, debug=told, pods=pods, old_pods=pods))
        found.node_of[offer.group] = found.old_node_of[offer.group] = _node(offer.node)
    return found


def _node(node: Node) -> bytes:
    message = slim_pb2.Node(metadata=slim_pb2.ObjectMeta(name=node.name, uid=node.uid, labels=dict(node.labels)))
    for taint in node.taints:
        message.spec.taints.append(slim_pb2.Taint(key=taint.key, value=taint.value, effect=taint.effect))
    _amounts(message.status.capacity, node.capacity)
    _amounts(message.status.allocatable, node.allocatable)
    message.status.conditions.append(slim_pb2.Condition(type="Ready", status="True"))
    return message.SerializeToString(deterministic=True)


def _pod(pod: Pod) -> bytes:
    spec = pod.spec
    message = slim_pb2.Pod(
        metadata=slim_pb2.ObjectMeta(
            name=pod.name,
            namespace=pod.namespace,
            uid=pod.uid,
            labels=dict(pod.labels),
            annotations=dict(pod.annotations),
        )
    )
    for owner in pod.owners:
        message.metadata.owner_references.append(
            slim_pb2.OwnerReference(
                kind=owner.kind,
                name=owner.name,
                uid=owner.uid,
                api_version=owner.api_version,
                controller=owner.controller,
            )
        )
    for container in spec.containers:
        told = message.spec.containers.add(name=container.name, image=container.image)
        _amounts(told.resources.requests, container.requests)
        _amounts(told.resources.limits, container.limits)
    for toleration in spec.tolerations:
        message.spec.tolerations.append(
            slim_pb2.Toleration(
                key=toleration.key, operator=toleration.operator, value=toleration.value, effect=toleration.effect
            )
        )
    message.spec.node_selector.update(spec.node_selector)
    message.spec.priority = pod.priority
    message.spec.scheduler_name = spec.scheduler_name
    message.status.phase = pod.phase
    return message.SerializeToString(deterministic=True)


def _amounts(told: Mapping[str, slim_pb2.Quantity], amounts: Mapping[str, int]) -> None:
    for name in sorted(amounts):
        told[name].string = format_amount(name, amounts[name])


def _plural(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"

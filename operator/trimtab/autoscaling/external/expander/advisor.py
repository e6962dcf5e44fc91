"""Client for a server of cluster-autoscaler's expander API. It is called between two plans of one iteration.

The snapshot contains only some fields of pods and nodes. So the requests to a server contain names, labels, owners,
requests, tolerations, node selectors, priorities, taints and resource amounts, but for example no environment
variables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from trimtab.api import reasons
from trimtab.api.bounds import plural
from trimtab.autoscaling.external.expander import expander_pb2 as pb
from trimtab.autoscaling.external.grpc_channel import CallFailed, GrpcChannel, GrpcEndpoint
from trimtab.autoscaling.groups import ObjectProblem
from trimtab.autoscaling.scale_up.expanders.advice import Advice, ExpanderQuestion
from trimtab.kube.objects import Node, Pod
from trimtab.kube.rules.quantity import format_amount
from trimtab.kube.wire import slim_pb2


def request_message(question: ExpanderQuestion) -> pb.Request:
    """Convert a question to a request message, which contains the fields of both versions of the API."""
    found = pb.Request()
    known: dict[str, bytes] = {}
    for offer in question.offers:
        pods = [known.get(pod.key) or known.setdefault(pod.key, _pod_bytes(pod)) for pod in offer.examples]
        description = f"{plural(offer.nodes, 'node')} for {plural(offer.pods, 'pod')}"
        found.options.append(
            pb.Option(group=offer.group, nodes=offer.nodes, debug=description, pods=pods, old_pods=pods)
        )
        found.node_of[offer.group] = found.old_node_of[offer.group] = _node_bytes(offer.node)
    return found


def _node_bytes(node: Node) -> bytes:
    message = slim_pb2.Node(metadata=slim_pb2.ObjectMeta(name=node.name, uid=node.uid, labels=dict(node.labels)))
    for taint in node.taints:
        message.spec.taints.append(slim_pb2.Taint(key=taint.key, value=taint.value, effect=taint.effect))
    _amounts(message.status.capacity, node.capacity)
    _amounts(message.status.allocatable, node.allocatable)
    message.status.conditions.append(slim_pb2.NodeCondition(type="Ready", status="True"))
    return message.SerializeToString(deterministic=True)


def _pod_bytes(pod: Pod) -> bytes:
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
        message_container = message.spec.containers.add(name=container.name, image=container.image)
        _amounts(message_container.resources.requests, container.requests)
        _amounts(message_container.resources.limits, container.limits)
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


def _amounts(quantities: Mapping[str, slim_pb2.Quantity], amounts: Mapping[str, int]) -> None:
    for name in sorted(amounts):
        quantities[name].string = format_amount(name, amounts[name])


T = TypeVar("T")

NAME: Final = "Grpc"
"""The expander's name in ``spec.expanders``."""
PATH: Final = "/grpcplugin.Expander/BestOptions"
ANSWER_SECONDS: Final = 2.0
"""Timeout of one request in seconds. It is short because pending pods wait for the response."""
MAX_QUESTIONS: Final = 16
"""Maximum number of requests per iteration. Each requires another plan. After that, the next expander decides."""
MAX_TOTAL_SECONDS: Final = 4.0
"""Seconds after which no further request is sent in an iteration, because other controllers are waiting."""


class Advisor:
    """Sends the planner's questions to the expander's server, and plans again with its responses.

    Args:
        channel: connection to the server; ``None`` if none is configured.

    Attributes:
        problem: the reason why the server did not respond; ``None`` if it did.
    """

    def __init__(self, channel: GrpcChannel | None) -> None:
        self.problem: ObjectProblem | None = None
        self._channel = channel

    async def plan_with_answers(self, plan: Callable[[Advice], Awaitable[T]]) -> T:
        """Plan again with each response until no question is open or a limit is reached, and return the last plan.

        Args:
            plan: makes a plan with the given responses. It is called again after each response.
        """
        advice = Advice()
        made = await plan(advice)
        if advice.unanswered is not None:
            self.problem = None
        loop = asyncio.get_running_loop()
        enough = loop.time() + MAX_TOTAL_SECONDS
        for number in range(MAX_QUESTIONS):
            question = advice.unanswered
            if question is None or (number and loop.time() > enough):
                break
            try:
                advice.add(question, await self._ask_server(question))
            except CallFailed as error:
                message = f"the expander Grpc did not answer, so the next expander decides: {error}"
                self.problem = ObjectProblem("Expander", "", NAME, reasons.PROVIDER_UNREACHABLE, message)
                break
            made = await plan(advice)
        return made

    async def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            await self._channel.close()

    async def _ask_server(self, question: ExpanderQuestion) -> tuple[str, ...]:
        if self._channel is None:
            raise CallFailed("UNAVAILABLE", "no server is configured (--expander-grpc-address)")
        await self._channel.renew()
        answer = await self._channel.call(PATH, request_message(question), pb.Answer)
        return tuple(option.group for option in answer.options)


def advisor(endpoint: GrpcEndpoint | None, *, seconds: float = ANSWER_SECONDS) -> Advisor:
    """Create the client for an expander server.

    Args:
        endpoint: the server; ``None`` if none is configured.
        seconds: timeout of one request in seconds.
    """
    return Advisor(None if endpoint is None else GrpcChannel(endpoint, seconds=seconds))

"""From the provider's messages to values, and back; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.go_durations import LONGEST
from trimtab.autoscaling.external.externalgrpc import cloud_provider_pb2 as pb
from trimtab.autoscaling.groups import ExternalMachine, GroupMachine, GroupOptions, MachineState
from trimtab.autoscaling.scale_up.standing_in import STARTING
from trimtab.kube.objects import Node
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.protobuf import decode_protobuf

UNREGISTERED: Final = "k8s.io/cluster-autoscaler/fake-node-reason"
"""On what is deleted and never was a node: why, in upstream's words; some providers ask for it."""

_NANO: Final = 1_000_000_000


def machines(instances: Iterable[pb.Instance]) -> tuple[ExternalMachine, ...]:
    """The instances of a group. An error without a code is none, as upstream has it."""
    return tuple(
        ExternalMachine(
            provider_id=each.id,
            deleting=each.status.state == pb.DELETING,
            creating=each.status.state == pb.CREATING,
            reason=each.status.error.code,
            message=each.status.error.message,
        )
        for each in instances
    )


def template(raw: bytes) -> Node:
    """The node that a provider gives as template.

    Raises:
        InputError: it is no node.
    """
    found = decode_protobuf("Node", raw, interner=Interner())
    assert isinstance(found, Node)
    return found


def defaults(spec: ClusterAutoscalerSpec) -> GroupOptions:
    """What holds for groups that want nothing else."""
    down = spec.scaling_down
    return GroupOptions(
        utilization_threshold=down.threshold,
        gpu_utilization_threshold=down.gpu_threshold,
        unneeded_seconds=down.unneeded_seconds,
        unready_seconds=down.unready_seconds,
        provision_seconds=spec.provision_seconds,
        startup_seconds=STARTING,
    )


def options_message(options: GroupOptions) -> pb.Options:
    """Options in both shapes of the schema, the one of today and the one before."""
    unneeded, unready = options.unneeded_seconds or 0.0, options.unready_seconds or 0.0
    provision, startup = options.provision_seconds or 0.0, options.startup_seconds or 0.0
    return pb.Options(
        utilization_threshold=options.utilization_threshold or 0.0,
        gpu_utilization_threshold=options.gpu_utilization_threshold or 0.0,
        old_unneeded=pb.OldSpan(nanoseconds=round(unneeded * _NANO)),
        old_unready=pb.OldSpan(nanoseconds=round(unready * _NANO)),
        old_provision=pb.OldSpan(nanoseconds=round(provision * _NANO)),
        unneeded=_span(unneeded),
        unready=_span(unready),
        provision=_span(provision),
        startup=_span(startup),
    )


def options(said: pb.Options | None, than: GroupOptions) -> GroupOptions:
    """What a group wants otherwise than the defaults that its provider was told.

    Numbers of 0, which are what a provider sends that fills in only what it knows, and numbers that cannot be are
    nothing said.
    """
    if said is None:
        return GroupOptions()
    unneeded, unready = _seconds(said, "unneeded"), _seconds(said, "unready")
    provision, startup = _seconds(said, "provision"), _seconds(said, "startup")
    return GroupOptions(
        utilization_threshold=_other(said.utilization_threshold, than.utilization_threshold, most=1.0),
        gpu_utilization_threshold=_other(said.gpu_utilization_threshold, than.gpu_utilization_threshold, most=1.0),
        unneeded_seconds=_other(unneeded, than.unneeded_seconds, most=float(LONGEST)),
        unready_seconds=_other(unready, than.unready_seconds, most=float(LONGEST)),
        provision_seconds=_other(provision, than.provision_seconds, most=float(LONGEST)),
        startup_seconds=_other(startup, than.startup_seconds, most=float(LONGEST)),
    )


def _other(said: float, default: float | None, *, most: float) -> float | None:
    possible = 0 < said <= most
    return said if possible and (default is None or not math.isclose(said, default)) else None


def _seconds(said: pb.Options, name: str) -> float:
    if said.HasField(name):
        span: pb.Span = getattr(said, name)
        return span.seconds + span.nanos / _NANO
    old: pb.OldSpan | None = getattr(said, f"old_{name}", None)
    return 0.0 if old is None else old.nanoseconds / _NANO


def _span(seconds: float) -> pb.Span:
    whole = math.floor(seconds)
    return pb.Span(seconds=whole, nanos=round((seconds - whole) * _NANO))


def price_text(price: float) -> str:
    """A price as annotations have it; empty where it is none."""
    if not (math.isfinite(price) and 0 <= price < _NANO):
        return ""
    return f"{price:.9f}".rstrip("0").rstrip(".")


def provider_node(machine: GroupMachine, node: Node | None) -> pb.ProviderNode:
    """What a provider is told of what is to be removed: the node, or in its place an instance that never was one."""
    if node is None:
        reason = "create-error" if machine.state is MachineState.FAILED else "unregistered"
        return pb.ProviderNode(
            provider_id=machine.name, name=machine.node or machine.name, annotations={UNREGISTERED: reason}
        )
    return template_node(node, provider_id=machine.name)


def template_node(node: Node, *, provider_id: str = "") -> pb.ProviderNode:
    """A node as a provider is told of it."""
    return pb.ProviderNode(
        provider_id=provider_id or node.provider_id,
        name=node.name,
        labels=dict(node.labels),
        annotations=dict(node.annotations),
    )

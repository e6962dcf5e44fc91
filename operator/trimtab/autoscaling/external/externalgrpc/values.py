"""Converts messages of the ``externalgrpc`` service to trimtab's types, and back. This module does no I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.scalars import LONGEST_GO_DURATION
from trimtab.autoscaling.external.externalgrpc import cloud_provider_pb2 as pb
from trimtab.autoscaling.groups import ExternalMachine, GroupMachine, GroupOptions, MachineState
from trimtab.autoscaling.scale_up.upcoming_nodes import STARTUP_SECONDS
from trimtab.kube.objects import Node
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.protobuf import decode_protobuf

UNREGISTERED: Final = "k8s.io/cluster-autoscaler/fake-node-reason"
"""Annotation that marks an instance to delete as one that never became a node. Some providers read it."""

_NANO: Final = 1_000_000_000


def machines(instances: Iterable[pb.Instance]) -> tuple[ExternalMachine, ...]:
    """Return the instances of a group. An error that has no code is ignored, as in upstream."""
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
    """Decode the template node that a provider returned.

    Raises:
        InputError: the value is not a valid node.
    """
    found = decode_protobuf("Node", raw, interner=Interner())
    assert isinstance(found, Node)
    return found


def defaults(spec: ClusterAutoscalerSpec) -> GroupOptions:
    """Return the options that apply to groups without their own options."""
    down = spec.scaling_down
    return GroupOptions(
        utilization_threshold=down.threshold,
        gpu_utilization_threshold=down.gpu_threshold,
        unneeded_seconds=down.unneeded_seconds,
        unready_seconds=down.unready_seconds,
        provision_seconds=spec.provision_seconds,
        startup_seconds=STARTUP_SECONDS,
    )


def options_message(options: GroupOptions) -> pb.Options:
    """Convert options to the service's message, which contains fields of both versions of the service."""
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


def options(reported: pb.Options | None, defaults: GroupOptions) -> GroupOptions:
    """Return a group's options that differ from the defaults that were sent.

    Values of 0 count as unset, because a provider sends them for fields that it does not know. Invalid values are
    ignored.
    """
    if reported is None:
        return GroupOptions()
    unneeded, unready = _seconds(reported, "unneeded"), _seconds(reported, "unready")
    provision, startup = _seconds(reported, "provision"), _seconds(reported, "startup")
    return GroupOptions(
        utilization_threshold=_override(reported.utilization_threshold, defaults.utilization_threshold, maximum=1.0),
        gpu_utilization_threshold=_override(
            reported.gpu_utilization_threshold, defaults.gpu_utilization_threshold, maximum=1.0
        ),
        unneeded_seconds=_override(unneeded, defaults.unneeded_seconds, maximum=float(LONGEST_GO_DURATION)),
        unready_seconds=_override(unready, defaults.unready_seconds, maximum=float(LONGEST_GO_DURATION)),
        provision_seconds=_override(provision, defaults.provision_seconds, maximum=float(LONGEST_GO_DURATION)),
        startup_seconds=_override(startup, defaults.startup_seconds, maximum=float(LONGEST_GO_DURATION)),
    )


def _override(reported: float, default: float | None, *, maximum: float) -> float | None:
    possible = 0 < reported <= maximum
    return reported if possible and (default is None or not math.isclose(reported, default)) else None


def _seconds(reported: pb.Options, name: str) -> float:
    if reported.HasField(name):
        span: pb.Span = getattr(reported, name)
        return span.seconds + span.nanos / _NANO
    old: pb.OldSpan | None = getattr(reported, f"old_{name}", None)
    return 0.0 if old is None else old.nanoseconds / _NANO


def _span(seconds: float) -> pb.Span:
    whole = math.floor(seconds)
    return pb.Span(seconds=whole, nanos=round((seconds - whole) * _NANO))


def price_text(price: float) -> str:
    """Format a price as in the annotation ``trimtab.dev/price``, or return an empty string if the price is invalid."""
    if not (math.isfinite(price) and 0 <= price < _NANO):
        return ""
    return f"{price:.9f}".rstrip("0").rstrip(".")


def provider_node(machine: GroupMachine, node: Node | None) -> pb.ProviderNode:
    """Return the message for a node that will be deleted, or for an instance that never became a node."""
    if node is None:
        reason = "create-error" if machine.state is MachineState.FAILED else "unregistered"
        return pb.ProviderNode(
            provider_id=machine.name, name=machine.node or machine.name, annotations={UNREGISTERED: reason}
        )
    return template_node(node, provider_id=machine.name)


def template_node(node: Node, *, provider_id: str = "") -> pb.ProviderNode:
    """Convert a node to the service's message."""
    return pb.ProviderNode(
        provider_id=provider_id or node.provider_id,
        name=node.name,
        labels=dict(node.labels),
        annotations=dict(node.annotations),
    )

"""What the autoscaler's loop needs, made once by the composition root."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from msgspec import Struct

from trimtab.api.machine_autoscaler import MachineAutoscaler
from trimtab.autoscaling.external.source import Sources
from trimtab.autoscaling.providers import Provider
from trimtab.autoscaling.report import Reporter
from trimtab.autoscaling.trigger import Trigger
from trimtab.cluster.live import LiveCluster
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.errors import InputError


class Services(Struct, frozen=True):
    """What every pass needs.

    Attributes:
        api: the API server.
        live: the picture of the cluster, node groups included.
        clock: where the time comes from.
        turn: held by whoever plans moves at present: a policy of the descheduler during its cycle, a pass while it
            plans and begins. Two that believe in the same free slot would both be wrong.
        stale: what keeps the picture, node groups and MachineAutoscalers included, from being planned on now; ``None``
            where nothing does.
        leading: whether this process may still act.
        trigger: what makes a pass begin early.
        providers: who acts on groups, by what :func:`~trimtab.autoscaling.providers.api_group_of` says of them.
        sources: providers outside of the cluster.
        machine_autoscalers: all that can be used.
        invalid_machine_autoscalers: the others, by ``namespace/name``, each with what is wrong.
        reporter: tells of passes and removals: events, metrics, upstream's ConfigMap.
        namespace: where the operator's own ConfigMaps are.
    """

    api: Api
    live: LiveCluster
    clock: Clock
    turn: asyncio.Lock
    stale: Callable[[], str | None]
    leading: Callable[[], bool]
    trigger: Trigger
    providers: Mapping[str, Provider]
    sources: Sources
    machine_autoscalers: Callable[[], tuple[MachineAutoscaler, ...]]
    invalid_machine_autoscalers: Callable[[], Mapping[str, InputError]]
    reporter: Reporter
    namespace: str = "default"

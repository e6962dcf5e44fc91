"""What container statuses say, of 150,000 pods in which nearly every container runs.

Of a container that runs only its restarts are kept, in the pod's sum. The others recur from pod to pod: an init
container that has completed, a container that waits in CrashLoopBackOff. So what is told of a pod's containers is
shared with all pods of which the same is told, and a healthy pod holds an empty tuple.
"""

from __future__ import annotations

from typing import Any

from trimtab.kube.objects import ContainerState
from trimtab.kube.objects.pod import CONTAINER, EPHEMERAL_CONTAINER, INIT_CONTAINER
from trimtab.kube.wire.intern import Interner

Statuses = tuple[int, int, tuple[ContainerState, ...]]


def container_statuses(status: Any, interner: Interner) -> Statuses:
    """Restarts of containers, restarts of init containers, and the containers that do not run.

    Args:
        status: the pod's status on the wire.
        interner: shares the states.
    """
    states: list[ContainerState] = []
    restarts = _read(status.container_statuses, CONTAINER, states)
    init, ephemeral = status.init_container_statuses, status.ephemeral_container_statuses
    init_restarts = _read(init, INIT_CONTAINER, states) if init else 0
    if ephemeral:
        _read(ephemeral, EPHEMERAL_CONTAINER, states)
    return restarts, init_restarts, interner.share(tuple(states)) if states else ()


def _read(messages: Any, kind: str, states: list[ContainerState]) -> int:
    """Sum the restarts, and note who does not run."""
    restarts = 0
    for message in messages:
        restarts += message.restart_count
        state = message.state
        if state.HasField("terminated"):
            ended = state.terminated
            states.append(ContainerState(kind, message.name, ended.reason, ended.exit_code))
        elif state.HasField("waiting"):
            states.append(ContainerState(kind, message.name, state.waiting.reason))
    return restarts

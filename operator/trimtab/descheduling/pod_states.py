"""What a pod's status says of it, in the words that policies use: states, exit codes, ages."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from trimtab.kube.objects import ContainerState, Pod
from trimtab.kube.objects.pod import CONTAINER, EPHEMERAL_CONTAINER, INIT_CONTAINER


def kinds_of_containers(*, init: bool, ephemeral: bool = False) -> frozenset[str]:
    """Which containers a policy looks at: :attr:`ContainerState.kind`."""
    return frozenset(
        {CONTAINER} | ({INIT_CONTAINER} if init else set()) | ({EPHEMERAL_CONTAINER} if ephemeral else set())
    )


def idle_containers(pod: Pod, kinds: Collection[str]) -> Iterator[ContainerState]:
    """The containers of these kinds that wait or have ended."""
    return (each for each in pod.container_states if each.kind in kinds)


def words(state: ContainerState) -> str:
    """``container main waits: CrashLoopBackOff``, or ``init container x has ended: Error (exit code 1)``."""
    if state.exit_code is None:
        return f"{state.kind} {state.name} waits: {state.reason or 'no reason given'}"
    reason = f": {state.reason}" if state.reason else ""
    return f"{state.kind} {state.name} has ended{reason} (exit code {state.exit_code})"


def state_among(pod: Pod, states: Collection[str], kinds: Collection[str]) -> str | None:
    """Which of the states the pod is in, in words: by its phase, its reason, or a container's; ``None`` for none."""
    if pod.phase in states:
        return f"phase {pod.phase}"
    if pod.reason in states:
        return f"reason {pod.reason}"
    return next((words(each) for each in idle_containers(pod, kinds) if each.reason in states), None)


def exit_code_among(pod: Pod, codes: Collection[int], kinds: Collection[str]) -> str | None:
    """Which container has ended with one of the exit codes, in words; ``None`` if none has."""
    return next((words(each) for each in idle_containers(pod, kinds) if each.exit_code in codes), None)


def age_of(pod: Pod, now: float) -> int | None:
    """Whole seconds since the pod was created; ``None`` where that is not known, as in hand-written files."""
    return None if pod.created is None else int(now - pod.created)

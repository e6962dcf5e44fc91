"""Short ways to say taints, tolerations, nodes and pods of the tests of deadlines; times are seconds from a start."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from trimtab.kube.objects import Node, Pod, PodSpec, Taint, Toleration
from trimtab.tainting.deadlines import Deadline, NodeTaints, TolerationRule, deadline, observe_taints

START = 1_800_000_000.0
ALL = TolerationRule()
FIRST = TolerationRule(first=True)


def taint(key: str = "a", value: str = "", *, added: float | None = 0, effect: str = "NoExecute") -> Taint:
    """A taint that was put on so many seconds after the start; ``None`` if its time is not recorded."""
    return Taint(key, effect, value, None if added is None else START + added)


def bears(
    key: str = "a", seconds: int | None = None, *, value: str = "", operator: str = "", effect: str = "NoExecute"
) -> Toleration:
    """A toleration: with a value by Equal, without by Exists."""
    return Toleration(key, operator or ("Equal" if value else "Exists"), value, effect, seconds)


def node(*taints: Taint, name: str = "n1", uid: str = "u1", since: str = "") -> Node:
    found = Node(name=name, uid=uid, taints=taints)
    return (
        found if not since else replace(found, annotations=type(found.annotations)({"trimtab.dev/taints-since": since}))
    )


def pod(
    *tolerations: Toleration, name: str = "web", on: str = "n1", started: float | None = -1000, uid: str = ""
) -> Pod:
    """A running pod that is on its node since long before the start, unless said otherwise."""
    return Pod(
        namespace="shop",
        name=name,
        uid=uid or f"uid-{name}",
        node=on,
        spec=PodSpec(tolerations=tolerations),
        phase="Running",
        created=START - 5000,
        started=None if started is None else START + started,
    )


def observed(*taints: Taint, seen: float = 0) -> NodeTaints:
    """What is known of a node that was first seen with these taints so many seconds after the start."""
    return observe_taints(node(*taints), None, now=START + seen)


def of(
    tolerations: Sequence[Toleration],
    taints: Sequence[Taint],
    *,
    at: float = 0,
    rule: TolerationRule = ALL,
    started: float | None = -1000,
) -> Deadline | None:
    """The deadline of a pod with these tolerations beside these taints, that were seen when they were put on."""
    latest = max((each.time_added or START) - START for each in taints) if taints else 0.0
    known = observed(*taints, seen=latest)
    return deadline(pod(*tolerations, started=started), known.observed, rule, now=START + max(at, latest))


def due(found: Deadline | None) -> float | None:
    """Seconds after the start, ``None`` for never."""
    return None if found is None else found.due - START

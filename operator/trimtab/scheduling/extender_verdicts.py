"""The responses of scheduler extenders about a pod: reads the responses, and narrows the feasible nodes with them.

An extender is trusted as little as possible. Its response can only remove nodes and victims from those that it was
asked about and add a score within the permitted range. Everything else in a response is an error of the extender.
Source of the formats: ``k8s.io/kube-scheduler/extender/v1`` (v1.36), whose keys Go decodes regardless of case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct

from trimtab.api.scheduler_extenders import Extender
from trimtab.cluster.node_table import NodeTable
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.kube.objects import Pod

MAX_SCORE: Final = 10
"""The highest score of an extender (``MaxExtenderPriority``)."""

MAX_REASONS: Final = 16
"""Maximum number of different reasons that are reported from one response."""

MAX_REASON_LENGTH: Final = 256
REJECTED: Final = "node(s) were rejected by a scheduler extender"
NOT_ASKED: Final = "node(s) became feasible after the scheduler extenders were asked"


class ExtenderError(Exception):
    """An extender did not respond, reported an error, or sent an invalid response."""


class FilterAnswer(Struct, frozen=True):
    """The response to a filter request.

    Attributes:
        passed: the names of the nodes that passed.
        failed: the reason for other nodes, by name. A node may lack a reason.
        unresolvable: the names of the nodes on which preemption would not help.
    """

    passed: frozenset[str]
    failed: Mapping[str, str]
    unresolvable: frozenset[str]


class Verdict(Struct, frozen=True):
    """The combined responses of all extenders of a policy about a pod.

    Attributes:
        asked: the names of the nodes that were feasible before the extenders were asked.
        passed: the names of the nodes that all extenders accept.
        failed: the reason for the other nodes that were asked about, by name.
        unresolvable: the names of the nodes on which preemption would not help.
        scores: the weighted score to add to each node, by name.
    """

    asked: frozenset[str]
    passed: frozenset[str]
    failed: Mapping[str, str] = {}
    unresolvable: frozenset[str] = frozenset()
    scores: Mapping[str, int] = {}

    def passing(self, nodes: NodeTable) -> BoolArray:
        """Return the slots of the nodes that passed: bool, shape (nodes.capacity,)."""
        found: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        found[[slot for name in self.passed if (slot := nodes.slot_of.get(name)) is not None]] = True
        return found

    def added(self, nodes: NodeTable) -> IntArray:
        """Return the score to add to each slot: int64, shape (nodes.capacity,)."""
        found: IntArray = np.zeros(nodes.capacity, dtype=np.int64)
        for name, score in self.scores.items():
            slot = nodes.slot_of.get(name)
            if slot is not None:
                found[slot] = score
        return found

    def failures(self, nodes: NodeTable) -> Iterator[tuple[BoolArray, str]]:
        """Yield each reason for rejection, preceded by the slots that were not rejected for this reason.

        In the last pair, the rejected slots are those of nodes that became feasible after the extenders were asked.
        """
        by_reason: dict[str, list[int]] = {}
        for name in sorted(self.asked - self.passed):
            slot = nodes.slot_of.get(name)
            if slot is not None:
                by_reason.setdefault(self.failed.get(name, REJECTED), []).append(slot)
        for reason, slots in by_reason.items():
            passing: BoolArray = np.ones(nodes.capacity, dtype=np.bool_)
            passing[slots] = False
            yield passing, reason
        asked: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        asked[[slot for name in self.asked if (slot := nodes.slot_of.get(name)) is not None]] = True
        yield asked, NOT_ASKED


def concerns(extender: Extender, pod: Pod) -> bool:
    """Return whether the extender is interested in the pod (``IsInterested``)."""
    requests = pod.spec.requests
    return not extender.managed_resources or any(each.name in requests for each in extender.managed_resources)


def must_be_asked(extender: Extender, pod: Pod) -> bool:
    """Return whether the extender filters or scores nodes for the pod, so that the pod cannot be planned without it."""
    return bool(extender.filter_verb or extender.prioritize_verb) and concerns(extender, pod)


# --- answers ------------------------------------------------------------------------------------------------------


def read_filter_answer(answer: object, asked: Collection[str], *, names_only: bool) -> FilterAnswer:
    """Read an ``ExtenderFilterResult``.

    Args:
        answer: the decoded JSON.
        asked: the names of the nodes that were sent.
        names_only: whether only names were sent (``nodeCacheCapable``).

    Raises:
        ExtenderError: the extender reports an error, or the answer is invalid.
    """
    found = _fields(answer)
    if found.get("error"):
        raise ExtenderError(_shortened(f"the extender reports: {_text(found['error'], 'Error')}"))
    known = frozenset(asked)
    if names_only and found.get("nodenames") is not None:
        passed = [_text(name, "NodeNames") for name in _items(found["nodenames"], "NodeNames")]
    elif found.get("nodes") is not None:
        passed = [_node_name(node) for node in _items(_fields(found["nodes"]).get("items"), "Nodes.Items")]
    else:
        passed = []
    foreign = next((name for name in passed if name not in known), None)
    if foreign is not None:
        raise ExtenderError(_shortened(f"the extender accepts node {foreign!r}, about which it was not asked"))
    final = _reasons(found.get("failedandunresolvablenodes"), "FailedAndUnresolvableNodes", known)
    failed = _reasons(found.get("failednodes"), "FailedNodes", known) | final
    return FilterAnswer(frozenset(passed), _few_reasons(failed), frozenset(final))


def read_priorities(answer: object, asked: Collection[str]) -> dict[str, int]:
    """Read a ``HostPriorityList``: the score of each node, without the weight. Other nodes are ignored.

    Raises:
        ExtenderError: the response is invalid, or a score is not between 0 and 10.
    """
    known, found = frozenset(asked), dict[str, int]()
    for item in _items(answer, "the list of scores"):
        fields = _fields(item)
        name, score = _text(fields.get("host", ""), "Host"), fields.get("score", 0)
        if isinstance(score, bool) or not isinstance(score, int) or not 0 <= score <= MAX_SCORE:
            raise ExtenderError(_shortened(f"the score of node {name!r} is not between 0 and {MAX_SCORE}: {score!r}"))
        if name in known:
            found[name] = score
    return found


def read_victims(answer: object, proposed: Mapping[str, Sequence[Pod]]) -> dict[str, tuple[Pod, ...]]:
    """Read an ``ExtenderPreemptionResult``: the victims on each node that the extender accepts.

    Args:
        answer: the decoded JSON.
        proposed: the victims on each node that was proposed.

    Raises:
        ExtenderError: the response is invalid, or contains a node or a victim that was not proposed.
    """
    found: dict[str, tuple[Pod, ...]] = {}
    listed = _fields(answer).get("nodenametometavictims") or {}
    if not isinstance(listed, Mapping):
        raise ExtenderError("NodeNameToMetaVictims is not an object")
    for name, victims in listed.items():
        if name not in proposed:
            raise ExtenderError(_shortened(f"the extender preempts on node {name!r}, which was not proposed"))
        by_uid = {pod.uid: pod for pod in proposed[name]}
        uids = {_text(_fields(pod).get("uid"), "UID") for pod in _items(_fields(victims).get("pods"), "Pods")}
        if not uids or not by_uid.keys() >= uids:
            raise ExtenderError(_shortened(f"the extender preempts other pods on node {name!r} than were proposed"))
        found[name] = tuple(pod for pod in proposed[name] if pod.uid in uids)
    return found


def read_binding_answer(answer: object) -> None:
    """Read an ``ExtenderBindingResult``.

    Raises:
        ExtenderError: the extender reports an error, or the answer is invalid.
    """
    error = _fields(answer or {}).get("error")
    if error:
        raise ExtenderError(_shortened(f"the extender reports: {_text(error, 'Error')}"))


def _fields(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ExtenderError(f"the answer of the extender is not an object but {type(value).__name__}")
    return {str(key).lower(): item for key, item in value.items()}


def _items(value: object, what: str) -> Sequence[Any]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ExtenderError(f"{what} is not a list")
    return value


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ExtenderError(f"{what} is not a string")
    return value


def _node_name(node: object) -> str:
    return _text(_fields(_fields(node).get("metadata")).get("name"), "metadata.name of a node")


def _reasons(value: object, what: str, known: frozenset[str]) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ExtenderError(f"{what} is not an object")
    return {name: _shortened(_text(text, what)) or REJECTED for name, text in value.items() if name in known}


def _few_reasons(failed: dict[str, str]) -> dict[str, str]:
    """Keep the first few reasons and replace all others, because each of thousands of nodes may have its own reason."""
    kept = set(list(dict.fromkeys(failed.values()))[:MAX_REASONS])
    return {name: reason if reason in kept else REJECTED for name, reason in failed.items()}


def _shortened(text: str) -> str:
    printable = "".join(each if each.isprintable() else " " for each in text[:MAX_REASON_LENGTH])
    return printable.strip()

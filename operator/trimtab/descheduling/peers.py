"""The policies that run side by side: each knows by it who stands in its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trimtab.api.decode import decode_policy
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.strategies import MetricsUtilization
from trimtab.cluster.usage import Usage
from trimtab.descheduling.burden import measured_by
from trimtab.descheduling.policy_conflicts import PolicyConflict, Scoring, conflicts
from trimtab.kube.api import Api
from trimtab.kube.errors import InputError
from trimtab.kube.resources import DESCHEDULER_POLICIES
from trimtab.kube.verbs import list_objects


class Peers:
    """Which policies there are, and which of them would undo each other.

    Every policy's loop tells of its own; one list at the start tells of those whose loops have not begun, so that none
    acts before it can know of the others.

    Args:
        scoring: how the scheduler scores nodes, ``None`` where nobody has said.
    """

    def __init__(self, scoring: Scoring | None = None) -> None:
        self._scoring = scoring
        self._policies: dict[str, tuple[str, DeschedulerPolicy | None]] = {}  # by name: its UID, and what can be used
        self._measured: dict[str, tuple[MetricsUtilization, Usage]] = {}  # by name: what was asked, and what was said
        self._listeners: dict[str, Callable[[], None]] = {}
        self._conflicts: tuple[PolicyConflict, ...] = ()
        self._listed = False

    async def take_up(self, api: Api) -> None:
        """Learn of the policies that are there already, once.

        Raises:
            ApiError: the API server does not let them be listed.
            Unreachable: it does not answer.
        """
        if self._listed:
            return
        found = await list_objects(api, DESCHEDULER_POLICIES)
        for body in found.items:
            metadata = body["metadata"]
            if metadata["name"] not in self._policies and not metadata.get("deletionTimestamp"):
                self._policies[metadata["name"]] = metadata.get("uid", ""), _usable(body)
        self._listed = True
        self._judge()

    def put(self, name: str, uid: str, policy: DeschedulerPolicy | None) -> None:
        """Take a policy as it is written now, ``None`` where it cannot be used."""
        self._policies[name] = uid, policy
        self._judge()

    def forget(self, name: str, uid: str) -> None:
        """A policy is gone; a successor of the same name stays."""
        if self._policies.get(name, ("", None))[0] == uid:
            del self._policies[name]
            self._listeners.pop(name, None)
            self._measured.pop(name, None)
            self._judge()

    def listen(self, name: str, tell: Callable[[], None]) -> None:
        """Have somebody told whenever another conflict than before stands in the policy's way, or none any more."""
        self._listeners[name] = tell

    def against(self, name: str) -> tuple[PolicyConflict, ...]:
        """What stands in the policy's way."""
        return tuple(each for each in self._conflicts if name in each.names)

    def beside(self, name: str) -> tuple[DeschedulerPolicy, ...]:
        """The other policies that may act, by name: neither suspended, nor held by a conflict, nor simulating.

        What they see to is not to be undone. A window that is closed now makes no difference: it opens again.
        """
        others = (policy for other, (_, policy) in sorted(self._policies.items()) if other != name)
        return tuple(policy for policy in others if policy is not None and self._may_act(policy))

    def measured(self, name: str, wanted: MetricsUtilization, usage: Usage) -> None:
        """Take note of what a policy that judges by real use has measured: it objects by that between its cycles."""
        if name in self._policies:
            self._measured[name] = wanted, usage

    def usages(self) -> dict[str, Usage]:
        """What policies measured last, by their names; nothing of one that asks something else by now."""
        return {
            name: usage
            for name, (wanted, usage) in list(self._measured.items())  # cycles plan in a thread beside the loop
            if (policy := self._policies.get(name, ("", None))[1]) is not None and measured_by(policy) == wanted
        }

    def _may_act(self, policy: DeschedulerPolicy) -> bool:
        return policy.spec.mode != "Simulate" and not policy.spec.suspend and not self.against(policy.name)

    def _judge(self) -> None:
        before = self._conflicts
        awake = (policy for _, policy in self._policies.values() if policy is not None and not policy.spec.suspend)
        self._conflicts = conflicts(awake, scoring=self._scoring)
        changed = {name for each in {*before} ^ {*self._conflicts} for name in each.names}
        for name in sorted(changed & self._listeners.keys()):
            self._listeners[name]()


def _usable(body: dict[str, Any]) -> DeschedulerPolicy | None:
    try:
        return decode_policy(body, source="")
    except InputError:
        return None  # its own loop says so

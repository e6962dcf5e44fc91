"""The rules of placement admission, one module each.

A rule is compiled from its block of the PlacementAdmission. It sees one request at a time and keeps no state, so the
webhooks, the audit of existing objects and the tests call the same code. In a mutating webhook, the reviewer calls
:meth:`AdmissionRule.mutate` of one rule after the other, each with the result of the previous one. In the validating
webhook it calls :meth:`AdmissionRule.validate` with the final object.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from trimtab.admission.requests import Attributes, PodSpec
from trimtab.api.placement_admission import FailurePolicy, RuleName


class Refusal(Exception):
    """A reason to refuse a request.

    Attributes:
        message: the message for the client. It is that of the upstream plugin, if the rule implements one.
        unless_may_bind: whether the request is nevertheless admitted if its user may create ``pods/binding`` in the
            namespace. Rules have no I/O, so their caller checks the permission.
    """

    def __init__(self, message: str, *, unless_may_bind: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.unless_may_bind = unless_may_bind


class AdmissionRule(Protocol):
    """A rule of placement admission."""

    @property
    def name(self) -> RuleName:
        """Return the name of the rule, for messages, counts and metrics."""
        ...

    @property
    def failure_policy(self) -> FailurePolicy:
        """Return the failure policy of the webhooks that call the rule."""
        ...

    def mutate(self, request: Attributes, spec: PodSpec) -> PodSpec:
        """Return the pod spec with the changes of this rule; ``spec`` itself if there are none.

        Args:
            request: the request.
            spec: the pod spec with the changes of earlier rules.

        Raises:
            Refusal: the changes are not possible, for example because the pod conflicts with them.
        """
        ...

    def validate(self, request: Attributes) -> Iterable[Refusal]:
        """Return the reasons to refuse the final object of a request; empty if there are none."""
        ...

    def warnings(self, request: Attributes) -> Iterable[str]:
        """Return warnings for the client about an object that is admitted."""
        ...


class RuleDefaults:
    """Base of rules that refuse nothing or warn about nothing."""

    def validate(self, _request: Attributes) -> Iterable[Refusal]:
        """Return no refusals."""
        return ()

    def warnings(self, _request: Attributes) -> Iterable[str]:
        """Return no warnings."""
        return ()


class Review(Struct, frozen=True):
    """The results of the rules of one webhook for one request.

    Attributes:
        refusals: reasons to refuse the request, with the rules that give them.
        warnings: warnings for the client.
        mutated: rules that changed the pod spec; none if another rule refuses the object.
        applied: the rules with a result, for counts. In a validating webhook, these are all rules that ran. In a
            mutating webhook, these are the rules that refused the object, else those that changed it; the validating
            webhook counts the others.
        failed: rules with failure policy Ignore that failed in the webhook with Fail, which did not apply them.
        patch: the JSON patch, encoded; empty if nothing changes, and in Warn mode.
    """

    refusals: tuple[tuple[RuleName, Refusal], ...] = ()
    warnings: tuple[str, ...] = ()
    mutated: tuple[RuleName, ...] = ()
    applied: tuple[RuleName, ...] = ()
    failed: tuple[RuleName, ...] = ()
    patch: bytes = b""

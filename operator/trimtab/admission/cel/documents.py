"""Documents of admission policies and their bindings (admissionregistration.k8s.io/v1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from trimtab.admission.cel.expressions import Variables
from trimtab.admission.requests import CREATE, KUBE_SYSTEM, UPDATE
from trimtab.api.placement_admission import FailurePolicy, PlacementAdmissionSpec
from trimtab.api.schema import FieldError

GROUP: Final = "admissionregistration.k8s.io"
API_VERSION: Final = f"{GROUP}/v1"
PREFIX: Final = "trimtab-"

PODS: Final = ("", ("pods",))
EPHEMERAL_CONTAINERS: Final = ("", ("pods/ephemeralcontainers",))
DAEMON_SETS: Final = ("apps", ("daemonsets",))

MAX_EXPRESSION: Final = 100_000
"""Maximum number of characters of a CEL expression: the default of cel-go's parser (``expressionSizeCodePointLimit``),
which kube-apiserver does not change.
"""
_VALIDATING: Final = "ValidatingAdmissionPolicy"
_MUTATING: Final = "MutatingAdmissionPolicy"


class Validation(Struct, frozen=True):
    """A check of a ValidatingAdmissionPolicy.

    Attributes:
        expression: CEL expression that is true for requests that are admitted.
        message: the message, if it is constant.
        message_expression: CEL expression of the message.
        after_mutation: whether it only checks what the mutating policy of the rule has done. In mode Warn there is no
            such policy, so the check would warn about every object that the rule would change.
    """

    expression: str
    message: str
    message_expression: str = ""
    after_mutation: bool = False

    def wire(self) -> dict[str, str]:
        """Return the item of ``validations``."""
        computed = {"messageExpression": self.message_expression} if self.message_expression else {}
        return {"expression": self.expression, "message": self.message, **computed, "reason": "Forbidden"}


class PolicyDocuments:
    """Collects the documents of the converted rules, and warnings.

    Args:
        spec: the PlacementAdmission's spec.
        exempt: namespaces to which no policy applies, in addition to kube-system and those of the spec.
    """

    def __init__(self, spec: PlacementAdmissionSpec, exempt: Iterable[str]) -> None:
        self.documents: list[dict[str, Any]] = []
        self.warnings: list[FieldError] = []
        self.warn_only = spec.mode == "Warn"
        self._of_rule: list[dict[str, Any]] = []
        names = sorted({KUBE_SYSTEM, *exempt, *spec.exempt_namespaces})
        self._selector = {
            "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": names}]
        }

    def warn(self, field: str, message: str) -> None:
        """Add a warning about a field of the spec."""
        self.warnings.append(FieldError(f"spec.{field}", message))

    def converted(self, field: str, *differences: str) -> None:
        """Add the documents of a rule, and warn about differences and that the user must remove the rule.

        If the API server would not compile an expression, the rule is not converted.
        """
        documents, self._of_rule = self._of_rule, []
        policies = [each for each in documents if each["kind"] in (_VALIDATING, _MUTATING)]
        name, length = max(_lengths(policies), key=lambda each: each[1], default=("", 0))
        if length > MAX_EXPRESSION:
            self.warn(
                field,
                f"is not converted: its CEL expression {name} would have {length} characters, and kube-apiserver "
                f"compiles no expression with more than {MAX_EXPRESSION}. Shorten its lists, or keep the rule in the "
                "PlacementAdmission",
            )
            return
        self.documents += documents
        for each in differences:
            self.warn(field, each)
        ignoring = (each["kind"] == _VALIDATING and each["spec"]["failurePolicy"] == "Ignore" for each in policies)
        if any(ignoring) and not self.warn_only:
            self.warn(
                field,
                "with failurePolicy Ignore, the policy admits requests for which an expression exceeds the cost limit "
                "of kube-apiserver, for example a pod with thousands of node affinity terms",
            )
        self.warn(field, "remove it from the PlacementAdmission once the policies are applied, or it applies twice")

    def validating(
        self,
        rule: str,
        failure_policy: FailurePolicy,
        resources: Sequence[Mapping[str, Any]],
        conditions: Sequence[Mapping[str, str]],
        variables: Variables,
        validations: Iterable[Validation],
    ) -> None:
        """Add a ValidatingAdmissionPolicy and its binding.

        Args:
            rule: name of the rule.
            failure_policy: what happens if an expression cannot be evaluated.
            resources: the resources and operations, see :func:`resources_of`.
            conditions: match conditions, which cannot use variables.
            variables: variables of the expressions.
            validations: the checks.
        """
        spec = self._match(failure_policy, resources, conditions, variables)
        kept = (each for each in validations if not (each.after_mutation and self.warn_only))
        spec["validations"] = [each.wire() for each in kept]
        actions = {"validationActions": ["Warn", "Audit"] if self.warn_only else ["Deny"]}
        self._add(_VALIDATING, rule, spec, actions)

    def mutating(
        self,
        rule: str,
        failure_policy: FailurePolicy,
        resources: Sequence[Mapping[str, Any]],
        conditions: Sequence[Mapping[str, str]],
        variables: Variables,
        patches: Iterable[str],
    ) -> None:
        """Add a MutatingAdmissionPolicy and its binding, see :meth:`validating`. ``patches`` are lists of JSONPatch."""
        if self.warn_only:
            field = rule[:1].lower() + rule[1:]
            self.warn(
                field,
                "its changes are not converted, because mode is Warn and Kubernetes cannot warn of changes. Remove "
                "spec.mode and convert the PlacementAdmission again to enforce the rule",
            )
            return
        spec = self._match(failure_policy, resources, conditions, variables)
        spec["reinvocationPolicy"] = "IfNeeded"
        spec["mutations"] = [{"patchType": "JSONPatch", "jsonPatch": {"expression": each}} for each in patches]
        self._add(_MUTATING, rule, spec, {})

    def _match(
        self,
        failure_policy: FailurePolicy,
        resources: Sequence[Mapping[str, Any]],
        conditions: Sequence[Mapping[str, str]],
        variables: Variables,
    ) -> dict[str, Any]:
        """Return the fields that the specs of both kinds of policies have."""
        return {
            "failurePolicy": failure_policy,
            "matchConstraints": {"namespaceSelector": self._selector, "resourceRules": list(resources)},
            "matchConditions": list(conditions),
            "variables": [{"name": name, "expression": text} for name, text in variables.items()],
        }

    def _add(self, kind: str, rule: str, spec: Mapping[str, Any], binding: Mapping[str, Any]) -> None:
        name = PREFIX + "".join(f"-{each.lower()}" if each.isupper() else each for each in rule).removeprefix("-")
        self._of_rule += (
            {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": dict(spec)},
            {
                "apiVersion": API_VERSION,
                "kind": f"{kind}Binding",
                "metadata": {"name": name},
                "spec": {"policyName": name, **binding},
            },
        )


def _lengths(policies: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    """Yield the names of the CEL expressions of policies and their numbers of characters."""
    for policy in policies:
        spec = policy["spec"]
        for each in (*spec["variables"], *spec["matchConditions"]):
            yield each["name"], len(each["expression"])
        for each in spec.get("validations", ()):
            yield each["message"], max(len(each["expression"]), len(each.get("messageExpression", "")))
        for each in spec.get("mutations", ()):
            yield "of a mutation", len(each["jsonPatch"]["expression"])


def resources_of(
    *wanted: tuple[str, Sequence[str]], operations: Sequence[str] = (CREATE, UPDATE)
) -> list[dict[str, Any]]:
    """Return the resource rules of a policy. ``wanted`` are API groups and their resources."""
    return [
        {
            "apiGroups": [group],
            "apiVersions": ["v1"],
            "operations": list(operations),
            "resources": list(resources),
            "scope": "Namespaced",
        }
        for group, resources in wanted
    ]

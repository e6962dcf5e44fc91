"""Which requests may concern a rule of a PlacementAdmission, and which webhook applies the rule to them.

    rule_scopes(spec)                        # the scope of each rule
    shared_rules(spec)                       # the rules with Ignore that the server applies at /mutate/fail, too
    joined_rules(spec)                       # those that need no webhook of their own, because of that
    scopes_of_webhook(spec, MUTATE, "Fail")  # the rules for which the webhook mutate-fail is registered

The reviewer of requests does not depend on which webhooks are registered: the API server and the replicas learn of a
change of the PlacementAdmission at different times.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from itertools import takewhile
from typing import Final, Literal

from msgspec import Struct

from trimtab.api.placement_admission import (
    DAEMON_SETS,
    EPHEMERAL_CONTAINERS,
    NODE_AFFINITY,
    TOLERATIONS,
    TOPOLOGY_KEYS,
    FailurePolicy,
    PlacementAdmissionSpec,
    RuleName,
)

Stage = Literal["mutate", "validate", "warn"]
MUTATE: Final = "mutate"
VALIDATE: Final = "validate"
WARN: Final = "warn"


class Scope(StrEnum):
    """A set of resources whose requests may concern a rule."""

    PODS = "pods"
    TEMPLATES = "pod templates of workloads other than DaemonSets"
    DAEMON_SETS = "pod templates of DaemonSets"
    EPHEMERAL_CONTAINERS = "pods/ephemeralcontainers"
    REVIEWS = "reviews of pod templates in OpenShift"


class RuleScope(Struct, frozen=True):
    """Which requests may concern a rule.

    Attributes:
        rule: the rule.
        failure_policy: failure policy of the rule.
        mutates: the resources that it may change.
        validates: the resources that it may refuse.
        concerns_pod: CEL expression that is true if the rule may change or refuse a pod; ``""`` for all pods.
    """

    rule: RuleName
    failure_policy: FailurePolicy
    mutates: frozenset[Scope] = frozenset()
    validates: frozenset[Scope] = frozenset()
    concerns_pod: str = ""

    def resources(self, stage: Stage) -> frozenset[Scope]:
        """Return the resources for which a webhook calls the rule."""
        return {MUTATE: self.mutates, VALIDATE: self.validates}.get(stage, frozenset())


_PODS: Final = frozenset({Scope.PODS})
_ALL_TEMPLATES: Final = frozenset({Scope.PODS, Scope.TEMPLATES, Scope.DAEMON_SETS})


def rule_scopes(spec: PlacementAdmissionSpec) -> list[RuleScope]:
    """Return the scope of each configured rule."""
    found: list[RuleScope] = []
    if (constraints := spec.pod_node_constraints) is not None:
        checks = constraints.additional_checks
        validates = frozenset({Scope.PODS, Scope.TEMPLATES, Scope.REVIEWS})
        validates |= {Scope.DAEMON_SETS} if DAEMON_SETS in checks else set()
        validates |= {Scope.EPHEMERAL_CONTAINERS} if EPHEMERAL_CONTAINERS in checks else set()
        fields = ["nodeName", "nodeSelector"]
        fields += ["affinity"] if {NODE_AFFINITY, TOPOLOGY_KEYS} & set(checks) else []
        fields += ["topologySpreadConstraints"] if TOPOLOGY_KEYS in checks else []
        fields += ["tolerations"] if TOLERATIONS in checks else []
        found.append(
            RuleScope(
                "PodNodeConstraints", constraints.failure_policy, validates=validates, concerns_pod=_has_any(fields)
            )
        )
    if (selector := spec.pod_node_selector) is not None:
        found.append(RuleScope("PodNodeSelector", selector.failure_policy, _PODS, _PODS))
    if (seconds := spec.default_toleration_seconds) is not None:
        found.append(RuleScope("DefaultTolerationSeconds", seconds.failure_policy, _PODS))
    if (restriction := spec.pod_toleration_restriction) is not None:
        found.append(RuleScope("PodTolerationRestriction", restriction.failure_policy, _PODS, _PODS))
    if (extended := spec.extended_resource_toleration) is not None:
        found.append(
            RuleScope(
                "ExtendedResourceToleration", extended.failure_policy, _PODS, concerns_pod=_REQUESTS_EXTENDED_RESOURCE
            )
        )
    if (dedicated := spec.dedicated_nodes) is not None:
        validates = _ALL_TEMPLATES | {Scope.EPHEMERAL_CONTAINERS}
        found.append(RuleScope("DedicatedNodes", dedicated.failure_policy, _ALL_TEMPLATES, validates))
    if (hardware := spec.special_hardware) is not None:
        exclusive = any(each.exclusive for each in hardware.classes)
        validates = _ALL_TEMPLATES if exclusive else frozenset()
        found.append(RuleScope("SpecialHardware", hardware.failure_policy, _PODS | {Scope.DAEMON_SETS}, validates))
    return found


def shared_rules(spec: PlacementAdmissionSpec) -> frozenset[RuleName]:
    """Return the rules with failure policy Ignore that the server applies at ``/mutate/fail``, after those with Fail.

    They refuse nothing: not even a failure of such a rule refuses a request. The server also applies them at
    ``/mutate/ignore``, where they then change nothing.

    The rules with Ignore keep their order, on which their changes depend. A rule that refuses nothing is therefore not
    shared if one that may refuse requests precedes it: that one has a webhook of its own, which is called later. If no
    rule with Fail changes anything, the API server calls ``/mutate/fail`` only until it learns of the configuration.

    In mode Warn, no rule is shared. Nothing is changed there, so both webhooks would warn of a change and count it.
    """
    if spec.mode == "Warn":
        return frozenset()
    fail, ignore = _mutating(spec, "Fail"), _mutating(spec, "Ignore")
    shared = takewhile(_refuses_nothing, ignore) if fail else filter(_refuses_nothing, ignore)
    return frozenset(each.rule for each in shared)


def joined_rules(spec: PlacementAdmissionSpec) -> frozenset[RuleName]:
    """Return the rules with failure policy Ignore for which the mutating webhook with Fail is registered.

    These are all of them or none: the API server would call a further webhook for each pod, and then the first one
    again. They are shared, and may only concern requests for which the API server calls the webhook with Fail anyway,
    so no further request is refused if the server does not respond.
    """
    fail, ignore, shared = _mutating(spec, "Fail"), _mutating(spec, "Ignore"), shared_rules(spec)
    if all(each.concerns_pod for each in fail):  # it is called for the pods only that one of its rules concerns
        return frozenset()
    covered = frozenset[Scope]().union(*(each.mutates for each in fail))
    joined = all(each.rule in shared and each.mutates <= covered for each in ignore)
    return shared if joined else frozenset()


def scopes_of_webhook(spec: PlacementAdmissionSpec, stage: Stage, failure_policy: FailurePolicy) -> list[RuleScope]:
    """Return the scopes of the rules for which a webhook is registered."""
    joined = joined_rules(spec) if stage == MUTATE else frozenset()
    return [
        each
        for each in rule_scopes(spec)
        if each.resources(stage) and failure_policy == ("Fail" if each.rule in joined else each.failure_policy)
    ]


def _mutating(spec: PlacementAdmissionSpec, failure_policy: FailurePolicy) -> list[RuleScope]:
    return [each for each in rule_scopes(spec) if each.mutates and each.failure_policy == failure_policy]


def _refuses_nothing(scope: RuleScope) -> bool:
    return not scope.validates


def _has_any(fields: Iterable[str]) -> str:
    """Return a CEL expression that is true if the pod has one of the fields, or had one before an update."""
    fields = list(fields)
    now = " || ".join(f"has(object.spec.{each})" for each in fields)
    before = " || ".join(f"has(oldObject.spec.{each})" for each in fields)
    return f"{now} || (request.operation == 'UPDATE' && ({before}))"


def _requesting(containers: str) -> str:
    extended = "has(c.resources) && has(c.resources.requests) && c.resources.requests.exists(r, r.contains('/'))"
    return f"(has(object.spec.{containers}) && object.spec.{containers}.exists(c, {extended}))"


_REQUESTS_EXTENDED_RESOURCE: Final = f"{_requesting('containers')} || {_requesting('initContainers')}"

"""Arguments of kube-scheduler's plugins in a profile: default topology spread constraints and added node affinity.

    profile:
      podTopologySpread:
        defaultingType: List
        defaultConstraints:
        - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions: [{key: pool, operator: In, values: [batch]}]

The fields have the names and the meaning of ``PodTopologySpreadArgs`` and ``NodeAffinityArgs`` of
kubescheduler.config.k8s.io/v1 (Kubernetes v1.36), and :mod:`trimtab.api.rules` applies its validation.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from trimtab.api.base import ATOMIC, PositiveInt, Rule, Spec, bounded, doc, list_map
from trimtab.kube.objects import (
    LabelRequirement,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PreferredNodeTerm,
    TopologySpread,
)

LABEL_KEY: Final = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
LabelKey = Annotated[str, Meta(description="Key of a node label.", min_length=1, max_length=317, pattern=LABEL_KEY)]
LabelValue = Annotated[str, Meta(max_length=63)]

MAX_CONSTRAINTS: Final = 8
MAX_TERMS: Final = 16
MAX_EXPRESSIONS: Final = 16
MAX_VALUES: Final = 64

SYSTEM: Final = "System"
LIST: Final = "List"

LIST_OF_TYPE: Final = "are only valid with defaultingType List"
MIN_DOMAINS_OF_HARD: Final = "is only valid with whenUnsatisfiable DoNotSchedule"
VALUES_OF_OPERATOR: Final = "In and NotIn need values, Gt and Lt one integer; Exists and DoesNotExist take none"
SOME_REQUIREMENT: Final = "matches no node: it has neither matchExpressions nor matchFields"

InclusionPolicy = Literal["Honor", "Ignore"]


class DefaultConstraint(Spec, frozen=True):
    """A default topology spread constraint for pods that do not define any.

    A default constraint has no labelSelector. Instead, the constraint counts the pods that the Services and the
    controller of the pod select.
    """

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!has(self.minDomains) || self.whenUnsatisfiable == 'DoNotSchedule'",
            message=MIN_DOMAINS_OF_HARD,
            field_path=".minDomains",
            reason="FieldValueForbidden",
        ),
    )

    max_skew: Annotated[
        PositiveInt,
        doc(
            "Maximum allowed difference between the number of pods in a topology domain and the minimum number of pods "
            "in any domain."
        ),
    ]
    topology_key: Annotated[LabelKey, doc("Key of the node label whose values define the topology domains.")]
    when_unsatisfiable: Annotated[
        Literal["DoNotSchedule", "ScheduleAnyway"],
        doc(
            "Whether pods can be scheduled to nodes on which they violate the constraint. DoNotSchedule excludes such "
            "nodes. ScheduleAnyway gives such nodes a lower score."
        ),
    ]
    min_domains: Annotated[
        PositiveInt | None,
        doc(
            "Minimum number of eligible topology domains. If there are fewer domains, the global minimum of pods per "
            "domain is treated as 0. Only valid if whenUnsatisfiable is DoNotSchedule."
        ),
    ] = None
    node_affinity_policy: Annotated[
        InclusionPolicy,
        doc(
            "How the pod's node affinity affects the calculation of the skew. Honor includes only nodes that match the "
            "pod's node selector and required node affinity. Ignore includes all nodes."
        ),
    ] = "Honor"
    node_taints_policy: Annotated[
        InclusionPolicy,
        doc(
            "How node taints affect the calculation of the skew. Honor excludes nodes with taints that the pod does "
            "not tolerate. Ignore includes nodes regardless of their taints."
        ),
    ] = "Ignore"

    def compile(self) -> TopologySpread:
        """Return the constraint as filters evaluate it, but with no selector: that depends on the pod."""
        return TopologySpread(
            self.max_skew,
            self.topology_key,
            self.when_unsatisfiable,
            min_domains=self.min_domains,
            node_affinity_policy=self.node_affinity_policy,
            node_taints_policy=self.node_taints_policy,
        )


class PodTopologySpreadArgs(Spec, frozen=True):
    """Default topology spread constraints for pods that do not define any (PodTopologySpreadArgs)."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.defaultingType == 'List' || !has(self.defaultConstraints) "
            "|| self.defaultConstraints.size() == 0",
            message=LIST_OF_TYPE,
            field_path=".defaultConstraints",
            reason="FieldValueForbidden",
        ),
    )

    defaulting_type: Annotated[
        Literal["System", "List"],
        doc(
            "Source of the default constraints. System uses the defaults of kube-scheduler, which spread pods across "
            "hosts (maxSkew 3) and zones (maxSkew 5) with whenUnsatisfiable ScheduleAnyway. List uses the constraints "
            "in defaultConstraints, which may be empty."
        ),
    ] = "System"
    default_constraints: Annotated[
        tuple[DefaultConstraint, ...],
        bounded(
            "Default constraints for pods that a Service selects or that a ReplicationController, ReplicaSet or "
            "StatefulSet controls. Only valid if defaultingType is List.",
            limit=MAX_CONSTRAINTS,
            **list_map("topologyKey", "whenUnsatisfiable"),
        ),
    ] = ()


class NodeRequirement(Spec, frozen=True):
    """A requirement on a node label."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.operator in ['Exists', 'DoesNotExist'] ? !has(self.values) || self.values.size() == 0 : "
            "has(self.values) && (self.operator in ['Gt', 'Lt'] ? self.values.size() == 1 && "
            "self.values[0].matches('^-?[0-9]{1,18}$') : self.values.size() > 0)",
            message=VALUES_OF_OPERATOR,
            field_path=".values",
        ),
    )

    key: Annotated[LabelKey, doc("Key of the node label that the requirement applies to.")]
    operator: Annotated[
        Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
        doc(
            "Relationship of the label to the values. Valid operators are In, NotIn, Exists, DoesNotExist, Gt and Lt. "
            "Gt and Lt compare the value of the label with a single integer."
        ),
    ]
    values: Annotated[
        tuple[LabelValue, ...],
        bounded(
            "Values to compare with the value of the label. In and NotIn require at least one value, and Gt and Lt "
            "require exactly one integer. Must be empty if operator is Exists or DoesNotExist.",
            limit=MAX_VALUES,
            **ATOMIC,
        ),
    ] = ()

    def compile(self) -> LabelRequirement:
        """Return the requirement in the form that filters evaluate."""
        return LabelRequirement(self.key, self.operator, self.values)


class NodeFieldRequirement(Spec, frozen=True):
    """A requirement on a node's name."""

    key: Annotated[
        Literal["metadata.name"],
        doc("Field of the node that the requirement applies to. Only metadata.name is supported."),
    ]
    operator: Annotated[
        Literal["In", "NotIn"],
        doc(
            "How the node's name is compared with the name in values. In matches only the node with this name. NotIn "
            "matches all other nodes."
        ),
    ]
    values: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=253)], ...],
        Meta(
            description="List with the name of the node as its only item.",
            min_length=1,
            max_length=1,
            extra_json_schema=ATOMIC,
        ),
    ]

    def compile(self) -> LabelRequirement:
        """Return the requirement in the form that filters evaluate."""
        return LabelRequirement(self.key, self.operator, self.values)


class NodeTerm(Spec, frozen=True):
    """A node selector term. A node matches the term if it meets all of its requirements."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="(has(self.matchExpressions) && self.matchExpressions.size() > 0) || "
            "(has(self.matchFields) && self.matchFields.size() > 0)",
            message=SOME_REQUIREMENT,
        ),
    )

    match_expressions: Annotated[
        tuple[NodeRequirement, ...], bounded("Requirements on the labels of the node.", limit=MAX_EXPRESSIONS, **ATOMIC)
    ] = ()
    match_fields: Annotated[
        tuple[NodeFieldRequirement, ...],
        bounded("Requirements on the name of the node.", limit=MAX_EXPRESSIONS, **ATOMIC),
    ] = ()

    def compile(self) -> NodeSelectorTerm:
        """Return the term in the form that filters evaluate."""
        return NodeSelectorTerm(
            tuple(each.compile() for each in self.match_expressions),
            tuple(each.compile() for each in self.match_fields),
        )


class RequiredNodeTerms(Spec, frozen=True):
    """Node selector terms. They are ORed: a node must match at least one."""

    node_selector_terms: Annotated[
        tuple[NodeTerm, ...],
        bounded(
            "Node selector terms. The terms are ORed: a node must match at least one of them.",
            limit=MAX_TERMS,
            least=1,
            **ATOMIC,
        ),
    ]


class PreferredTerm(Spec, frozen=True):
    """A node selector term with a weight. The weight is added to the score of nodes that match the term."""

    weight: Annotated[
        int, Meta(ge=1, le=100, description="Weight that is added to the score of nodes that match the term.")
    ]
    preference: Annotated[NodeTerm, doc("Node selector term that the weight applies to.")]


class AddedAffinity(Spec, frozen=True):
    """Node affinity that is applied to every pod of the scheduler (NodeAffinityArgs.addedAffinity).

    A pod that requires a certain node, for example a DaemonSet pod, stays pending if the node does not match.
    """

    required_during_scheduling_ignored_during_execution: Annotated[
        RequiredNodeTerms | None,
        doc(
            "Required node selector terms. Pods of this scheduler run only on nodes that match at least one of the "
            "terms."
        ),
    ] = None
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredTerm, ...],
        bounded(
            "Preferred node selector terms. The weight of each term is added to the score of nodes that match the "
            "term.",
            limit=MAX_TERMS,
            **ATOMIC,
        ),
    ] = ()

    def compile(self) -> NodeAffinity:
        """Return the affinity in the form that filters and scores evaluate."""
        required = self.required_during_scheduling_ignored_during_execution
        return NodeAffinity(
            None if required is None else NodeSelector(tuple(each.compile() for each in required.node_selector_terms)),
            tuple(
                PreferredNodeTerm(each.weight, each.preference.compile())
                for each in self.preferred_during_scheduling_ignored_during_execution
            ),
        )

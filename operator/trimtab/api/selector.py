"""metav1.LabelSelector as users write it in a custom resource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, field

from trimtab.api.base import Rule, Spec, bounded, doc
from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects import LabelRequirement
from trimtab.kube.objects import LabelSelector as KubeSelector

LabelValue = Annotated[str, Meta(max_length=63)]
Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]


class Requirement(Spec, frozen=True):
    """One expression on a label."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            message="In and NotIn need values; Exists and DoesNotExist take none",
            field_path=".values",
        ),
    )

    key: Annotated[str, bounded("The label's key.", least=1, limit=317)]
    operator: Annotated[Operator, doc("How the label's value relates to values.")]
    values: Annotated[
        tuple[LabelValue, ...],
        bounded("The values for In and NotIn; none for Exists and DoesNotExist.", limit=64),
    ] = ()


class Selector(Spec, frozen=True):
    """Labels that must match; an empty selector matches everything."""

    match_labels: Annotated[
        Mapping[str, LabelValue], bounded("Labels that must be there with just these values.", limit=32)
    ] = field(default_factory=dict)
    match_expressions: Annotated[
        tuple[Requirement, ...],
        bounded("Expressions all of which must hold.", limit=32, **{"x-kubernetes-list-type": "atomic"}),
    ] = ()

    def compile(self) -> KubeSelector:
        """The selector as the value that :mod:`trimtab.kube.rules.selectors` matches with."""
        return KubeSelector(
            match_labels=FrozenMap(self.match_labels),
            match_expressions=tuple(
                LabelRequirement(key=item.key, operator=item.operator, values=item.values)
                for item in self.match_expressions
            ),
        )

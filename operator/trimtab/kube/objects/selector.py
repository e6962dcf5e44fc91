"""Label selectors and node selector terms as values; how they match is in :mod:`trimtab.kube.rules.selectors`."""

from __future__ import annotations

from msgspec import Struct

from trimtab.kube.frozen import NO_LABELS, Labels


class LabelRequirement(Struct, frozen=True, gc=False):
    """One expression. Operators: In, NotIn, Exists, DoesNotExist; on nodes also Gt and Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Struct, frozen=True, gc=False):
    """metav1.LabelSelector; empty matches everything, a nil one (``None`` where it is used) matches nothing."""

    match_labels: Labels = NO_LABELS
    match_expressions: tuple[LabelRequirement, ...] = ()


class NodeSelectorTerm(Struct, frozen=True, gc=False):
    """Expressions on labels and on fields (only ``metadata.name``), all of which must hold; empty matches no node."""

    match_expressions: tuple[LabelRequirement, ...] = ()
    match_fields: tuple[LabelRequirement, ...] = ()


class NodeSelector(Struct, frozen=True, gc=False):
    """Terms of which one must hold."""

    terms: tuple[NodeSelectorTerm, ...] = ()

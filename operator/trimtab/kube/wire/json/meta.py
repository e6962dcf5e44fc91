"""apimachinery's meta/v1, and what several kinds of core/v1 have in common."""

from __future__ import annotations

from trimtab.kube.wire.json.base import Message, Quantities, Time


class OwnerReference(Message):
    """metav1.OwnerReference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Message):
    """metav1.ObjectMeta."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []


class Requirement(Message):
    """metav1.LabelSelectorRequirement and core/v1 NodeSelectorRequirement."""

    key: str = ""
    operator: str = ""
    values: list[str] = []


class LabelSelector(Message):
    """metav1.LabelSelector."""

    match_labels: dict[str, str] = {}
    match_expressions: list[Requirement] = []


class NodeSelectorTerm(Message):
    """core/v1 NodeSelectorTerm."""

    match_expressions: list[Requirement] = []
    match_fields: list[Requirement] = []


class NodeSelector(Message):
    """core/v1 NodeSelector."""

    node_selector_terms: list[NodeSelectorTerm] = []


class Condition(Message):
    """A condition of a pod."""

    type: str = ""
    status: str = ""
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class ResourceRequirements(Message):
    """core/v1 ResourceRequirements."""

    limits: Quantities = {}
    requests: Quantities = {}

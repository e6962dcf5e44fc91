"""The CustomResourceDefinitions of trimtab, generated from the types.

The API server silently prunes unknown fields unless the client asks for strict validation, so a misspelt strategy would
be dropped. Therefore ``spec.strategies`` and each ``params`` preserve unknown fields
(``x-kubernetes-preserve-unknown-fields``), and a CEL rule compares the number of entries with the number of known
entries. CEL cannot name an unknown entry of an object with properties, so the error message lists the known ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, get_args, get_type_hints

from msgspec import Struct

from trimtab.api.base import GROUP, VERSION, Rule
from trimtab.api.cluster_autoscaler import ClusterAutoscaler
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.descheduling_run import DeschedulingRun
from trimtab.api.history_record import HistoryRecord
from trimtab.api.machine_autoscaler import MachineAutoscaler
from trimtab.api.node_pressure_policy import NodePressurePolicy
from trimtab.api.placement_admission import PlacementAdmission
from trimtab.api.scheduler_policy import SchedulerPolicy
from trimtab.api.schema import Schema, class_description, structural_schema
from trimtab.api.state import state_text
from trimtab.api.strategies import Strategies, Strategy
from trimtab.api.taint_manager import TaintManager


def strategies_schema() -> Schema:
    """Return the schema of ``spec.strategies``: one property per strategy, with its rules."""
    types, schema = strategy_types(), _with_descriptions(structural_schema(Strategies), _HIGH_NODE_UTILIZATION)
    strategies = {name: _strategy(types[name], inner) for name, inner in schema["properties"].items()}
    return _reject_unknown_keys({**schema, "minProperties": 1, "properties": strategies}, what="strategy")


_HIGH_NODE_UTILIZATION: Final = {
    f"HighNodeUtilization.params.nodeResourceUtilizationThresholds.{name}": text
    for name, text in {
        "targetThresholds": "HighNodeUtilization does not support this field. Policies that set it are rejected.",
        "useDeviationThresholds": "HighNodeUtilization does not support this field. Policies that set it to true are "
        "rejected.",
    }.items()
}
"""Descriptions of the fields of LowNodeUtilization's thresholds that HighNodeUtilization rejects."""


def _with_descriptions(schema: Schema, texts: Mapping[str, str]) -> Schema:
    """Return a schema with other descriptions of some fields.

    A type that several fields share has one description. This function replaces it where the fields differ.

    Args:
        schema: the schema of an object.
        texts: the descriptions by path, with dots between the names of nested properties.
    """
    for path, text in texts.items():
        schema = _with_description(schema, path.split("."), text)
    return schema


def _with_description(schema: Schema, path: Sequence[str], text: str) -> Schema:
    if not path:
        return {**schema, "description": text}
    properties = schema["properties"]
    return {**schema, "properties": {**properties, path[0]: _with_description(properties[path[0]], path[1:], text)}}


def _strategy(cls: type[Strategy], schema: Schema) -> Schema:
    params = _reject_unknown_keys(schema["properties"]["params"], what="parameter")
    return _with_rules({**schema, "properties": {**schema["properties"], "params": params}}, _needs(cls))


def _reject_unknown_keys(schema: Schema, *, what: str) -> Schema:
    """Return a schema that rejects unknown keys of an object with a CEL rule.

    The rule applies whatever field validation the client asks for.
    """
    names = tuple(schema["properties"])
    allowed = ", ".join(names)
    given = f"[{', '.join(f'has(self.{name})' for name in names)}].filter(given, given).size()"
    mine = ", ".join(f"has(self.{name}) ? '{name}' : ''" for name in names)
    known = f"[{mine}].filter(name, name != '')"
    # dyn() hides the declared properties from CEL, so that size() counts all entries of the object as sent.
    unknown = Rule(
        rule=f"size(dyn(self)) == {given}",
        message=f"unknown {what}; allowed are {allowed}",
        expression=f"'unknown {what}: %d given, of which known are %s; allowed are {allowed}'"
        f".format([size(dyn(self)), {known}])",
    )
    return _with_rules({**schema, "x-kubernetes-preserve-unknown-fields": True}, [unknown])


def _with_rules(schema: Schema, rules: Iterable[Rule]) -> Schema:
    wired = [*schema.get("x-kubernetes-validations", ()), *(rule.wire() for rule in rules)]
    return {**schema, "x-kubernetes-validations": wired} if wired else schema


def _needs(cls: type[Strategy]) -> list[Rule]:
    """Return the CEL rules for required and mutually exclusive parameters of a strategy."""
    name = cls.__name__
    needs: list[tuple[tuple[str, ...], str]] = [((param,), f"{name}.params.{param} is required") for param in cls.needs]
    if cls.needs_one_of:
        needs.append((cls.needs_one_of, f"{name}.params needs at least one of {', '.join(cls.needs_one_of)}"))
    rules = [
        Rule(
            rule=f"!self.enabled || (has(self.params) && "
            f"({' || '.join(f'has(self.params.{param})' for param in alternatives)}))",
            message=f"{message} where {name} is enabled",
            reason="FieldValueRequired",
        )
        for alternatives, message in needs
    ]
    if cls.at_most_one_of:
        flags = ", ".join(f"has(self.params.{param})" for param in cls.at_most_one_of)
        rules.append(
            Rule(
                rule=f"!has(self.params) || [{flags}].filter(given, given).size() <= 1",
                message=f"{name}.params: {' and '.join(cls.at_most_one_of)} cannot be given together",
                reason="FieldValueForbidden",
            )
        )
    return rules


def strategy_types() -> dict[str, type[Strategy]]:
    """Return the class of each strategy, keyed by the strategy's name in the API."""
    hints = get_type_hints(Strategies)
    found = {}
    for name, attribute in zip(Strategies.__struct_encode_fields__, Strategies.__struct_fields__, strict=True):
        found[name] = next(cls for cls in get_args(hints[attribute]) if issubclass(cls, Strategy))
    return found


_HEADER: Final = "# Generated by `trimtab crds` from operator/trimtab/api. DO NOT EDIT.\n"


class Column(Struct, frozen=True):
    """A column of ``kubectl get``. Columns of type ``date`` are shown as an age."""

    name: str
    path: str
    type: str = "string"
    description: str = ""
    wide: bool = False
    """Whether the column is shown only by ``kubectl get -o wide``."""

    def wire(self) -> dict[str, str | int]:
        """Return the column as an item of ``additionalPrinterColumns``."""
        found: dict[str, str | int] = {
            "name": self.name,
            "type": self.type,
            "jsonPath": self.path,
            "description": self.description,
        }
        return {**found, "priority": 1} if self.wide else found


def _condition_column(type_: str, description: str) -> Column:
    return Column(type_, f'.status.conditions[?(@.type=="{type_}")].status', description=description)


def _state(kind: str) -> Column:
    """Return the column State of a kind, see :mod:`trimtab.api.state`."""
    return Column("State", ".status.state", description=state_text(kind))


def _degraded() -> Column:
    return _condition_column("Degraded", "Whether a problem prevents the operator from fulfilling part of the spec.")


def _permissions() -> Column:
    description = "Whether trimtab's service account lacks permissions that this object requires."
    return Column(
        "PermissionsMissing",
        '.status.conditions[?(@.type=="PermissionsMissing")].status',
        description=description,
        wide=True,
    )


def _age(description: str = "Time since the object was created.") -> Column:
    return Column("Age", ".metadata.creationTimestamp", type="date", description=description)


class Definition(Struct, frozen=True):
    """The parts of a CustomResourceDefinition except for the schema, which is generated from ``type``."""

    kind: str
    plural: str
    short_names: tuple[str, ...]
    type: type[Struct]
    columns: tuple[Column, ...]
    refine: Callable[[Schema], Schema] = dict
    """Adds to the generated schema what the types cannot express."""
    group: str = GROUP
    version: str = VERSION
    namespaced: bool = False
    has_status: bool = True
    by_default: bool = True
    """Whether the kustomize base, and the chart with its default values, install the CRD."""

    @property
    def api_version(self) -> str:
        """Return ``group/version``."""
        return f"{self.group}/{self.version}"

    @property
    def name(self) -> str:
        """Return the name of the CustomResourceDefinition object."""
        return f"{self.plural}.{self.group}"

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the names of the object's parts besides its metadata."""
        return ("spec", "status") if self.has_status else ("spec",)

    @property
    def file_name(self) -> str:
        """Return the file name in ``crds/``, in controller-gen's format."""
        return f"{self.group}_{self.plural}.yaml"


def _with_strategy_rules(schema: Schema) -> Schema:
    spec = schema["properties"]["spec"]
    properties = {**spec["properties"], "strategies": strategies_schema()}
    return {**schema, "properties": {**schema["properties"], "spec": {**spec, "properties": properties}}}


COMMON_TYPOS: Final = {"uneededTime": "unneededTime"}
"""Typos in published examples, with the correct field name."""


def _with_typo_rules(schema: Schema) -> Schema:
    """Return a schema that rejects known typos in ``scaleDown``.

    The API server silently drops unknown fields unless the client asks for strict validation, and the default would
    apply instead of the intended value. Therefore the schema declares each typo as a field for which no value is valid,
    so that the API server always rejects it.
    """
    spec = schema["properties"]["spec"]
    down = spec["properties"]["scaleDown"]
    typos = {
        wrong: {
            "type": "string",
            "description": f"Misspelling of {right}. Objects that set this field are rejected.",
            "maxLength": 64,
            "x-kubernetes-validations": [Rule(rule="false", message=f"is not a valid field; use {right}").wire()],
        }
        for wrong, right in COMMON_TYPOS.items()
    }
    down = {**down, "properties": {**down["properties"], **typos}}
    spec = {**spec, "properties": {**spec["properties"], "scaleDown": down}}
    return {**schema, "properties": {**schema["properties"], "spec": spec}}


_AMOUNTS: Final = {
    f"spec.resourceLimits.{resource}.{bound}": text.format(total)
    for resource, total in {
        "cores": "total number of CPU cores in the cluster",
        "memory": "total memory in the cluster, in GiB (2^30 bytes)",
    }.items()
    for bound, text in {
        "min": "Minimum {}. A node is not removed if the total would fall below this minimum.",
        "max": "Maximum {}. A node is not added if the total would exceed this maximum.",
    }.items()
}
"""Descriptions of ``min`` and ``max`` of both resources, which have one type but different units."""


def _cluster_autoscaler(schema: Schema) -> Schema:
    return _with_typo_rules(_with_descriptions(schema, _AMOUNTS))


_OPENSHIFT: Final = "autoscaling.openshift.io"

DEFINITIONS: Final[tuple[Definition, ...]] = (
    Definition(
        kind="DeschedulerPolicy",
        plural="deschedulerpolicies",
        short_names=("dp",),
        type=DeschedulerPolicy,
        columns=(
            Column("Mode", ".spec.mode", description="Mode of the policy: Simulate, Approve or Act."),
            _state("DeschedulerPolicy"),
            Column(
                "Planned",
                ".status.lastRun.planned",
                type="integer",
                description="Number of evictions that the last cycle planned.",
            ),
            Column(
                "Evicted",
                ".status.evicted",
                type="integer",
                description="Number of pods evicted since the policy was created, including terminated pods that were "
                "deleted. Evictions that were still in progress when their cycle ended are not counted.",
            ),
            Column("Next", ".status.nextRun", description="Time at which the next cycle is due."),
            _condition_column("Ready", "Whether the policy is valid and its last cycle completed."),
            _degraded(),
            Column(
                "Last Run",
                ".status.lastRun.time",
                type="date",
                description="Time since the last cycle started.",
                wide=True,
            ),
            _permissions(),
            _condition_column(
                "Conflicting",
                "Whether the settings of a DeschedulerPolicy conflict with those of the ClusterAutoscaler.",
            ),
            _age("Time since the policy was created."),
        ),
        refine=_with_strategy_rules,
    ),
    Definition(
        kind="DeschedulingRun",
        plural="deschedulingruns",
        short_names=("dr",),
        type=DeschedulingRun,
        columns=(
            Column("Policy", ".spec.plan.policy", description="Name of the DeschedulerPolicy that the run belongs to."),
            Column(
                "Mode",
                ".spec.plan.mode",
                description="Mode of the policy when it made the plan: Simulate, Approve or Act.",
            ),
            Column(
                "Phase",
                ".status.phase",
                description=(
                    "Phase of the run: Simulated, Pending (waiting for approval), Acting, Completed, Expired "
                    "or Interrupted."
                ),
            ),
            Column("Actions", ".spec.plan.planned", type="integer", description="Number of planned evictions."),
            Column(
                "Evicted",
                ".status.evicted",
                type="integer",
                description="Number of pods that the run evicted or deleted.",
            ),
            Column(
                "Kept",
                ".spec.plan.kept",
                type="integer",
                description="Number of pods and nodes for which strategies planned no eviction.",
            ),
            _age("Time since the run was created."),
        ),
    ),
    Definition(
        kind="HistoryRecord",
        plural="historyrecords",
        short_names=("hr",),
        type=HistoryRecord,
        has_status=False,
        columns=(
            Column("From", ".spec.first", description="Time of the first action in the record."),
            Column("To", ".spec.last", description="Time of the last action in the record."),
            Column("Entries", ".spec.count", type="integer", description="Number of actions in the record."),
            _age(),
        ),
    ),
    Definition(
        kind="ClusterAutoscaler",
        plural="clusterautoscalers",
        short_names=("ca",),
        type=ClusterAutoscaler,
        columns=(
            _state("ClusterAutoscaler"),
            Column(
                "Nodes", ".status.lastIteration.nodes", type="integer", description="Number of nodes in the cluster."
            ),
            Column(
                "Pending",
                ".status.lastIteration.pendingPods",
                type="integer",
                description="Number of pending pods, including pods that fit on existing or upcoming nodes. Pods that "
                "their scheduler has not reported as unschedulable are not counted.",
            ),
            Column(
                "Unneeded",
                ".status.lastIteration.unneededNodes",
                type="integer",
                description="Number of unneeded nodes.",
            ),
            Column(
                "Removing",
                ".status.lastIteration.removingNodes",
                type="integer",
                description="Number of nodes that are being removed.",
            ),
            _condition_column(
                "Ready",
                "Whether the spec is valid, the last iteration completed, and (if node groups exist) at least one node "
                "group can be scaled up.",
            ),
            _degraded(),
            Column(
                "Max Nodes",
                ".spec.resourceLimits.maxNodesTotal",
                type="integer",
                description="Maximum number of nodes in the cluster.",
                wide=True,
            ),
            _permissions(),
            _condition_column(
                "Conflicting",
                "Whether the settings of a DeschedulerPolicy conflict with those of the ClusterAutoscaler.",
            ),
            _age(),
        ),
        refine=_cluster_autoscaler,
        group=_OPENSHIFT,
        version="v1",
    ),
    Definition(
        kind="MachineAutoscaler",
        plural="machineautoscalers",
        short_names=("ma",),
        type=MachineAutoscaler,
        columns=(
            Column("Ref Kind", ".spec.scaleTargetRef.kind", description="Kind of the node group."),
            Column("Ref Name", ".spec.scaleTargetRef.name", description="Name of the node group."),
            Column(
                "Min", ".spec.minReplicas", type="integer", description="Minimum number of nodes in the node group."
            ),
            Column(
                "Max", ".spec.maxReplicas", type="integer", description="Maximum number of nodes in the node group."
            ),
            _state("MachineAutoscaler"),
            _condition_column(
                "Ready",
                "Whether the node group exists, belongs to no other MachineAutoscaler, and has the annotations for the "
                "minimum and maximum size.",
            ),
            _permissions(),
            _age(),
        ),
        group=_OPENSHIFT,
        version="v1beta1",
        namespaced=True,
    ),
    Definition(
        kind="TaintManager",
        plural="taintmanagers",
        short_names=("tm",),
        type=TaintManager,
        columns=(
            Column("Mode", ".spec.mode", description="Mode of the taint manager: Observe, EvictPods or TaintAndEvict."),
            _state("TaintManager"),
            Column(
                "Tainted",
                ".status.counts.taintedNodes",
                type="integer",
                description="Number of nodes with NoExecute taints.",
            ),
            Column(
                "Deadlines",
                ".status.counts.podsWithDeadline",
                type="integer",
                description=(
                    "Number of pods that do not tolerate a NoExecute taint of their node, or tolerate it only "
                    "for a limited time."
                ),
            ),
            Column(
                "Next",
                ".status.nextDeadlines[0].due",
                description=(
                    "Earliest deadline of a pod, which may be in the past. The deadline is the time at which "
                    "the pod's tolerationSeconds for a NoExecute taint elapse."
                ),
            ),
            _condition_column("Ready", "Whether the spec is valid and the operator watches nodes and pods."),
            _degraded(),
            _permissions(),
            _age(),
        ),
    ),
    Definition(
        kind="SchedulerPolicy",
        plural="schedulerpolicies",
        short_names=("sp",),
        type=SchedulerPolicy,
        columns=(
            Column(
                "Scheduler",
                ".spec.schedulerName",
                description="The spec.schedulerName of the pods that the policy schedules.",
            ),
            _state("SchedulerPolicy"),
            Column(
                "Active",
                ".status.queue.active",
                type="integer",
                description="Number of pods waiting for a scheduling attempt.",
            ),
            Column(
                "Unschedulable",
                ".status.queue.unschedulable",
                type="integer",
                description="Number of pods that fit on no node.",
            ),
            Column(
                "Bound",
                ".status.counts.scheduled",
                type="integer",
                description="Number of pods bound since the policy was created.",
            ),
            _condition_column("Ready", "Whether the policy is valid and its pods are scheduled."),
            _degraded(),
            _permissions(),
            _condition_column("Conflicting", "Whether another SchedulerPolicy has the same schedulerName."),
            _age(),
        ),
        by_default=False,
    ),
    Definition(
        kind="PlacementAdmission",
        plural="placementadmissions",
        short_names=("pa",),
        type=PlacementAdmission,
        columns=(
            Column("Mode", ".spec.mode", description="Mode of the rules: Enforce or Warn."),
            _state("PlacementAdmission"),
            Column(
                "Mutated",
                ".status.mutated",
                type="integer",
                description="Number of requests that the rules have changed, or would have changed in Enforce mode.",
            ),
            Column(
                "Refused",
                ".status.refused",
                type="integer",
                description=(
                    "Number of requests that the rules have rejected. Rules reject requests only in Enforce mode."
                ),
            ),
            _condition_column("Ready", "Whether the rules are valid and the webhooks are registered."),
            _degraded(),
            _age(),
        ),
        by_default=False,
    ),
    Definition(
        kind="NodePressurePolicy",
        plural="nodepressurepolicies",
        short_names=("npp",),
        type=NodePressurePolicy,
        columns=(
            Column("Mode", ".spec.mode", description="Mode of the policy: Simulate or Act."),
            _state("NodePressurePolicy"),
            _condition_column("Ready", "Whether the policy is valid and the operator watches its nodes."),
            _degraded(),
            _permissions(),
            Column(
                "Nodes",
                ".status.counts.nodes",
                type="integer",
                description="Number of nodes to which the policy applies.",
            ),
            Column(
                "Pressure",
                ".status.counts.underPressure",
                type="integer",
                description="Number of nodes on which an eviction threshold is met or was met recently.",
            ),
            Column(
                "Evicted",
                ".status.counts.evicted",
                type="integer",
                description="Number of pods evicted since the NodePressurePolicy was created.",
            ),
            _age(),
        ),
        by_default=False,
    ),
)


@functools.cache
def object_schema(definition: Definition) -> Schema:
    """Return the ``openAPIV3Schema`` of a CustomResourceDefinition."""
    schema = definition.refine(structural_schema(definition.type))
    root = {
        "apiVersion": {
            "type": "string",
            "description": f"The API version of this object: {definition.api_version}.",
        },
        "kind": {"type": "string", "description": "The kind of this object."},
        "metadata": {"type": "object"},
    }
    properties = {**root, **{name: schema["properties"][name] for name in definition.parts}}
    rules = {key: schema[key] for key in ("x-kubernetes-validations",) if key in schema}
    return {
        "type": "object",
        "description": class_description(definition.type),
        **({"required": ["spec"]} if "spec" in schema.get("required", ()) else {}),
        "properties": properties,
        **rules,
    }


def crd_document(definition: Definition) -> dict[str, Any]:
    """Return the CustomResourceDefinition manifest."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": definition.name, "labels": {"app.kubernetes.io/name": "trimtab"}},
        "spec": {
            "group": definition.group,
            "scope": "Namespaced" if definition.namespaced else "Cluster",
            "names": {
                "kind": definition.kind,
                "listKind": f"{definition.kind}List",
                "plural": definition.plural,
                "singular": definition.kind.lower(),
                "shortNames": list(definition.short_names),
                "categories": ["trimtab"],
            },
            "versions": [
                {
                    "name": definition.version,
                    "served": True,
                    "storage": True,
                    **({"subresources": {"status": {}}} if definition.has_status else {}),
                    "additionalPrinterColumns": [column.wire() for column in definition.columns],
                    "schema": {"openAPIV3Schema": object_schema(definition)},
                }
            ],
        },
    }


def crd_documents(*, by_default: bool = False) -> tuple[dict[str, Any], ...]:
    """Return all CustomResourceDefinitions in a fixed order.

    If ``by_default`` is true, return only those that the chart with its default values installs.
    """
    return tuple(crd_document(each) for each in DEFINITIONS if each.by_default or not by_default)


def crd_files(*, by_default: bool = False) -> dict[str, str]:
    """Return the YAML files of ``crds/``, keyed by file name.

    If ``by_default`` is true, return only those that the chart with its default values installs.
    """
    import yaml

    return {
        definition.file_name: _HEADER
        + yaml.dump(crd_document(definition), Dumper=_plain_dumper(), sort_keys=False, width=120, allow_unicode=True)
        for definition in DEFINITIONS
        if definition.by_default or not by_default
    }


@functools.cache
def _plain_dumper() -> type[Any]:
    """Return a YAML dumper that writes multi-line strings as blocks, and no anchors, which not all tools support."""
    import yaml

    class PlainDumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            del data
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    PlainDumper.add_representer(str, text)
    return PlainDumper

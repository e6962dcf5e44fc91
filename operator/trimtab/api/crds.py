"""The definitions of trimtab's custom resources, made from the types."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from trimtab.api.base import GROUP, VERSION, Rule
from trimtab.api.cluster_autoscaler import ClusterAutoscaler
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.descheduling_run import DeschedulingRun
from trimtab.api.machine_autoscaler import MachineAutoscaler
from trimtab.api.schema import Schema, docstring, structural_schema
from trimtab.api.strategy_schema import strategies_schema
from trimtab.api.taint_manager import TaintManager

_HEADER: Final = "# Made by `trimtab crds` from the types in operator/trimtab/api: change those, not this file.\n"


class Column(Struct, frozen=True):
    """A column of ``kubectl get``; ``date`` columns are shown as an age."""

    name: str
    path: str
    type: str = "string"
    description: str = ""

    def wire(self) -> dict[str, str]:
        """The column as it stands in ``additionalPrinterColumns``."""
        return {"name": self.name, "type": self.type, "jsonPath": self.path, "description": self.description}


class Definition(Struct, frozen=True):
    """What a CustomResourceDefinition says beyond its schema."""

    kind: str
    plural: str
    short_names: tuple[str, ...]
    type: type[Struct]
    columns: tuple[Column, ...]
    refine: Callable[[Schema], Schema] = dict
    """Turns the schema of the types into the one that the API server gets."""
    group: str = GROUP
    version: str = VERSION
    namespaced: bool = False
    installed: bool = True
    """Whether chart and kustomize base install it: what no controller of this version serves they leave out."""

    @property
    def api_version(self) -> str:
        """``group/version``."""
        return f"{self.group}/{self.version}"

    @property
    def name(self) -> str:
        """The definition's own name."""
        return f"{self.plural}.{self.group}"

    @property
    def file_name(self) -> str:
        """The file in ``crds/``, named as controller-gen names them."""
        return f"{self.group}_{self.plural}.yaml"


def _with_strategy_map(schema: Schema) -> Schema:
    spec = schema["properties"]["spec"]
    properties = {**spec["properties"], "strategies": strategies_schema()}
    return {**schema, "properties": {**schema["properties"], "spec": {**spec, "properties": properties}}}


MISSPELT: Final = {"uneededTime": "unneededTime"}
"""Slips that are printed in documents that people copy from, each with what is meant."""


def _with_misspelt_times(schema: Schema) -> Schema:
    """Refuse the known slips of ``scaleDown`` by rule.

    The API server drops fields that it does not know without a word unless the client asks for strictness, and the
    default would apply instead of what was meant. A field that it knows, and that can have no value, is refused always.
    """
    spec = schema["properties"]["spec"]
    down = spec["properties"]["scaleDown"]
    slips = {
        wrong: {
            "type": "string",
            "description": f"Not a field: it is written {right}.",
            "maxLength": 64,
            "x-kubernetes-validations": [Rule(rule="false", message=f"is no field: it is written {right}").wire()],
        }
        for wrong, right in MISSPELT.items()
    }
    down = {**down, "properties": {**down["properties"], **slips}}
    spec = {**spec, "properties": {**spec["properties"], "scaleDown": down}}
    return {**schema, "properties": {**schema["properties"], "spec": spec}}


_OPENSHIFT: Final = "autoscaling.openshift.io"

DEFINITIONS: Final[tuple[Definition, ...]] = (
    Definition(
        kind="DeschedulerPolicy",
        plural="deschedulerpolicies",
        short_names=("dp",),
        type=DeschedulerPolicy,
        columns=(
            Column("Mode", ".spec.mode", description="Simulate, Approve or Act."),
            Column("Last Run", ".status.lastRun.time", type="date", description="When the last cycle started."),
            Column("Evicted", ".status.evicted", type="integer", description="Pods evicted since the policy was made."),
            Column(
                "Ready",
                '.status.conditions[?(@.type=="Ready")].status',
                description="Whether the policy is carried out.",
            ),
            Column("Age", ".metadata.creationTimestamp", type="date", description="Since when the policy exists."),
        ),
        refine=_with_strategy_map,
    ),
    Definition(
        kind="DeschedulingRun",
        plural="deschedulingruns",
        short_names=("dr",),
        type=DeschedulingRun,
        columns=(
            Column("Policy", ".spec.plan.policy", description="The policy whose run it is."),
            Column("Mode", ".spec.plan.mode", description="Simulate, Approve or Act."),
            Column(
                "Phase",
                ".status.phase",
                description="Simulated, Pending (waits for its approval), Acting, Completed, Expired or Interrupted.",
            ),
            Column("Actions", ".spec.plan.planned", type="integer", description="Moves that were planned."),
            Column("Evicted", ".status.evicted", type="integer", description="Pods that were evicted."),
            Column("Kept", ".spec.plan.kept", type="integer", description="Candidates that were left where they are."),
            Column("Age", ".metadata.creationTimestamp", type="date", description="Since when the run exists."),
        ),
    ),
    Definition(
        kind="ClusterAutoscaler",
        plural="clusterautoscalers",
        short_names=("ca",),
        type=ClusterAutoscaler,
        columns=(
            Column("Max Nodes", ".spec.resourceLimits.maxNodesTotal", type="integer", description="Most nodes in all."),
            Column("Nodes", ".status.lastPass.nodes", type="integer", description="Nodes in the cluster."),
            Column("Pending", ".status.lastPass.pendingPods", type="integer", description="Pods that wait for nodes."),
            Column(
                "Ready",
                '.status.conditions[?(@.type=="Ready")].status',
                description="Whether it is carried out.",
            ),
            Column("Age", ".metadata.creationTimestamp", type="date", description="Since when it exists."),
        ),
        refine=_with_misspelt_times,
        group=_OPENSHIFT,
        version="v1",
    ),
    Definition(
        kind="MachineAutoscaler",
        plural="machineautoscalers",
        short_names=("ma",),
        type=MachineAutoscaler,
        columns=(
            Column("Ref Kind", ".spec.scaleTargetRef.kind", description="The target's kind."),
            Column("Ref Name", ".spec.scaleTargetRef.name", description="The target's name."),
            Column("Min", ".spec.minReplicas", type="integer", description="The fewest machines."),
            Column("Max", ".spec.maxReplicas", type="integer", description="The most machines."),
            Column(
                "Ready",
                '.status.conditions[?(@.type=="Ready")].status',
                description="Whether the target has the limits.",
            ),
            Column("Age", ".metadata.creationTimestamp", type="date", description="Since when it exists."),
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
            Column("Mode", ".spec.mode", description="Observe, EarlierOnly or Own."),
            Column(
                "Tainted", ".status.counts.taintedNodes", type="integer", description="Nodes with NoExecute taints."
            ),
            Column(
                "Deadlines",
                ".status.counts.podsWithDeadline",
                type="integer",
                description="Pods whose time on their node is limited.",
            ),
            Column("Next", ".status.nextDeadlines[0].due", description="When the next of them goes."),
            Column(
                "Ready",
                '.status.conditions[?(@.type=="Ready")].status',
                description="Whether it is carried out.",
            ),
            Column("Age", ".metadata.creationTimestamp", type="date", description="Since when it exists."),
        ),
    ),
)


@functools.cache
def object_schema(definition: Definition) -> Schema:
    """The schema of a kind's objects as the API server gets it."""
    schema = definition.refine(structural_schema(definition.type))
    root = {
        "apiVersion": {
            "type": "string",
            "description": f"The version of this representation of the object: {definition.api_version}.",
        },
        "kind": {"type": "string", "description": "The kind of this object."},
        "metadata": {"type": "object"},
    }
    properties = {**root, **{name: schema["properties"][name] for name in ("spec", "status")}}
    rules = {key: schema[key] for key in ("x-kubernetes-validations",) if key in schema}
    return {
        "type": "object",
        "description": docstring(definition.type),
        **({"required": ["spec"]} if "spec" in schema.get("required", ()) else {}),
        "properties": properties,
        **rules,
    }


def crd_document(definition: Definition) -> dict[str, Any]:
    """A CustomResourceDefinition, ready to be applied."""
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
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [column.wire() for column in definition.columns],
                    "schema": {"openAPIV3Schema": object_schema(definition)},
                }
            ],
        },
    }


def crd_documents(*, installed: bool = False) -> tuple[dict[str, Any], ...]:
    """Every definition, in a fixed order; with ``installed`` only those that chart and kustomize base install."""
    return tuple(crd_document(each) for each in DEFINITIONS if each.installed or not installed)


def crd_files(*, installed: bool = False) -> dict[str, str]:
    """The content of ``crds/``: file name to YAML, the same text on every run; with ``installed`` the chart's part."""
    import yaml

    return {
        definition.file_name: _HEADER
        + yaml.dump(crd_document(definition), Dumper=_plain_dumper(), sort_keys=False, width=120, allow_unicode=True)
        for definition in DEFINITIONS
        if definition.installed or not installed
    }


@functools.cache
def _plain_dumper() -> type[Any]:
    """A dumper that repeats shared values, for not every reader knows anchors, and keeps the lines of long texts."""
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

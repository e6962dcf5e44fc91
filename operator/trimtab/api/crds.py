"""The definitions of trimtab's custom resources, made from the types."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from trimtab.api.base import GROUP, VERSION
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.descheduling_run import DeschedulingRun
from trimtab.api.schema import Schema, docstring, structural_schema
from trimtab.api.strategy_schema import strategies_schema

_HEADER: Final = "# Made by `trimtab crds` from the types in operator/trimtab/api: change those, not this file.\n"
_ROOT: Final = {
    "apiVersion": {
        "type": "string",
        "description": f"The version of this representation of the object: {GROUP}/{VERSION}.",
    },
    "kind": {"type": "string", "description": "The kind of this object."},
    "metadata": {"type": "object"},
}


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
    refine: Callable[[Schema], Schema]
    """Turns the schema of the types into the one that the API server gets."""

    @property
    def name(self) -> str:
        """The definition's own name."""
        return f"{self.plural}.{GROUP}"

    @property
    def file_name(self) -> str:
        """The file in ``crds/``, named as controller-gen names them."""
        return f"{GROUP}_{self.plural}.yaml"


def _with_strategy_map(schema: Schema) -> Schema:
    spec = schema["properties"]["spec"]
    properties = {**spec["properties"], "strategies": strategies_schema()}
    return {**schema, "properties": {**schema["properties"], "spec": {**spec, "properties": properties}}}


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
        refine=dict,
    ),
)


@functools.cache
def object_schema(definition: Definition) -> Schema:
    """The schema of a kind's objects as the API server gets it."""
    schema = definition.refine(structural_schema(definition.type))
    properties = {**_ROOT, **{name: schema["properties"][name] for name in ("spec", "status")}}
    rules = {key: schema[key] for key in ("x-kubernetes-validations",) if key in schema}
    return {
        "type": "object",
        "description": docstring(definition.type),
        "required": ["spec"],
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
            "group": GROUP,
            "scope": "Cluster",
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
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [column.wire() for column in definition.columns],
                    "schema": {"openAPIV3Schema": object_schema(definition)},
                }
            ],
        },
    }


def crd_documents() -> tuple[dict[str, Any], ...]:
    """Every definition, in a fixed order."""
    return tuple(crd_document(definition) for definition in DEFINITIONS)


def crd_files() -> dict[str, str]:
    """The content of ``crds/``: file name to YAML, the same text on every run."""
    import yaml

    return {
        definition.file_name: _HEADER
        + yaml.dump(crd_document(definition), Dumper=_plain_dumper(), sort_keys=False, width=120, allow_unicode=True)
        for definition in DEFINITIONS
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

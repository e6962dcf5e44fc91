"""The definitions of MachineSet and Machine, machine.openshift.io/v1beta1, in the shape that OpenShift publishes.

Fields, types, enums, subresources and columns are those of openshift/api (types_machineset.go, types_machine.go,
without what is behind feature gates); the words are ours. Like there, the scale subresource names a field for its
selector that no status has: so nobody finds a set's machines through it, here neither.
"""

from __future__ import annotations

import time
from typing import Any, Final

from trimtab.kube.api import Conflict, NotFound
from trimtab.kube.resources import MACHINE_SETS, MACHINES, Resource
from trimtab.local.client import Client
from trimtab.local.errors import LocalError
from trimtab.local.health import PATIENCE

Schema = dict[str, Any]

DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
APPROVAL: Final = {
    "MachineSet": "https://github.com/openshift/api/pull/1032",
    "Machine": "https://github.com/openshift/api/pull/948",
}
"""OpenShift's approvals, as its own definitions name them."""


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


def _number(description: str, *, bits: int = 32, **more: Any) -> Schema:
    return {"type": "integer", "format": f"int{bits}", "description": description, **more}


def _object(description: str, properties: Schema, *required: str) -> Schema:
    return {
        "type": "object",
        "description": description,
        **({"required": list(required)} if required else {}),
        "properties": properties,
    }


def _list(description: str, items: Schema, **more: Any) -> Schema:
    return {"type": "array", "description": description, "items": items, **more}


def _texts(description: str) -> Schema:
    return {"type": "object", "description": description, "additionalProperties": {"type": "string"}}


def _map_list(description: str, items: Schema, key: str) -> Schema:
    return _list(description, items, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]})


_OWNER: Final = _object(
    "What owns the object.",
    {
        "apiVersion": _text("The owner's API version."),
        "blockOwnerDeletion": {"type": "boolean", "description": "Whether the owner waits for it."},
        "controller": {"type": "boolean", "description": "Whether the owner controls it."},
        "kind": _text("The owner's kind."),
        "name": _text("The owner's name."),
        "uid": _text("The owner's UID."),
    },
    "apiVersion",
    "kind",
    "name",
    "uid",
)

_META: Final = _object(
    "What goes into the metadata of what is made.",
    {
        "annotations": _texts("Annotations."),
        "generateName": _text("The beginning of its name."),
        "labels": _texts("Labels."),
        "name": _text("Its name."),
        "namespace": _text("Its namespace."),
        "ownerReferences": _map_list("Its owners.", _OWNER, "uid"),
    },
)

_TAINT: Final = _object(
    "A taint of the node.",
    {
        "effect": _text("NoSchedule, PreferNoSchedule or NoExecute."),
        "key": _text("The key."),
        "timeAdded": _text("When it was added.", format="date-time"),
        "value": _text("The value."),
    },
    "effect",
    "key",
)

_HOOK: Final = _object(
    "Something that wants to be done before the machine goes on.",
    {
        "name": _text(
            "Unique among the hooks of one kind.",
            minLength=3,
            maxLength=256,
            pattern=r"^([a-zA-Z]|[a-zA-Z][-/a-zA-Z0-9.]*[a-zA-Z0-9])$",
        ),
        "owner": _text("Who takes it away.", minLength=3, maxLength=512),
    },
    "name",
    "owner",
)

_MACHINE_SPEC: Final = _object(
    "The machine that is wanted.",
    {
        "lifecycleHooks": _object(
            "Points at which the machine's end is held.",
            {
                "preDrain": _map_list("Before its node is drained.", _HOOK, "name"),
                "preTerminate": _map_list("Before the machine itself is removed.", _HOOK, "name"),
            },
        ),
        "metadata": {**_META, "description": "What goes into the node's metadata."},
        "providerID": _text("What its provider calls it; equal to the node's."),
        "providerSpec": _object(
            "What the provider has to know.",
            {
                "value": {
                    "type": "object",
                    "description": "In the provider's own form.",
                    "x-kubernetes-preserve-unknown-fields": True,
                }
            },
        ),
        "taints": _list("Taints that the node gets.", _TAINT, **{"x-kubernetes-list-type": "atomic"}),
    },
)

_CONDITION: Final = _object(
    "A condition.",
    {
        "lastTransitionTime": _text("When its status last changed.", format="date-time"),
        "message": _text("In words."),
        "reason": _text("As a code."),
        "severity": _text("How bad it is, where its status is False."),
        "status": _text("True, False or Unknown."),
        "type": _text("Which condition."),
    },
    "lastTransitionTime",
    "status",
    "type",
)

_REFERENCE: Final = _object(
    "The machine's node, once it has joined.",
    {
        name: _text(f"The node's {what}.")
        for name, what in (
            ("apiVersion", "API version"),
            ("fieldPath", "part that is meant"),
            ("kind", "kind"),
            ("name", "name"),
            ("namespace", "namespace, of which it has none"),
            ("resourceVersion", "resource version"),
            ("uid", "UID"),
        )
    },
) | {"x-kubernetes-map-type": "atomic"}

_MACHINE_STATUS: Final = _object(
    "The machine as it is.",
    {
        "addresses": _list(
            "How it is reached.",
            _object("An address.", {"address": _text("The address."), "type": _text("Its kind.")}, "address", "type"),
            **{"x-kubernetes-list-type": "atomic"},
        ),
        "conditions": _map_list("Conditions.", _CONDITION, "type"),
        "errorMessage": _text("What is wrong for good, in words."),
        "errorReason": _text("What is wrong for good, as a code."),
        "lastOperation": _object(
            "What was last done.",
            {
                "description": _text("In words."),
                "lastUpdated": _text("When.", format="date-time"),
                "state": _text("How it stands."),
                "type": _text("Which operation."),
            },
        ),
        "lastUpdated": _text("When the status was last written.", format="date-time"),
        "nodeRef": _REFERENCE,
        "phase": _text("Provisioning, Provisioned, Running, Deleting or Failed."),
        "providerStatus": {
            "type": "object",
            "description": "In the provider's own form.",
            "x-kubernetes-preserve-unknown-fields": True,
        },
    },
)

_SELECTOR: Final = _object(
    "Which machines are the set's; the template's labels must match.",
    {
        "matchExpressions": _list(
            "Requirements.",
            _object(
                "A requirement.",
                {
                    "key": _text("The label."),
                    "operator": _text("In, NotIn, Exists or DoesNotExist."),
                    "values": _list("Values.", {"type": "string"}, **{"x-kubernetes-list-type": "atomic"}),
                },
                "key",
                "operator",
            ),
            **{"x-kubernetes-list-type": "atomic"},
        ),
        "matchLabels": _texts("Labels with their values."),
    },
) | {"x-kubernetes-map-type": "atomic"}

_SET_SPEC: Final = _object(
    "The set that is wanted.",
    {
        "deletePolicy": _text("Which machines go first.", enum=["Random", "Newest", "Oldest"]),
        "minReadySeconds": _number("Seconds that a node has to be ready to count as available."),
        "replicas": _number("How many machines.", default=1),
        "selector": _SELECTOR,
        "template": _object("What machines are made from.", {"metadata": _META, "spec": _MACHINE_SPEC}),
    },
    "selector",
)

_SET_STATUS: Final = _object(
    "The set as it is.",
    {
        "availableReplicas": _number("Machines whose nodes have been ready for minReadySeconds."),
        "conditions": _map_list("Conditions.", _CONDITION, "type"),
        "errorMessage": _text("What keeps it from making machines, in words."),
        "errorReason": _text("What keeps it from making machines, as a code."),
        "fullyLabeledReplicas": _number("Machines that have all labels of the template."),
        "observedGeneration": _number("The generation that was last looked at.", bits=64),
        "readyReplicas": _number("Machines whose nodes are ready."),
        "replicas": _number("Machines that are not being deleted."),
    },
    "replicas",
)


def _column(name: str, path: str, description: str, *, type_: str = "string", priority: int = 0) -> Schema:
    return {
        "name": name,
        "type": type_,
        "jsonPath": path,
        "description": description,
        **({"priority": priority} if priority else {}),
    }


_AGE: Final = _column("Age", ".metadata.creationTimestamp", "Since when it exists.", type_="date")

_SET_COLUMNS: Final = [
    _column("Desired", ".spec.replicas", "Machines that are wanted.", type_="integer"),
    _column("Current", ".status.replicas", "Machines that there are.", type_="integer"),
    _column("Ready", ".status.readyReplicas", "Machines whose nodes are ready.", type_="integer"),
    _column("Available", ".status.availableReplicas", "Machines that are available."),
    _AGE,
]
_LABEL: Final = r".metadata.labels['machine\.openshift\.io/{}']"
_MACHINE_COLUMNS: Final = [
    _column("Phase", ".status.phase", "Where it is in its life."),
    _column("Type", _LABEL.format("instance-type"), "Its type."),
    _column("Region", _LABEL.format("region"), "Its region."),
    _column("Zone", _LABEL.format("zone"), "Its zone."),
    _AGE,
    _column("Node", ".status.nodeRef.name", "Its node.", priority=1),
    _column("ProviderID", ".spec.providerID", "What its provider calls it.", priority=1),
    _column("State", _LABEL.format("instance-state").replace("labels", "annotations"), "Its state.", priority=1),
]


def definition(resource: Resource) -> Schema:
    """The definition of one of the two kinds, ready to be created."""
    is_set = resource == MACHINE_SETS
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.labelSelector",
    }
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": _SET_SPEC if is_set else _MACHINE_SPEC,
        "status": _SET_STATUS if is_set else _MACHINE_STATUS,
    }
    description = "Keeps a number of machines." if is_set else "What becomes a node, or has become one."
    schema = {"type": "object", "description": description, "properties": properties}
    return {
        "apiVersion": DEFINITIONS.api_version,
        "kind": DEFINITIONS.kind,
        "metadata": {
            "name": resource.name,
            "annotations": {"api-approved.openshift.io": APPROVAL[resource.kind]},
        },
        "spec": {
            "group": resource.group,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": _SET_COLUMNS if is_set else _MACHINE_COLUMNS,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}, **({"scale": scale} if is_set else {})},
                }
            ],
        },
    }


def install(client: Client) -> None:
    """Make sure that both kinds are served; definitions that are there are left as they are.

    Raises:
        LocalError: they are not served after two minutes.
    """
    for resource in (MACHINE_SETS, MACHINES):
        try:
            client.request("POST", DEFINITIONS.path(), definition(resource))
        except Conflict:
            continue
    deadline = time.monotonic() + PATIENCE
    for resource in (MACHINE_SETS, MACHINES):
        while not _served(client, resource):
            if time.monotonic() > deadline:
                raise LocalError(f"{resource.name} is not served after {PATIENCE:.0f} s")
            time.sleep(0.1)


def _served(client: Client, resource: Resource) -> bool:
    try:
        client.request("GET", resource.path(), params={"limit": "1"})
    except NotFound:
        return False
    return True

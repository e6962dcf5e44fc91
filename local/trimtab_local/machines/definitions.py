"""The CRDs of MachineSet and Machine, machine.openshift.io/v1beta1, in the shape that OpenShift publishes.

Fields, types, enums, subresources and columns are those of openshift/api (types_machineset.go, types_machine.go,
without fields behind feature gates). The descriptions are written for this project. As in OpenShift, the scale
subresource names a selector field that the status does not have, so no client can find the machines through it.
"""

from __future__ import annotations

import time
from typing import Any, Final

from trimtab.kube.api import Conflict, NotFound
from trimtab.kube.resources import MACHINE_SETS, MACHINES, Resource
from trimtab_local import LocalError
from trimtab_local.client import Client
from trimtab_local.supervisor import PATIENCE

Schema = dict[str, Any]

DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
APPROVAL: Final = {
    "MachineSet": "https://github.com/openshift/api/pull/1032",
    "Machine": "https://github.com/openshift/api/pull/948",
}
"""The approval annotation in OpenShift's own CRDs."""


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
    "An owner reference.",
    {
        "apiVersion": _text("The owner's API version."),
        "blockOwnerDeletion": {
            "type": "boolean",
            "description": "Whether foreground deletion of the owner waits for this object.",
        },
        "controller": {"type": "boolean", "description": "Whether the owner is the managing controller."},
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
    "Metadata of created objects.",
    {
        "annotations": _texts("Annotations."),
        "generateName": _text("Prefix of generated names."),
        "labels": _texts("Labels."),
        "name": _text("The name."),
        "namespace": _text("The namespace."),
        "ownerReferences": _map_list("Owner references.", _OWNER, "uid"),
    },
)

_TAINT: Final = _object(
    "A taint of the node.",
    {
        "effect": _text("NoSchedule, PreferNoSchedule or NoExecute."),
        "key": _text("The key."),
        "timeAdded": _text("The time when the taint was added.", format="date-time"),
        "value": _text("The value."),
    },
    "effect",
    "key",
)

_HOOK: Final = _object(
    "A lifecycle hook, which blocks the deletion of the machine.",
    {
        "name": _text(
            "The name, which is unique among the hooks of a kind.",
            minLength=3,
            maxLength=256,
            pattern=r"^([a-zA-Z]|[a-zA-Z][-/a-zA-Z0-9.]*[a-zA-Z0-9])$",
        ),
        "owner": _text("The owner of the hook, which removes it.", minLength=3, maxLength=512),
    },
    "name",
    "owner",
)

_MACHINE_SPEC: Final = _object(
    "The desired state of the machine.",
    {
        "lifecycleHooks": _object(
            "Hooks that block the deletion of the machine.",
            {
                "preDrain": _map_list("Hooks that block the drain of the node.", _HOOK, "name"),
                "preTerminate": _map_list("Hooks that block the removal of the instance.", _HOOK, "name"),
            },
        ),
        "metadata": {**_META, "description": "Metadata of the node."},
        "providerID": _text("The provider ID, which equals that of the node."),
        "providerSpec": _object(
            "Provider-specific configuration.",
            {
                "value": {
                    "type": "object",
                    "description": "A provider-specific object.",
                    "x-kubernetes-preserve-unknown-fields": True,
                }
            },
        ),
        "taints": _list("Taints of the node.", _TAINT, **{"x-kubernetes-list-type": "atomic"}),
    },
)

_CONDITION: Final = _object(
    "A condition.",
    {
        "lastTransitionTime": _text("The time of the last change of the status.", format="date-time"),
        "message": _text("A message for people."),
        "reason": _text("A reason code."),
        "severity": _text("The severity if the status is False."),
        "status": _text("True, False or Unknown."),
        "type": _text("The type of the condition."),
    },
    "lastTransitionTime",
    "status",
    "type",
)

_REFERENCE: Final = _object(
    "The machine's node, after registration.",
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
    "The observed state of the machine.",
    {
        "addresses": _list(
            "Addresses of the machine.",
            _object(
                "An address.",
                {"address": _text("The address."), "type": _text("The type of the address.")},
                "address",
                "type",
            ),
            **{"x-kubernetes-list-type": "atomic"},
        ),
        "conditions": _map_list("Conditions.", _CONDITION, "type"),
        "errorMessage": _text("A message about a permanent error."),
        "errorReason": _text("The reason code of a permanent error."),
        "lastOperation": _object(
            "The last operation.",
            {
                "description": _text("A message for people."),
                "lastUpdated": _text("The time of the last update.", format="date-time"),
                "state": _text("The state of the operation."),
                "type": _text("The type of the operation."),
            },
        ),
        "lastUpdated": _text("The time of the last status update.", format="date-time"),
        "nodeRef": _REFERENCE,
        "phase": _text("Provisioning, Provisioned, Running, Deleting or Failed."),
        "providerStatus": {
            "type": "object",
            "description": "A provider-specific object.",
            "x-kubernetes-preserve-unknown-fields": True,
        },
    },
)

_SELECTOR: Final = _object(
    "Selects the machines of the MachineSet. The labels of the template must match.",
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
    "The desired state of the MachineSet.",
    {
        "deletePolicy": _text("The order in which machines are deleted.", enum=["Random", "Newest", "Oldest"]),
        "minReadySeconds": _number("Seconds for which a node must be ready to be available."),
        "replicas": _number("Desired number of machines.", default=1),
        "selector": _SELECTOR,
        "template": _object("The template of machines.", {"metadata": _META, "spec": _MACHINE_SPEC}),
    },
    "selector",
)

_SET_STATUS: Final = _object(
    "The observed state of the MachineSet.",
    {
        "availableReplicas": _number("Machines whose nodes have been ready for minReadySeconds."),
        "conditions": _map_list("Conditions.", _CONDITION, "type"),
        "errorMessage": _text("A message about a permanent error."),
        "errorReason": _text("The reason code of a permanent error."),
        "fullyLabeledReplicas": _number("Machines that have all labels of the template."),
        "observedGeneration": _number("The observed generation.", bits=64),
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


_AGE: Final = _column("Age", ".metadata.creationTimestamp", "The creation time.", type_="date")

_SET_COLUMNS: Final = [
    _column("Desired", ".spec.replicas", "Desired number of machines.", type_="integer"),
    _column("Current", ".status.replicas", "Current number of machines.", type_="integer"),
    _column("Ready", ".status.readyReplicas", "Machines whose nodes are ready.", type_="integer"),
    _column("Available", ".status.availableReplicas", "Machines that are available."),
    _AGE,
]
_LABEL: Final = r".metadata.labels['machine\.openshift\.io/{}']"
_MACHINE_COLUMNS: Final = [
    _column("Phase", ".status.phase", "The phase of the machine."),
    _column("Type", _LABEL.format("instance-type"), "The instance type."),
    _column("Region", _LABEL.format("region"), "The region."),
    _column("Zone", _LABEL.format("zone"), "The zone."),
    _AGE,
    _column("Node", ".status.nodeRef.name", "The node.", priority=1),
    _column("ProviderID", ".spec.providerID", "The provider ID.", priority=1),
    _column(
        "State",
        _LABEL.format("instance-state").replace("labels", "annotations"),
        "The state of the instance.",
        priority=1,
    ),
]


def definition(resource: Resource) -> Schema:
    """Return the CRD of one of the two kinds."""
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
    description = "Maintains a number of machines." if is_set else "A machine that provides a node."
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
    """Create the CRDs that do not exist, and wait until the API server serves both kinds.

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

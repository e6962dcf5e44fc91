"""Autoscalers as users write them: the seed's YAML, and what trimtab and the API server must refuse alike."""

from __future__ import annotations

from typing import Any

import msgspec

SEED = """
apiVersion: "autoscaling.openshift.io/v1"
kind: "ClusterAutoscaler"
metadata:
  name: "default"
spec:
  podPriorityThreshold: -10
  resourceLimits:
    maxNodesTotal: 24
    cores:
      min: 8
      max: 128
    memory:
      min: 4
      max: 256
    gpus:
      - type: nvidia.com/gpu
        min: 0
        max: 16
      - type: amd.com/gpu
        min: 0
        max: 4
  scaleDown:
    enabled: true
    delayAfterAdd: 10m
    delayAfterDelete: 5m
    delayAfterFailure: 30s
    unneededTime: 5m
"""
"""The definition that OpenShift's documentation prints, without its callouts."""

EVERYTHING = """
podPriorityThreshold: 0
resourceLimits:
  maxNodesTotal: 0
  cores: {min: 0, max: 0}
  memory: {min: 4, max: 4}
  gpus: [{type: nvidia.com/gpu, min: 1, max: 1}]
scaleDown:
  enabled: false
  delayAfterAdd: 1h30m
  delayAfterDelete: 0s
  delayAfterFailure: 1.5h
  unneededTime: 500ms
  utilizationThreshold: "0.4"
  cordonNodeBeforeTerminating: Disabled
  unreadyTime: 20m
  gpuUtilizationThreshold: "0.75"
scaleUp: {newPodScaleUpDelay: 10s, bypassedSchedulers: [other]}
maxPodGracePeriod: 60
maxNodeProvisionTime: 15m
balanceSimilarNodeGroups: true
balancingIgnoredLabels: [topology.ebs.csi.aws.com/zone]
ignoreDaemonsetsUtilization: true
skipNodesWithLocalStorage: false
expanders: [Priority, LeastWaste, Random]
enforceNodeGroupMinSize: Enabled
startupTaints: [example.com/starting]
logVerbosity: 4
mode: Simulate
"""


def seed() -> dict[str, Any]:
    loaded = msgspec.yaml.decode(SEED)
    assert isinstance(loaded, dict)
    return loaded


def cluster_autoscaler(spec: dict[str, Any] | str | None, *, name: str = "default") -> dict[str, Any]:
    """A ClusterAutoscaler with that spec, which may be YAML; ``None`` for none."""
    manifest: dict[str, Any] = {
        "apiVersion": "autoscaling.openshift.io/v1",
        "kind": "ClusterAutoscaler",
        "metadata": {"name": name},
    }
    return manifest if spec is None else {**manifest, "spec": _plain(spec)}


def machine_autoscaler(spec: dict[str, Any] | str, *, name: str = "workers-a") -> dict[str, Any]:
    """A MachineAutoscaler with that spec, which may be YAML."""
    return {
        "apiVersion": "autoscaling.openshift.io/v1beta1",
        "kind": "MachineAutoscaler",
        "metadata": {"name": name, "namespace": "default"},
        "spec": _plain(spec),
    }


def _plain(spec: dict[str, Any] | str) -> Any:
    return msgspec.yaml.decode(spec) if isinstance(spec, str) else spec


TARGET = "scaleTargetRef: {apiVersion: machine.openshift.io/v1beta1, kind: MachineSet, name: workers-a}"

ACCEPTED = {
    "nothing": "{}",
    "everything": EVERYTHING,
    "scale down alone": "{scaleDown: {enabled: true}}",
    "the largest numbers": "{podPriorityThreshold: 2147483647, resourceLimits: {maxNodesTotal: 2147483647}}",
    "the least priority": "{podPriorityThreshold: -2147483648}",
    "units of a second": "{maxNodeProvisionTime: 1h0m0.5s, scaleUp: {newPodScaleUpDelay: 3us}}",
    "a duration of 0": "{maxNodeProvisionTime: '0'}",
    "micro as a sign": "{maxNodeProvisionTime: 3µs}",
    "a year": "{maxNodeProvisionTime: 8760h}",
    "the smallest threshold": "{scaleDown: {enabled: true, utilizationThreshold: '0.000000001'}}",
}
"""Specs of ClusterAutoscalers that are good."""


def _down(text: str) -> str:
    return f"{{scaleDown: {{enabled: true, {text}}}}}"


def _limits(text: str) -> str:
    return f"{{resourceLimits: {{{text}}}}}"


REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "a negative number of nodes": (_limits("maxNodesTotal: -1"), ("spec.resourceLimits.maxNodesTotal", "0")),
    "more nodes than can be counted": (_limits("maxNodesTotal: 2147483648"), ("spec.resourceLimits.maxNodesTotal",)),
    "fewer cores at most than at least": (_limits("cores: {min: 8, max: 4}"), ("resourceLimits.cores.max", "min")),
    "less memory at most than at least": (_limits("memory: {min: 8, max: 4}"), ("resourceLimits.memory.max", "min")),
    "a quantity of memory": (_limits("memory: {min: 4Gi, max: 64Gi}"), ("resourceLimits.memory.min",)),
    "memory in bytes": (_limits("memory: {min: 0, max: 274877906944}"), ("resourceLimits.memory.max",)),
    "cores without a maximum": (_limits("cores: {min: 8}"), ("resourceLimits.cores.max",)),
    "negative cores": (_limits("cores: {min: -8, max: 9}"), ("resourceLimits.cores.min", "0")),
    "gpus of no type": (_limits("gpus: [{type: '', min: 0, max: 1}]"), ("gpus[0].type",)),
    "no gpus at most": (_limits("gpus: [{type: nvidia.com/gpu, min: 0, max: 0}]"), ("gpus[0].max",)),
    "fewer gpus at most than at least": (_limits("gpus: [{type: a, min: 3, max: 2}]"), ("gpus[0]", "min")),
    "gpus of one type twice": (
        _limits("gpus: [{type: a, min: 0, max: 2}, {type: a, min: 0, max: 3}]"),
        ("spec.resourceLimits.gpus[1]",),
    ),
    "scale down without a word whether": ("{scaleDown: {unneededTime: 5m}}", ("spec.scaleDown.enabled",)),
    "a negative time": (_down("unneededTime: -5m"), ("spec.scaleDown.unneededTime", "not negative")),
    "a time without a unit": (_down("unneededTime: '5'"), ("spec.scaleDown.unneededTime", "e.g. 30s")),
    "a time as a number": (_down("unneededTime: 300"), ("spec.scaleDown.unneededTime",)),
    "a time in days": (_down("delayAfterAdd: 1d"), ("spec.scaleDown.delayAfterAdd", "e.g. 30s")),
    "a time with words around it": (_down("delayAfterDelete: about 5m"), ("spec.scaleDown.delayAfterDelete",)),
    "a time of more than a year": (_down("delayAfterFailure: 8761h"), ("spec.scaleDown.delayAfterFailure", "8760h")),
    "a time beyond all bounds": (_down("unreadyTime: 999999999h"), ("spec.scaleDown.unreadyTime",)),
    "an empty time": (_down("unneededTime: ''"), ("spec.scaleDown.unneededTime",)),
    "a threshold of 0": (_down("utilizationThreshold: '0.0'"), ("scaleDown.utilizationThreshold", "above 0")),
    "a threshold of 1": (_down("utilizationThreshold: '1.0'"), ("scaleDown.utilizationThreshold", "below 1")),
    "a threshold in percent": (_down("utilizationThreshold: '50%'"), ("scaleDown.utilizationThreshold", "below 1")),
    "a threshold as a number": (_down("utilizationThreshold: 0.5"), ("scaleDown.utilizationThreshold",)),
    "a threshold with anything for its point": (_down("utilizationThreshold: '0x55'"), ("utilizationThreshold",)),
    "a threshold with words around it": (_down("utilizationThreshold: 'x0.5'"), ("utilizationThreshold", "below 1")),
    "gpus in percent": (_down("gpuUtilizationThreshold: '50%'"), ("gpuUtilizationThreshold", "below 1")),
    "a cordon that is a truth": (_down("cordonNodeBeforeTerminating: true"), ("cordonNodeBeforeTerminating",)),
    "OpenShift's own slip": (_down("uneededTime: 5m"), ("spec.scaleDown.uneededTime", "unneededTime")),
    "a negative delay": ("{scaleUp: {newPodScaleUpDelay: -1s}}", ("spec.scaleUp.newPodScaleUpDelay", "not negative")),
    "a delay that is none": ("{scaleUp: {newPodScaleUpDelay: soon}}", ("spec.scaleUp.newPodScaleUpDelay",)),
    "a negative grace period": ("{maxPodGracePeriod: -1}", ("spec.maxPodGracePeriod",)),
    "a provision time that is none": ("{maxNodeProvisionTime: 15 min}", ("spec.maxNodeProvisionTime", "e.g. 30s")),
    "a priority that is too large": ("{podPriorityThreshold: 2147483648}", ("spec.podPriorityThreshold",)),
    "a priority that is too small": ("{podPriorityThreshold: -2147483649}", ("spec.podPriorityThreshold",)),
    "an expander that is none": ("{expanders: [LeastWasteful]}", ("spec.expanders[0]", "LeastWaste")),
    "an expander twice": ("{expanders: [Random, Random]}", ("spec.expanders[1]",)),
    "an empty label": ("{balancingIgnoredLabels: ['']}", ("spec.balancingIgnoredLabels[0]",)),
    "a startup taint twice": ("{startupTaints: [a, a]}", ("spec.startupTaints[1]",)),
    "a minimum that is a truth": ("{enforceNodeGroupMinSize: true}", ("spec.enforceNodeGroupMinSize",)),
    "negative verbosity": ("{logVerbosity: -1}", ("spec.logVerbosity",)),
    "a mode that is none": ("{mode: Approve}", ("spec.mode", "Act")),
}
"""Specs of ClusterAutoscalers that are refused, with words that the error must contain."""

UNKNOWN_FIELDS = {
    "at the top": ("{scaledown: {enabled: true}}", "spec.scaledown"),
    "of the limits": (_limits("maxNodes: 3"), "spec.resourceLimits.maxNodes"),
    "of scale down": (_down("delayAfterRemove: 5m"), "spec.scaleDown.delayAfterRemove"),
    "of gpus": (_limits("gpus: [{type: a, min: 0, max: 1, kind: b}]"), "spec.resourceLimits.gpus[0].kind"),
}
"""Fields that there are not: the API server tells a client that asks for strictness, as kubectl does."""

TARGETS_ACCEPTED = {
    "a machine set": f"{{minReplicas: 0, maxReplicas: 1, {TARGET}}}",
    "one size": f"{{minReplicas: 3, maxReplicas: 3, {TARGET}}}",
    "no version": "{minReplicas: 1, maxReplicas: 2, scaleTargetRef: {kind: MachineSet, name: a}}",
    **{
        f"a {kind} of Cluster API's {version}": f"{{minReplicas: 1, maxReplicas: 2, scaleTargetRef: "
        f"{{apiVersion: cluster.x-k8s.io/{version}, kind: {kind}, name: a}}}}"
        for kind in ("MachineDeployment", "MachineSet", "MachinePool")
        for version in ("v1beta1", "v1beta2")
    },
}
"""Specs of MachineAutoscalers that are good."""


def _target(text: str) -> str:
    return f"{{minReplicas: 1, maxReplicas: 2, scaleTargetRef: {{{text}}}}}"


TARGETS_REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "less at most than at least": (
        f"{{minReplicas: 4, maxReplicas: 3, {TARGET}}}",
        ("spec.maxReplicas", "minReplicas"),
    ),
    "a negative minimum": (f"{{minReplicas: -1, maxReplicas: 3, {TARGET}}}", ("spec.minReplicas", "0")),
    "no machines at most": (f"{{minReplicas: 0, maxReplicas: 0, {TARGET}}}", ("spec.maxReplicas", "1")),
    "no minimum": (f"{{maxReplicas: 3, {TARGET}}}", ("spec.minReplicas",)),
    "no maximum": (f"{{minReplicas: 3, {TARGET}}}", ("spec.maxReplicas",)),
    "no target": ("{minReplicas: 1, maxReplicas: 3}", ("spec.scaleTargetRef",)),
    "a target without a name": (_target("kind: MachineSet"), ("spec.scaleTargetRef.name",)),
    "a target with an empty name": (_target("kind: MachineSet, name: ''"), ("spec.scaleTargetRef.name",)),
    "a target without a kind": (_target("name: a"), ("spec.scaleTargetRef.kind",)),
    "a target that has no machines": (
        _target("apiVersion: apps/v1, kind: Deployment, name: a"),
        ("spec.scaleTargetRef", "MachineSet of machine.openshift.io/v1beta1"),
    ),
    "a kind of the other API": (
        _target("apiVersion: machine.openshift.io/v1beta1, kind: MachineDeployment, name: a"),
        ("spec.scaleTargetRef", "MachineSet of machine.openshift.io/v1beta1"),
    ),
    "a version that is none": (
        _target("apiVersion: cluster.x-k8s.io/v1alpha4, kind: MachineSet, name: a"),
        ("spec.scaleTargetRef", "v1beta2"),
    ),
    "an empty version": (_target("apiVersion: '', kind: MachineSet, name: a"), ("spec.scaleTargetRef",)),
    "replicas as a text": (f"{{minReplicas: '1', maxReplicas: 3, {TARGET}}}", ("spec.minReplicas",)),
}
"""Specs of MachineAutoscalers that are refused, with words that the error must contain."""

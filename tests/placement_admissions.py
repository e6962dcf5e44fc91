"""PlacementAdmissions as users write them, and what trimtab and the API server must both reject."""

from __future__ import annotations

from typing import Any

import msgspec

EVERYTHING = """
mode: Warn
exemptNamespaces: [openshift-infra, monitoring]
podNodeConstraints:
  nodeSelectorLabelBlacklist: [kubernetes.io/hostname, region]
  additionalChecks: [NodeAffinity, Tolerations, GatedPodUpdates, EphemeralContainers, DaemonSets, TopologyKeys]
  protectedTaints:
  - {key: dedicated, value: team-a, effect: NoSchedule}
  - {key: node.kubernetes.io/unreachable}
  failurePolicy: Ignore
podNodeSelector:
  clusterDefaultNodeSelector: type=user-node
  namespaceWhitelists:
    ns1: region=west,env=test, infra=fedora,os=fedora
    ns2: ""
  checkUpdates: false
  exemptDaemonSetPods: true
defaultTolerationSeconds:
  notReadyTolerationSeconds: 60
  unreachableTolerationSeconds: 0
  adjustApiServerDefaults: false
  apiServerDefaultSeconds: 120
podTolerationRestriction:
  defaultTolerations:
  - {key: spot, operator: Exists}
  tolerationsWhitelist:
  - {operator: Exists, effect: NoSchedule}
  - {key: dedicated, value: team-a, effect: NoExecute, tolerationSeconds: 3600}
  allowApiServerDefaults: false
extendedResourceToleration:
  ignoredResources: [example.com/license]
dedicatedNodes:
  pools:
  - name: team-a
    groups: [team-a, "system:serviceaccounts:team-a"]
    namespaces: [team-a, team-a-test]
    taint: {key: dedicated, value: team-a, effect: NoExecute}
    nodeLabel: {key: example.com/pool, value: team-a}
  - name: team-b
    namespaces: [team-b]
    taint: {key: dedicated, value: team-b}
specialHardware:
  classes:
  - name: gpu
    resources: [nvidia.com/gpu, amd.com/gpu]
    taint: {key: nvidia.com/gpu}
    nodeLabel: {key: accelerator, value: gpu}
    exclusive: true
  - name: ssd
    podLabels: {disk: fast}
    taint: {key: disktype, value: ssd, effect: PreferNoSchedule}
"""


def placement_admission(spec: dict[str, Any] | str, *, name: str = "default") -> dict[str, Any]:
    """A PlacementAdmission with that spec, which may be YAML."""
    return {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "PlacementAdmission",
        "metadata": {"name": name},
        "spec": msgspec.yaml.decode(spec) if isinstance(spec, str) else spec,
    }


def _pools(*pools: str) -> str:
    return f"dedicatedNodes: {{pools: [{', '.join(f'{{{pool}}}' for pool in pools)}]}}"


def _classes(*classes: str) -> str:
    return f"specialHardware: {{classes: [{', '.join(f'{{{each}}}' for each in classes)}]}}"


def _whitelisted(toleration: str) -> str:
    return f"podTolerationRestriction: {{tolerationsWhitelist: [{{{toleration}}}]}}"


_A = "name: a, namespaces: [a], taint: {key: dedicated, value: a}"
_GPU = "name: gpu, resources: [nvidia.com/gpu], taint: {key: nvidia.com/gpu}"

ACCEPTED = {
    "every field": EVERYTHING,
    "no rule": "{}",
    "rules with their defaults": "{podNodeConstraints: {}, podNodeSelector: {}, defaultTolerationSeconds: {}, "
    "podTolerationRestriction: {}, extendedResourceToleration: {}}",
    "tolerations of upstream's TestValidateConfiguration": """
podTolerationRestriction:
  defaultTolerations:
  - {key: foo, operator: Exists, effect: NoExecute, tolerationSeconds: 60}
  - {key: foo, operator: Equal, value: bar, effect: NoExecute, tolerationSeconds: 60}
  - {key: foo, operator: Equal, value: bar, effect: NoSchedule}
  - {operator: Exists, effect: NoSchedule}
  tolerationsWhitelist:
  - {key: foo, value: bar, effect: NoSchedule}
  - {key: foo, operator: Equal, value: bar}
""",
    "toleration of all taints": _whitelisted("operator: Exists"),
    "toleration forever, as a negative number of seconds": _whitelisted(
        "key: a, operator: Exists, effect: NoExecute, tolerationSeconds: -1"
    ),
    "pools with one key and different values": _pools(
        _A, "name: b, groups: [b], taint: {key: dedicated, value: b, effect: NoSchedule}"
    ),
    "classes with different effects": _classes(
        _GPU, "name: more, resources: [nvidia.com/gpu], taint: {key: nvidia.com/gpu, effect: NoExecute}"
    ),
    "empty selectors": "podNodeSelector: {clusterDefaultNodeSelector: '', namespaceWhitelists: {a: ''}}",
    "selector with an empty value": "podNodeSelector: {clusterDefaultNodeSelector: 'infra='}",
}
"""Valid specs."""

REJECTED: dict[str, tuple[str, tuple[str, ...]]] = {
    "unknown mode": ("mode: Audit", ("spec.mode", "Warn")),
    "malformed namespace": ("exemptNamespaces: [A_b]", ("spec.exemptNamespaces[0]",)),
    "namespace twice": ("exemptNamespaces: [a, a]", ("spec.exemptNamespaces[1]",)),
    "malformed label": (
        "podNodeConstraints: {nodeSelectorLabelBlacklist: ['a b']}",
        ("spec.podNodeConstraints.nodeSelectorLabelBlacklist[0]",),
    ),
    "unknown check": (
        "podNodeConstraints: {additionalChecks: [Affinity]}",
        ("spec.podNodeConstraints.additionalChecks[0]", "NodeAffinity"),
    ),
    "protected taints that are not checked": (
        "podNodeConstraints: {protectedTaints: [{key: a}]}",
        ("spec.podNodeConstraints.protectedTaints", "are only valid together"),
    ),
    "check of tolerations without protected taints": (
        "podNodeConstraints: {additionalChecks: [Tolerations]}",
        ("spec.podNodeConstraints.protectedTaints", "are only valid together"),
    ),
    "protected taint without a key": (
        "podNodeConstraints: {additionalChecks: [Tolerations], protectedTaints: [{value: a}]}",
        ("spec.podNodeConstraints.protectedTaints[0].key",),
    ),
    "unknown failure policy": (
        "podNodeConstraints: {failurePolicy: fail}",
        ("spec.podNodeConstraints.failurePolicy", "Ignore"),
    ),
    "selector of a label alone": (
        "podNodeSelector: {clusterDefaultNodeSelector: region}",
        ("spec.podNodeSelector.clusterDefaultNodeSelector",),
    ),
    "selector with an operator": (
        "podNodeSelector: {clusterDefaultNodeSelector: 'region!=west'}",
        ("spec.podNodeSelector.clusterDefaultNodeSelector",),
    ),
    "selector with a comma at its end": (
        "podNodeSelector: {namespaceWhitelists: {ns1: 'region=west,'}}",
        ("spec.podNodeSelector.namespaceWhitelists",),
    ),
    "negative tolerationSeconds": (
        "defaultTolerationSeconds: {notReadyTolerationSeconds: -1}",
        ("spec.defaultTolerationSeconds.notReadyTolerationSeconds", "0"),
    ),
    "tolerationSeconds above 32 bits": (
        "defaultTolerationSeconds: {unreachableTolerationSeconds: 2147483648}",
        ("spec.defaultTolerationSeconds.unreachableTolerationSeconds", "2147483647"),
    ),
    "value with Exists": (
        _whitelisted("key: a, operator: Exists, value: b"),
        ("spec.podTolerationRestriction.tolerationsWhitelist[0].value", "must be empty with operator Exists"),
    ),
    "Equal without a key": (
        _whitelisted("value: a"),
        ("spec.podTolerationRestriction.tolerationsWhitelist[0].operator", "must be Exists if key is empty"),
    ),
    "tolerationSeconds of NoSchedule": (
        "podTolerationRestriction: {defaultTolerations: [{key: a, effect: NoSchedule, tolerationSeconds: 3600}]}",
        ("spec.podTolerationRestriction.defaultTolerations[0].effect", "must be NoExecute if tolerationSeconds is set"),
    ),
    "unknown operator": (
        _whitelisted("key: a, operator: Lt"),
        ("spec.podTolerationRestriction.tolerationsWhitelist[0].operator", "Exists"),
    ),
    "empty resource name": (
        "extendedResourceToleration: {ignoredResources: ['']}",
        ("spec.extendedResourceToleration.ignoredResources[0]",),
    ),
    "no pools": ("dedicatedNodes: {}", ("spec.dedicatedNodes.pools",)),
    "empty pools": ("dedicatedNodes: {pools: []}", ("spec.dedicatedNodes.pools",)),
    "pool of no group and no namespace": (
        _pools("name: a, taint: {key: a}"),
        ("spec.dedicatedNodes.pools[0]", "at least one of groups and namespaces"),
    ),
    "pool with empty lists": (
        _pools("name: a, taint: {key: a}, groups: [], namespaces: []"),
        ("spec.dedicatedNodes.pools[0]", "at least one of groups and namespaces"),
    ),
    "pool without a taint": (_pools("name: a, groups: [a]"), ("spec.dedicatedNodes.pools[0].taint",)),
    "pool twice": (_pools(_A, _A.replace("value: a", "value: b")), ("spec.dedicatedNodes.pools[1]",)),
    "two pools with one taint": (
        _pools(_A, _A.replace("name: a", "name: b")),
        ("spec.dedicatedNodes.pools", "two pools cannot have the same taint"),
    ),
    "two pools with one taint, spelt out": (
        _pools("name: a, groups: [a], taint: {key: a}", "name: b, groups: [b], taint: {key: a, effect: NoSchedule}"),
        ("spec.dedicatedNodes.pools", "two pools cannot have the same taint"),
    ),
    "class without a characteristic": (
        _classes("name: gpu, taint: {key: gpu}, podLabels: {}"),
        ("spec.specialHardware.classes[0]", "at least one of resources and podLabels"),
    ),
    "two classes with one taint": (
        _classes(_GPU, _GPU.replace("name: gpu", "name: b")),
        ("spec.specialHardware.classes", "two classes cannot have the same taint"),
    ),
    "malformed label of a pod": (
        _classes("name: gpu, taint: {key: gpu}, podLabels: {a: 'b c'}"),
        ("spec.specialHardware.classes[0].podLabels",),
    ),
}
"""Invalid specs, with texts that the error must contain. The first is the field."""

UNKNOWN_FIELDS = {
    "of the spec": ("podNodeConstraint: {}", "spec.podNodeConstraint"),
    "of a rule": (
        "podNodeConstraints: {nodeSelectorLabelBlackList: [a]}",
        "spec.podNodeConstraints.nodeSelectorLabelBlackList",
    ),
    "of a pool": (_pools(f"{_A}, users: [a]"), "spec.dedicatedNodes.pools[0].users"),
}
"""Specs with a field that does not exist."""

"""SchedulerPolicies as users write them, and what trimtab and the API server must both reject."""

from __future__ import annotations

from typing import Any

import msgspec

LEGACY = """
schedulerName: legacy
policy:
  predicates:
  - {name: PodFitsResources}
  - {name: matchnodeselector}
  - {name: Region, argument: {serviceAffinity: {labels: [region, example.com/site]}}}
  - {name: NoBuilding, argument: {labelsPresence: {labels: [building], presence: false}}}
  priorities:
  - {name: LeastRequestedPriority, weight: 1}
  - {name: NodePreferAvoidPodsPriority, weight: 10000}
  - {name: Zone, weight: 2, argument: {serviceAntiAffinity: {label: zone}}}
  - {name: Rack, weight: 3, argument: {labelPreference: {label: rack, presence: true}}}
  - name: Ratio
    weight: 4
    argument:
      requestedToCapacityRatioArguments: {shape: [{utilization: 0, score: 10}, {utilization: 100, score: 0}]}
  hardPodAffinitySymmetricWeight: 10
  alwaysCheckAllPredicates: true
"""

MODERN = """
schedulerName: packing
profile:
  disabledFilters: [NodePorts]
  scores: [{name: ImageLocality, weight: 0}, {name: NodeResourcesFit, weight: 100}]
  scoringStrategy:
    type: RequestedToCapacityRatio
    resources: [{name: cpu, weight: 1}, {name: nvidia.com/gpu, weight: 5}]
    shape: [{utilization: 0, score: 0}, {utilization: 70, score: 10}]
  hardPodAffinityWeight: 2
  ignorePreferredTermsOfExistingPods: true
  podTopologySpread:
    defaultingType: List
    defaultConstraints:
    - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, minDomains: 3}
    - maxSkew: 2
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      nodeAffinityPolicy: Ignore
      nodeTaintsPolicy: Honor
  addedAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions: [{key: pool, operator: In, values: [batch, web]}, {key: gen, operator: Gt, values: ["3"]}]
      - matchFields: [{key: metadata.name, operator: NotIn, values: [n1]}]
    preferredDuringSchedulingIgnoredDuringExecution:
    - {weight: 10, preference: {matchExpressions: [{key: disk, operator: Exists}]}}
  balancedResources: [cpu, memory, nvidia.com/gpu]
  ignoredResources: [example.com/license]
  ignoredResourceGroups: [example.org]
  percentageOfNodesToScore: 50
disablePreemption: true
extenders:
- urlPrefix: https://gpu.kube-system.svc:8443/scheduler
  filterVerb: filter
  prioritizeVerb: prioritize
  preemptVerb: preempt
  bindVerb: bind
  weight: 2
  httpTimeout: 500ms
  nodeCacheCapable: true
  ignorable: true
  managedResources: [{name: example.com/gpu-memory, ignoredByScheduler: true}]
  tlsConfig: {serverName: gpu, caData: aGk=, certFile: /etc/trimtab/tls/tls.crt, keyFile: /etc/trimtab/tls/tls.key}
- {urlPrefix: "http://127.0.0.1:12345"}
"""


def scheduler_policy(spec: dict[str, Any] | str, *, name: str = "test") -> dict[str, Any]:
    """A SchedulerPolicy with that spec, which may be YAML."""
    return {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "SchedulerPolicy",
        "metadata": {"name": name},
        "spec": msgspec.yaml.decode(spec) if isinstance(spec, str) else spec,
    }


def _policy(text: str) -> str:
    return f"{{schedulerName: s, policy: {{{text}}}}}"


def _predicate(text: str) -> str:
    return _policy(f"predicates: [{{{text}}}]")


def _priority(text: str) -> str:
    return _policy(f"priorities: [{{{text}}}]")


def _ratio(*points: str) -> str:
    shape = ", ".join(f"{{{each}}}" for each in points)
    return _priority(f"name: Ratio, weight: 1, argument: {{requestedToCapacityRatioArguments: {{shape: [{shape}]}}}}")


def _profile(text: str) -> str:
    return f"{{schedulerName: s, profile: {{{text}}}}}"


_CONSTRAINT = "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}"
_REQUIRED = "spec.profile.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


def _spread(*constraints: str) -> str:
    return f"podTopologySpread: {{defaultingType: List, defaultConstraints: [{', '.join(constraints)}]}}"


def _added(*terms: str) -> str:
    selector = f"{{nodeSelectorTerms: [{', '.join(terms)}]}}"
    return f"addedAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {selector}}}"


def _extenders(*texts: str) -> str:
    return f"{{schedulerName: s, extenders: [{', '.join(f'{{{text}}}' for text in texts)}]}}"


_SOME = "urlPrefix: 'http://a'"
_HTTPS = "urlPrefix: 'https://a'"

ACCEPTED = {
    "legacy Policy": LEGACY,
    "profile": MODERN,
    "default profile": "{schedulerName: default-scheduler}",
    "provider": "{schedulerName: s, provider: ClusterAutoscalerProvider}",
    "empty Policy": _policy(""),
    "no predicates and no priorities": _policy("predicates: [], priorities: []"),
    "highest weight": _priority("name: EqualPriority, weight: 100000"),
    "one point": _ratio("utilization: 50, score: 5"),
}
"""Valid specs."""

REJECTED: dict[str, tuple[str, tuple[str, ...]]] = {
    "no scheduler name": ("{}", ("spec.schedulerName",)),
    "empty scheduler name": ("{schedulerName: ''}", ("spec.schedulerName",)),
    "two forms": ("{schedulerName: s, provider: DefaultProvider, profile: {}}", ("spec", "at most one of provider")),
    "three forms": (
        "{schedulerName: s, provider: DefaultProvider, profile: {}, policy: {}}",
        ("spec", "at most one of provider"),
    ),
    "unknown provider": ("{schedulerName: s, provider: Other}", ("spec.provider", "ClusterAutoscalerProvider")),
    "unknown predicate": (
        _predicate("name: PodFits"),
        ("spec.policy.predicates[0].name", "PodFits: unknown predicate", "PodFitsResources"),
    ),
    "malformed predicate name": (_predicate("name: 'a b'"), ("spec.policy.predicates[0].name",)),
    "predicate without a name": (_policy("predicates: [{}]"), ("spec.policy.predicates[0].name",)),
    "predicate twice": (
        _policy("predicates: [{name: HostName}, {name: HostName}]"),
        ("spec.policy.predicates[1]",),
    ),
    "predicate with an empty argument": (
        _predicate("name: Region, argument: {}"),
        ("spec.policy.predicates[0].argument", "exactly one of serviceAffinity and labelsPresence"),
    ),
    "predicate with two arguments": (
        _predicate("name: Region, argument: {serviceAffinity: {labels: [a]}, labelsPresence: {labels: [a]}}"),
        ("spec.policy.predicates[0].argument", "exactly one of serviceAffinity and labelsPresence"),
    ),
    "service affinity without labels": (
        _predicate("name: Region, argument: {serviceAffinity: {labels: []}}"),
        ("spec.policy.predicates[0].argument.serviceAffinity.labels",),
    ),
    "malformed label": (
        _predicate("name: Region, argument: {serviceAffinity: {labels: ['a b']}}"),
        ("spec.policy.predicates[0].argument.serviceAffinity.labels[0]",),
    ),
    "unknown priority": (
        _priority("name: BestPriority, weight: 1"),
        ("spec.policy.priorities[0].name", "BestPriority: unknown priority", "LeastRequestedPriority"),
    ),
    "priority without a weight": (_priority("name: EqualPriority"), ("spec.policy.priorities[0].weight",)),
    "weight of 0": (_priority("name: EqualPriority, weight: 0"), ("spec.policy.priorities[0].weight", "1")),
    "negative weight": (_priority("name: EqualPriority, weight: -1"), ("spec.policy.priorities[0].weight", "1")),
    "weight above the maximum": (
        _priority("name: EqualPriority, weight: 100001"),
        ("spec.policy.priorities[0].weight", "100000"),
    ),
    "fractional weight": (_priority("name: EqualPriority, weight: 1.5"), ("spec.policy.priorities[0].weight",)),
    "priority with an empty argument": (
        _priority("name: Zone, weight: 1, argument: {}"),
        ("spec.policy.priorities[0].argument", "exactly one of serviceAntiAffinity"),
    ),
    "priority with two arguments": (
        _priority(
            "name: Zone, weight: 1, argument: {serviceAntiAffinity: {label: a}, labelPreference: {label: a}}",
        ),
        ("spec.policy.priorities[0].argument", "exactly one of serviceAntiAffinity"),
    ),
    "priority without a label": (
        _priority("name: Zone, weight: 1, argument: {serviceAntiAffinity: {}}"),
        ("spec.policy.priorities[0].argument.serviceAntiAffinity.label",),
    ),
    "descending points": (
        _ratio("utilization: 50, score: 5", "utilization: 10, score: 5"),
        ("argument.requestedToCapacityRatioArguments.shape", "utilization must increase"),
    ),
    "equal points": (
        _ratio("utilization: 50, score: 5", "utilization: 50, score: 6"),
        ("argument.requestedToCapacityRatioArguments.shape", "utilization must increase"),
    ),
    "score above 10": (
        _ratio("utilization: 50, score: 11"),
        ("argument.requestedToCapacityRatioArguments.shape[0].score", "10"),
    ),
    "hard affinity weight above 100": (
        _policy("hardPodAffinitySymmetricWeight: 101"),
        ("spec.policy.hardPodAffinitySymmetricWeight", "100"),
    ),
    "unknown filter plugin": (
        _profile("disabledFilters: [Taints]"),
        ("spec.profile.disabledFilters[0]", "Taints", "TaintToleration"),
    ),
    "unknown score plugin": (
        _profile("scores: [{name: Images, weight: 1}]"),
        ("spec.profile.scores[0].name", "Images", "ImageLocality"),
    ),
    "score plugin twice": (
        _profile("scores: [{name: ImageLocality, weight: 1}, {name: ImageLocality, weight: 2}]"),
        ("spec.profile.scores[1]",),
    ),
    "plugin weight above the maximum": (
        _profile("scores: [{name: ImageLocality, weight: 100001}]"),
        ("spec.profile.scores[0].weight", "100000"),
    ),
    "default constraints of the system": (
        _profile(f"podTopologySpread: {{defaultConstraints: [{_CONSTRAINT}]}}"),
        ("spec.profile.podTopologySpread.defaultConstraints", "are only valid with defaultingType List"),
    ),
    "default constraint twice": (
        _profile(_spread(_CONSTRAINT, _CONSTRAINT)),
        ("spec.profile.podTopologySpread.defaultConstraints[1]",),
    ),
    "default constraint without a skew": (
        _profile(_spread("{maxSkew: 0, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}")),
        ("spec.profile.podTopologySpread.defaultConstraints[0].maxSkew", "1"),
    ),
    "minimum of domains of a soft constraint": (
        _profile(_spread("{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, minDomains: 2}")),
        ("spec.profile.podTopologySpread.defaultConstraints[0].minDomains", "only valid with whenUnsatisfiable"),
    ),
    "added affinity without terms": (_profile(_added()), (f"{_REQUIRED}",)),
    "added affinity with an empty term": (_profile(_added("{}")), (f"{_REQUIRED}[0]", "matches no node")),
    "operator without values": (
        _profile(_added("{matchExpressions: [{key: pool, operator: In}]}")),
        (f"{_REQUIRED}[0].matchExpressions[0].values", "In and NotIn need values"),
    ),
    "operator with a value too many": (
        _profile(_added("{matchExpressions: [{key: pool, operator: Exists, values: [a]}]}")),
        (f"{_REQUIRED}[0].matchExpressions[0].values", "Exists and DoesNotExist take none"),
    ),
    "comparison with a word": (
        _profile(_added("{matchExpressions: [{key: pool, operator: Gt, values: [a]}]}")),
        (f"{_REQUIRED}[0].matchExpressions[0].values", "Gt and Lt one integer"),
    ),
    "two node names": (
        _profile(_added("{matchFields: [{key: metadata.name, operator: In, values: [a, b]}]}")),
        (f"{_REQUIRED}[0].matchFields[0].values", "1"),
    ),
    "field of a node that is not its name": (
        _profile(_added("{matchFields: [{key: spec.podCIDR, operator: In, values: [a]}]}")),
        (f"{_REQUIRED}[0].matchFields[0].key", "metadata.name"),
    ),
    "preferred term without a weight": (
        _profile(
            "addedAffinity: {preferredDuringSchedulingIgnoredDuringExecution: "
            "[{weight: 0, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}"
        ),
        ("spec.profile.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight", "1"),
    ),
    "ignored resource that is not an extended one": (
        _profile("ignoredResources: [cpu]"),
        ("spec.profile.ignoredResources[0]",),
    ),
    "ignored group with a slash": (
        _profile("ignoredResourceGroups: [example.com/gpu]"),
        ("spec.profile.ignoredResourceGroups[0]",),
    ),
    "balanced resource twice": (
        _profile("balancedResources: [cpu, cpu]"),
        ("spec.profile.balancedResources[1]",),
    ),
    "extender without a URL": (_extenders("filterVerb: filter"), ("spec.extenders[0].urlPrefix",)),
    "extender of another scheme": (_extenders("urlPrefix: 'file:///etc/passwd'"), ("spec.extenders[0].urlPrefix",)),
    "extender with credentials in its URL": (
        _extenders("urlPrefix: 'http://user:secret@host/'"),
        ("spec.extenders[0].urlPrefix",),
    ),
    "extender with a query": (_extenders("urlPrefix: 'http://host/?a=b'"), ("spec.extenders[0].urlPrefix",)),
    "extender with a malformed verb": (
        _extenders(f"{_SOME}, filterVerb: '../filter'"),
        ("spec.extenders[0].filterVerb",),
    ),
    "extender without a weight": (
        _extenders(f"{_SOME}, prioritizeVerb: prioritize"),
        ("spec.extenders[0].weight", "at least 1 with prioritizeVerb"),
    ),
    "extender with a timeout of 0": (
        _extenders(f"{_SOME}, httpTimeout: 0s"),
        ("spec.extenders[0].httpTimeout", "longer than 0 and at most 60s"),
    ),
    "extender with a timeout of minutes": (
        _extenders(f"{_SOME}, httpTimeout: 2m"),
        ("spec.extenders[0].httpTimeout", "longer than 0 and at most 60s"),
    ),
    "extender with a timeout that is no duration": (
        _extenders(f"{_SOME}, httpTimeout: soon"),
        ("spec.extenders[0].httpTimeout", "e.g. 30s"),
    ),
    "two binders": (
        _extenders(f"{_SOME}, bindVerb: bind", f"{_SOME}, bindVerb: bind"),
        ("spec.extenders", "at most one extender can have a bindVerb"),
    ),
    "resource of two extenders": (
        _extenders(*[f"{_SOME}, managedResources: [{{name: example.com/gpu}}]"] * 2),
        ("spec.extenders", "each resource can be managed by one extender only"),
    ),
    "managed resource that is not an extended one": (
        _extenders(f"{_SOME}, managedResources: [{{name: cpu}}]"),
        ("spec.extenders[0].managedResources[0].name",),
    ),
    "TLS settings without TLS": (
        _extenders(f"{_SOME}, tlsConfig: {{insecure: true}}"),
        ("spec.extenders[0].tlsConfig", "only valid with an https:// urlPrefix"),
    ),
    "certificate without a key": (
        _extenders(f"{_HTTPS}, tlsConfig: {{certFile: /etc/trimtab/tls.crt}}"),
        ("spec.extenders[0].tlsConfig", "certFile and keyFile must be given together"),
    ),
    "TLS file somewhere else": (
        _extenders(f"{_HTTPS}, tlsConfig: {{caFile: /etc/trimtab/../passwd}}"),
        ("spec.extenders[0].tlsConfig.caFile",),
    ),
    "more than all nodes to score": (
        _profile("percentageOfNodesToScore: 101"),
        ("spec.profile.percentageOfNodesToScore", "100"),
    ),
    "unknown scoring strategy": (
        _profile("scoringStrategy: {type: Best}"),
        ("spec.profile.scoringStrategy.type", "MostAllocated"),
    ),
    "shape of another strategy": (
        _profile("scoringStrategy: {type: MostAllocated, shape: [{utilization: 0, score: 0}]}"),
        ("spec.profile.scoringStrategy.shape", "is required with type RequestedToCapacityRatio"),
    ),
    "strategy without its shape": (
        _profile("scoringStrategy: {type: RequestedToCapacityRatio}"),
        ("spec.profile.scoringStrategy", "is required with type RequestedToCapacityRatio"),
    ),
    "no resources": (_profile("scoringStrategy: {resources: []}"), ("spec.profile.scoringStrategy.resources",)),
    "resource twice": (
        _profile("scoringStrategy: {resources: [{name: cpu}, {name: cpu}]}"),
        ("spec.profile.scoringStrategy.resources[1]",),
    ),
}
"""Invalid specs, with texts that the error must contain. The first is the field."""

UNKNOWN_FIELDS = {
    "of the spec": ("{schedulerName: s, schedulername: t}", "spec.schedulername"),
    "of a Policy": (_policy("fallback: true"), "spec.policy.fallback"),
    "of a predicate": (_predicate("name: HostName, weight: 3"), "spec.policy.predicates[0].weight"),
    "of a profile": (_profile("plugins: {}"), "spec.profile.plugins"),
}
"""Specs with a field that does not exist."""

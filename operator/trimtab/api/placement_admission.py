"""PlacementAdmission: rules that admission webhooks apply to pods and pod templates. There is one per cluster.

    apiVersion: trimtab.dev/v1alpha1
    kind: PlacementAdmission
    metadata: {name: default}
    spec:
      podNodeConstraints:
        nodeSelectorLabelBlacklist: [kubernetes.io/hostname, region]
      dedicatedNodes:
        pools:
        - name: team-a
          namespaces: [team-a]
          taint: {key: dedicated, value: team-a}

Each block of the spec configures one rule, and a rule whose block is unset does not run. The first five have the names
and the behaviour of the admission plugins of kube-apiserver (v1.36) and OpenShift 3.11, whose configuration
``trimtab convert`` reads. :mod:`trimtab.admission` implements them.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import Meta

from trimtab.api.base import (
    ATOMIC,
    MAX_INT32,
    SET,
    BigCount,
    Name,
    NamespaceName,
    ObjectMeta,
    ObjectName,
    Rule,
    ShortText,
    Spec,
    Status,
    bounded,
    doc,
    list_map,
)
from trimtab.api.conditions import Condition, ObservedGeneration, condition_list
from trimtab.api.scheduler_plugins import LABEL_KEY, LabelKey
from trimtab.api.schema import describe_pattern
from trimtab.api.state import state_meta

KIND: Final = "PlacementAdmission"
NAME: Final = "default"

POD_NODE_CONSTRAINTS: Final = "PodNodeConstraints"
POD_NODE_SELECTOR: Final = "PodNodeSelector"
DEFAULT_TOLERATION_SECONDS: Final = "DefaultTolerationSeconds"
POD_TOLERATION_RESTRICTION: Final = "PodTolerationRestriction"
EXTENDED_RESOURCE_TOLERATION: Final = "ExtendedResourceToleration"
DEDICATED_NODES: Final = "DedicatedNodes"
SPECIAL_HARDWARE: Final = "SpecialHardware"

RuleName = Literal[
    "PodNodeConstraints",
    "PodNodeSelector",
    "DefaultTolerationSeconds",
    "PodTolerationRestriction",
    "ExtendedResourceToleration",
    "DedicatedNodes",
    "SpecialHardware",
]
"""The rules in the order in which they are applied, those with failure policy Fail first."""

Result = Literal["Allowed", "Mutated", "Refused", "Warned"]
"""The result of a rule for one request. Warned: the request would have been refused, but ``mode`` is Warn."""

NODE_AFFINITY: Final = "NodeAffinity"
TOLERATIONS: Final = "Tolerations"
GATED_POD_UPDATES: Final = "GatedPodUpdates"
EPHEMERAL_CONTAINERS: Final = "EphemeralContainers"
DAEMON_SETS: Final = "DaemonSets"
TOPOLOGY_KEYS: Final = "TopologyKeys"
AdditionalCheck = Literal[
    "NodeAffinity", "Tolerations", "GatedPodUpdates", "EphemeralContainers", "DaemonSets", "TopologyKeys"
]

FailurePolicy = Literal["Fail", "Ignore"]

MAX_LABELS: Final = 64
MAX_NAMESPACES: Final = 256
MAX_POOLS: Final = 64
MAX_TOLERATIONS: Final = 64
MAX_COUNTS: Final = 64
MAX_REPLICAS: Final = 16
MAX_REFUSALS: Final = 20

REPLICA_TIMEOUT: Final = 180.0
"""Seconds without an update of the status after which a replica is assumed to be terminated."""

_NAME: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE: Final = f"({_NAME})?"
_KEY: Final = f"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_NAME}"
_PAIR: Final = f" *{_KEY} *= *{_VALUE} *"
SELECTOR: Final = describe_pattern(f"^$|^{_PAIR}(,{_PAIR})*$", "be empty or a comma-separated list of key=value pairs")
LabelValue = Annotated[str, Meta(max_length=63, pattern=f"^{_VALUE}$")]
"""The value of a label or taint. The API server would refuse all pods to which a rule adds an invalid value."""

NodeSelectorText = Annotated[str, Meta(max_length=1024, pattern=SELECTOR)]
"""A node selector as key=value pairs, separated by commas, see :func:`parse_node_selector`."""

ONE_FOR_ALL: Final = f"must be {NAME}: there is one {KIND} for the whole cluster"
INVALID_SELECTOR: Final = "must be key=value pairs separated by commas"
PROTECTED_TAINTS_OF_CHECK: Final = "protectedTaints and Tolerations in additionalChecks are only valid together"
VALUE_OF_EQUAL: Final = "must be empty with operator Exists"
KEY_OF_EXISTS: Final = "operator must be Exists if key is empty"
SECONDS_OF_NO_EXECUTE: Final = "effect must be NoExecute if tolerationSeconds is set"
SOME_SUBJECT: Final = "at least one of groups and namespaces must be set"
SOME_CHARACTERISTIC: Final = "at least one of resources and podLabels must be set"
ONE_POOL_PER_TAINT: Final = "two pools cannot have the same taint"
ONE_CLASS_PER_TAINT: Final = "two classes cannot have the same taint"


def _unique_taints(message: str) -> dict[str, Any]:
    """Return the schema of a list whose items have unique names and unique taints."""
    rule = (
        "self.all(each, self.exists_one(other, other.taint.key == each.taint.key && "
        "other.taint.value == each.taint.value && other.taint.effect == each.taint.effect))"
    )
    return {**list_map("name"), "x-kubernetes-validations": [Rule(rule=rule, message=message).wire()]}


def parse_node_selector(text: str) -> dict[str, str]:
    """Parse a node selector in the form ``k1=v1,k2=v2`` (apimachinery's ``labels.ConvertSelectorToLabelsMap``).

    Raises:
        ValueError: the text has another form, or a key or value is not valid in a label.
    """
    found = {}
    for pair in text.split(",") if text else ():
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (equals and re.fullmatch(_KEY, key) and re.fullmatch(_VALUE, value)):
            raise ValueError(f"{INVALID_SELECTOR}; not {pair[:64]!r}")
        found[key] = value
    return found


_FAILURE_POLICY: Final = (
    "What happens to requests if the webhook fails or does not respond. Fail rejects the "
    "requests. Ignore admits the requests without applying the rule."
)
FailClosed = Annotated[FailurePolicy, doc(_FAILURE_POLICY)]


class ProtectedTaint(Spec, frozen=True):
    """Taints that pods must not tolerate, selected by key and optionally by value and effect."""

    key: Annotated[LabelKey, doc("Key of the taint.")]
    value: Annotated[LabelValue | None, doc("Value of the taint. If unset, taints with any value are protected.")] = (
        None
    )
    effect: Annotated[
        Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None,
        doc("Effect of the taint. If unset, taints with any effect are protected."),
    ] = None


class PodNodeConstraints(Spec, frozen=True):
    """Restricts which users may select the node of a pod.

    Users who have RBAC permission to create the subresource pods/binding in the namespace are not restricted. The rule
    applies to pods when they are created, and to the pod templates of workloads when they are created or updated.
    """

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="(has(self.protectedTaints) && self.protectedTaints.size() > 0) == "
            "(has(self.additionalChecks) && 'Tolerations' in self.additionalChecks)",
            message=PROTECTED_TAINTS_OF_CHECK,
            field_path=".protectedTaints",
        ),
    )

    node_selector_label_blacklist: Annotated[
        tuple[LabelKey, ...],
        bounded(
            "Keys of node labels that pods must not use in spec.nodeSelector. The rule also restricts spec.nodeName, "
            "even if this list is empty.",
            limit=MAX_LABELS,
            **SET,
        ),
    ] = ()
    additional_checks: Annotated[
        tuple[AdditionalCheck, ...],
        bounded(
            "Additional checks that OpenShift's admission plugin does not perform. NodeAffinity restricts node "
            "affinity for metadata.name and for the labels in nodeSelectorLabelBlacklist. Tolerations "
            "rejects pods that tolerate a taint in protectedTaints. GatedPodUpdates restricts changes to the node "
            "selector of pods with scheduling gates, and together with NodeAffinity also changes to their node "
            "affinity. EphemeralContainers restricts the addition of ephemeral containers to pods that the user could "
            "not create. DaemonSets extends the rule to the pod templates of DaemonSets. TopologyKeys restricts pod "
            "affinity, pod anti-affinity and topology spread constraints whose topologyKey is in "
            "nodeSelectorLabelBlacklist.",
            limit=6,
            **SET,
        ),
    ] = ()
    protected_taints: Annotated[
        tuple[ProtectedTaint, ...],
        bounded(
            "Taints that pods must not tolerate. Required if additionalChecks contains Tolerations. Must be empty "
            "otherwise.",
            limit=MAX_TOLERATIONS,
            **ATOMIC,
        ),
    ] = ()
    failure_policy: FailClosed = "Fail"


class PodNodeSelector(Spec, frozen=True):
    """Adds the node selector of the namespace to its pods.

    The node selector of a namespace is its annotation scheduler.alpha.kubernetes.io/node-selector, else its annotation
    openshift.io/node-selector, else clusterDefaultNodeSelector. An empty annotation means no node selector. Pods with
    a conflicting node selector are refused.
    """

    cluster_default_node_selector: Annotated[
        NodeSelectorText,
        doc(
            "Node selector for namespaces without a node selector annotation, as comma-separated key=value pairs. If "
            "empty, these namespaces have no node selector."
        ),
    ] = ""
    namespace_whitelists: Annotated[
        dict[NamespaceName, NodeSelectorText],
        bounded(
            "Allowed node selectors by namespace, as comma-separated key=value pairs. A pod is rejected if its node "
            "selector contains other pairs, even if this rule added the pairs for the namespace. In namespaces that "
            "are not listed, every node selector is allowed.",
            limit=MAX_NAMESPACES,
        ),
    ] = msgspec.field(default_factory=dict)
    check_updates: Annotated[
        bool,
        doc(
            "Whether to also check updates that change the node selector of a pod. Kubernetes allows such updates "
            "while the pod has scheduling gates."
        ),
    ] = True
    exempt_daemon_set_pods: Annotated[
        bool,
        doc(
            "Whether pods that the DaemonSet controller creates are exempt from this rule. The DaemonSet controller "
            "ignores the node selector of the namespace and creates a pod for each node that matches the pod template. "
            "If a node does not match the node selector of the namespace, the kubelet rejects the pod, and the "
            "controller creates another pod."
        ),
    ] = False
    failure_policy: FailClosed = "Fail"


Seconds = Annotated[int, Meta(ge=0, le=MAX_INT32)]


class DefaultTolerationSeconds(Spec, frozen=True):
    """Adds tolerations of not-ready and unreachable nodes to pods that have none."""

    not_ready_toleration_seconds: Annotated[
        Seconds,
        doc("tolerationSeconds of the toleration that is added for the node.kubernetes.io/not-ready:NoExecute taint."),
    ] = 300
    unreachable_toleration_seconds: Annotated[
        Seconds,
        doc(
            "tolerationSeconds of the toleration that is added for the node.kubernetes.io/unreachable:NoExecute taint."
        ),
    ] = 300
    adjust_api_server_defaults: Annotated[
        bool,
        doc(
            "Whether to replace the tolerationSeconds of tolerations that kube-apiserver has added. A toleration is "
            "assumed to be from kube-apiserver if its tolerationSeconds equals apiServerDefaultSeconds. The "
            "tolerationSeconds is therefore also replaced if a user set the same value."
        ),
    ] = True
    api_server_default_seconds: Annotated[
        Seconds,
        doc(
            "tolerationSeconds of the tolerations that kube-apiserver adds before it calls webhooks. Must match the "
            "--default-not-ready-toleration-seconds and --default-unreachable-toleration-seconds flags of "
            "kube-apiserver."
        ),
    ] = 300
    failure_policy: FailClosed = "Ignore"


class PodToleration(Spec, frozen=True):
    """A toleration, in the same format as in a pod spec."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.operator == 'Equal' || self.value == ''",
            message=VALUE_OF_EQUAL,
            field_path=".value",
        ),
        Rule(
            rule="self.operator == 'Exists' || self.key != ''",
            message=KEY_OF_EXISTS,
            field_path=".operator",
        ),
        Rule(
            rule="!has(self.tolerationSeconds) || self.effect == 'NoExecute'",
            message=SECONDS_OF_NO_EXECUTE,
            field_path=".effect",
        ),
    )

    key: Annotated[
        Annotated[str, Meta(max_length=317, pattern=f"^$|{LABEL_KEY}")],
        doc(
            "Taint key that the toleration matches. If empty, the toleration matches all keys, and operator must be "
            "Exists."
        ),
    ] = ""
    operator: Annotated[
        Literal["Equal", "Exists"],
        doc(
            "How the toleration is compared with the value of a taint. Equal matches only taints with the same value. "
            "Exists matches taints with any value."
        ),
    ] = "Equal"
    value: Annotated[
        LabelValue, doc("Taint value that the toleration matches. Must be empty if operator is Exists.")
    ] = ""
    effect: Annotated[
        Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"],
        doc("Taint effect that the toleration matches. If empty, the toleration matches all effects."),
    ] = ""
    toleration_seconds: Annotated[
        int | None,
        doc(
            "How long a pod tolerates the taint before it is evicted, in seconds. Only valid with effect NoExecute. "
            "If unset, the pod tolerates the taint without a time limit.",
            format="int64",
        ),
    ] = None


class PodTolerationRestriction(Spec, frozen=True):
    """Adds the default tolerations of the namespace to its pods, and restricts which tolerations pods may have.

    A namespace can set its own lists as JSON in the annotations scheduler.alpha.kubernetes.io/defaultTolerations and
    scheduler.alpha.kubernetes.io/tolerationsWhitelist. They replace the lists of this rule.
    """

    default_tolerations: Annotated[
        tuple[PodToleration, ...],
        bounded(
            "Tolerations that are added to pods in namespaces without the "
            "scheduler.alpha.kubernetes.io/defaultTolerations annotation.",
            limit=MAX_TOLERATIONS,
            **ATOMIC,
        ),
    ] = ()
    tolerations_whitelist: Annotated[
        tuple[PodToleration, ...],
        bounded(
            "Tolerations that pods may have in namespaces without the "
            "scheduler.alpha.kubernetes.io/tolerationsWhitelist annotation. A pod's toleration is allowed if an entry "
            "has the same key, effect and value. An entry with operator Exists matches all values. An entry with "
            "operator Exists and without a key matches all keys. An entry without an effect matches all effects. If an "
            "entry sets tolerationSeconds, the toleration must set the same or a smaller number. If the list is empty, "
            "all tolerations are allowed.",
            limit=MAX_TOLERATIONS,
            **ATOMIC,
        ),
    ] = ()
    allow_api_server_defaults: Annotated[
        bool,
        doc(
            "Whether to allow tolerations that are added automatically, even if tolerationsWhitelist does not contain "
            "them. kube-apiserver adds tolerations of 300 seconds for not-ready and unreachable nodes. This rule adds "
            "a toleration for memory pressure to pods that are not BestEffort. Other rules can add further tolerations."
        ),
    ] = True
    failure_policy: FailClosed = "Fail"


class ExtendedResourceToleration(Spec, frozen=True):
    """Adds a toleration for each extended resource that a pod requests.

    The toleration has the resource's name as its key, operator Exists and effect NoSchedule.
    """

    ignored_resources: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=317)], ...],
        bounded("Names of extended resources for which no toleration is added.", limit=MAX_LABELS, **SET),
    ] = ()
    failure_policy: FailClosed = "Ignore"


class NodeTaint(Spec, frozen=True):
    """The taint of a set of nodes. An administrator or a MachineSet adds it to the nodes."""

    key: Annotated[LabelKey, doc("Key of the taint.")]
    value: Annotated[LabelValue, doc("Value of the taint.")] = ""
    effect: Annotated[Literal["NoSchedule", "PreferNoSchedule", "NoExecute"], doc("Effect of the taint.")] = (
        "NoSchedule"
    )


class NodeLabel(Spec, frozen=True):
    """A label of a set of nodes."""

    key: Annotated[LabelKey, doc("Key of the label.")]
    value: Annotated[LabelValue, doc("Value of the label.")] = ""


Group = Annotated[str, Meta(min_length=1, max_length=253)]


class DedicatedPool(Spec, frozen=True):
    """A pool of nodes that are reserved for user groups and namespaces.

    At least one of groups and namespaces is required.
    """

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="(has(self.groups) && self.groups.size() > 0) || (has(self.namespaces) && self.namespaces.size() > 0)",
            message=SOME_SUBJECT,
            reason="FieldValueRequired",
        ),
    )

    name: Annotated[Name, doc("Name of the pool, which is shown to users whose requests are rejected.")]
    taint: Annotated[
        NodeTaint,
        doc(
            "Taint of the nodes in the pool. trimtab does not add the taint to nodes. Pods that belong to the pool "
            "receive a toleration for the taint, and other pods must not tolerate it."
        ),
    ]
    groups: Annotated[
        tuple[Group, ...],
        bounded(
            "User groups, for example team-a or system:serviceaccounts:team-a. Pods and workloads that a member of "
            "these groups creates in any namespace belong to the pool and run only on its nodes.",
            limit=MAX_LABELS,
            **SET,
        ),
    ] = ()
    namespaces: Annotated[
        tuple[NamespaceName, ...],
        bounded(
            "Namespaces whose pods belong to the pool and run only on its nodes, regardless of which user creates the "
            "pods.",
            limit=MAX_NAMESPACES,
            **SET,
        ),
    ] = ()
    node_label: Annotated[
        NodeLabel | None,
        doc(
            "Label of the nodes in the pool. Pods that belong to the pool receive a required node affinity for the "
            "label. Defaults to the key and value of the taint."
        ),
    ] = None


class DedicatedNodes(Spec, frozen=True):
    """Reserves nodes for groups and namespaces.

    Pods of a pool get a toleration of its taint and a required node affinity for its label. Other pods that tolerate
    the taint are refused. DaemonSets may tolerate it if their user has RBAC permission to create the subresource
    pods/binding in the namespace. Other pods may set spec.nodeName, which bypasses the taint, only if their user has
    this permission.
    """

    pools: Annotated[
        tuple[DedicatedPool, ...],
        bounded(
            "Pools of reserved nodes. The names and taints of the pools must be unique. If a pod matches several "
            "pools, the pool whose label the pod requires takes precedence, then the pool whose taint key the pod "
            "tolerates, and then the pool that lists the pod's namespace. Otherwise, the first pool in the list is "
            "used.",
            limit=MAX_POOLS,
            least=1,
            **_unique_taints(ONE_POOL_PER_TAINT),
        ),
    ]
    failure_policy: FailClosed = "Fail"


class HardwareClass(Spec, frozen=True):
    """A class of special hardware, the nodes that have this hardware, and the pods that use it.

    At least one of resources and podLabels is required.
    """

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="(has(self.resources) && self.resources.size() > 0) || (has(self.podLabels) && "
            "self.podLabels.size() > 0)",
            message=SOME_CHARACTERISTIC,
            reason="FieldValueRequired",
        ),
    )

    name: Annotated[Name, doc("Name of the hardware class, which is shown to users whose requests are rejected.")]
    taint: Annotated[
        NodeTaint,
        doc(
            "Taint of the nodes that have the hardware. trimtab does not add the taint to nodes. Pods that use the "
            "hardware receive a toleration for the taint."
        ),
    ]
    resources: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=317)], ...],
        bounded(
            "Resources that the hardware provides, for example nvidia.com/gpu. Pods that request any of these "
            "resources use the hardware.",
            limit=MAX_LABELS,
            **SET,
        ),
    ] = ()
    pod_labels: Annotated[
        dict[LabelKey, LabelValue],
        bounded(
            "Labels of pods that use the hardware without requesting any of its resources. Pods that have all of "
            "these labels use the hardware.",
            limit=MAX_LABELS,
        ),
    ] = msgspec.field(default_factory=dict)
    node_label: Annotated[
        NodeLabel | None,
        doc(
            "Label of the nodes that have the hardware. Pods that use the hardware receive a required node affinity "
            "for the label. If unset, no node affinity is added."
        ),
    ] = None
    exclusive: Annotated[
        bool,
        doc(
            "Whether to reject pods that do not use the hardware but tolerate the taint or bypass it with "
            "spec.nodeName. If RBAC allows the user to create pods/binding in the namespace, pods that set "
            "spec.nodeName and DaemonSets that tolerate the taint are admitted."
        ),
    ] = False


class SpecialHardware(Spec, frozen=True):
    """Keeps pods that do not need special hardware off the nodes that have it."""

    classes: Annotated[
        tuple[HardwareClass, ...],
        bounded(
            "Classes of special hardware, for example one for each GPU model. The names and taints of the classes must "
            "be unique.",
            limit=MAX_POOLS,
            least=1,
            **_unique_taints(ONE_CLASS_PER_TAINT),
        ),
    ]
    failure_policy: FailClosed = "Fail"


class PlacementAdmissionSpec(Spec, frozen=True):
    """Admission rules for pods and pod templates. A rule that is unset is not applied."""

    mode: Annotated[
        Literal["Enforce", "Warn"],
        doc(
            "Whether the rules are enforced. In Enforce mode, the rules change and reject requests. Warn mode is a dry "
            "run: clients only receive warnings, status.counts contains the results that Enforce mode would have, and "
            "the failure policy of all rules is Ignore. Defaults to Enforce, so that the rules apply when the "
            "PlacementAdmission is created."
        ),
    ] = "Enforce"
    exempt_namespaces: Annotated[
        tuple[NamespaceName, ...],
        bounded(
            "Namespaces to which the rules do not apply. kube-system and the namespace of the operator are always "
            "exempt.",
            limit=MAX_NAMESPACES,
            **SET,
        ),
    ] = ()
    pod_node_constraints: Annotated[
        PodNodeConstraints | None,
        doc(
            "Rejects pods and pod templates that set spec.nodeName or select nodes by a label in "
            "nodeSelectorLabelBlacklist, unless RBAC allows the user to create pods/binding in the namespace. The rule "
            "applies to Pods, PodTemplates, ReplicationControllers, Deployments, ReplicaSets, StatefulSets, "
            "DeploymentConfigs, Jobs and CronJobs. The additional check DaemonSets extends the rule to DaemonSets. "
            "Equivalent to OpenShift's PodNodeConstraints admission plugin."
        ),
    ] = None
    pod_node_selector: Annotated[
        PodNodeSelector | None,
        doc(
            "Adds the node selector of the namespace to pods, and rejects pods whose own node selector conflicts with "
            "it. The node selector of a namespace is the value of its scheduler.alpha.kubernetes.io/node-selector "
            "annotation. If the namespace does not have this annotation, the openshift.io/node-selector annotation is "
            "used. If the namespace has neither annotation, clusterDefaultNodeSelector is used. An empty annotation "
            "means that the namespace has no node selector."
        ),
    ] = None
    default_toleration_seconds: Annotated[
        DefaultTolerationSeconds | None,
        doc(
            "Adds tolerations for the node.kubernetes.io/not-ready and node.kubernetes.io/unreachable taints to pods "
            "that do not have such tolerations."
        ),
    ] = None
    pod_toleration_restriction: Annotated[
        PodTolerationRestriction | None,
        doc(
            "Adds the default tolerations of the namespace to pods, and rejects pods with tolerations that the "
            "namespace does not allow."
        ),
    ] = None
    extended_resource_toleration: Annotated[
        ExtendedResourceToleration | None,
        doc(
            "Adds a toleration for each extended resource that a pod requests. The key of the toleration is the name "
            "of the resource, the operator is Exists, and the effect is NoSchedule."
        ),
    ] = None
    dedicated_nodes: Annotated[
        DedicatedNodes | None,
        doc(
            "Reserves nodes for the pods of user groups and namespaces. These pods receive a toleration and a required "
            "node affinity for the reserved nodes. Other pods that tolerate the taint of the reserved nodes are "
            "rejected. If RBAC allows the user to create pods/binding in the namespace, DaemonSets may tolerate the "
            "taint and pods may set spec.nodeName."
        ),
    ] = None
    special_hardware: Annotated[
        SpecialHardware | None,
        doc(
            "Adds tolerations to pods that use special hardware, for example GPUs, so that these pods can run on the "
            "tainted nodes that have the hardware. The taint keeps other pods off these nodes. If a class is "
            "exclusive, pods that tolerate the taint without using the hardware are rejected."
        ),
    ] = None


class RuleCount(Status, frozen=True):
    """Number of requests with the same rule and result."""

    rule: Annotated[RuleName, doc("Name of the rule that was applied.")]
    result: Annotated[
        Result,
        doc(
            "Result of the rule. Mutated means that the rule changed the object, or would have changed the object in "
            "Enforce mode. Allowed means that the rule admitted the final object. Refused means that the rule rejected "
            "the request. Warned means that the rule would have rejected the request in Enforce mode. A request that "
            "is changed and admitted is counted both as Mutated and as Allowed."
        ),
    ]
    count: Annotated[
        BigCount,
        doc(
            "Number of requests with this rule and result since the PlacementAdmission was created. Dry-run requests "
            "are not counted."
        ),
    ] = 0


class RecentRefusal(Status, frozen=True):
    """A request that a rule rejected. If several rules rejected the request, there is one entry for each rule."""

    time: Annotated[datetime, doc("Time at which the request was rejected.")]
    rule: Annotated[RuleName, doc("Name of the rule that rejected the request.")]
    kind: Annotated[ObjectName, doc("Kind of the rejected object, for example Pod.")]
    namespace: Annotated[ObjectName, doc("Namespace of the rejected object.")]
    name: Annotated[ObjectName, doc("Name of the rejected object, or its generateName if the object has no name yet.")]
    message: Annotated[ShortText, doc("Human-readable message that was returned to the client.")] = ""


class ReplicaStatus(Status, frozen=True):
    """A replica of the operator that serves admission requests."""

    name: Annotated[ObjectName, doc("Name of the replica's pod.")]
    last_seen: Annotated[
        datetime,
        doc(
            "Time at which the replica last updated this status. A replica that has not updated it for three minutes "
            "is removed from the list."
        ),
    ]
    certificate_expires: Annotated[
        datetime | None,
        doc("Time at which the serving certificate of the replica expires. Unset if the replica has no certificate."),
    ] = None
    problem: Annotated[
        ShortText,
        doc(
            "Human-readable message that explains why the replica cannot apply the rules or maintain its certificate. "
            "Empty if there is no problem."
        ),
    ] = ""


class PlacementAdmissionStatus(Status, frozen=True):
    """Observed status of the PlacementAdmission: conditions, numbers of requests, and replicas."""

    observed_generation: ObservedGeneration = 0
    state: Annotated[str, state_meta("PlacementAdmission")] = ""
    conditions: Annotated[
        tuple[Condition, ...],
        condition_list(
            "Current conditions of the PlacementAdmission. Ready is True if the rules are valid, the webhooks are "
            "registered and a replica serves them. Degraded is True if a problem prevents the operator from "
            "fulfilling part of the spec. PermissionsMissing is True if trimtab's service account lacks permissions "
            "that the PlacementAdmission needs. If the rules are invalid, Ready is False, Degraded is True, and the "
            "last valid rules remain in effect. Only replicas update the conditions. If all replicas are killed, the "
            "conditions do not change, but lastSeen of the replicas is more than three minutes ago."
        ),
    ] = ()
    mutated: Annotated[
        BigCount,
        doc(
            "Number of requests that the rules have changed, or would have changed in Enforce mode, since the "
            "PlacementAdmission was created."
        ),
    ] = 0
    refused: Annotated[
        BigCount,
        doc(
            "Number of requests that the rules have rejected since the PlacementAdmission was created. Rules reject "
            "requests only in Enforce mode. In Warn mode, status.counts contains the number of requests that would "
            "have been rejected, with the result Warned."
        ),
    ] = 0
    counts: Annotated[
        tuple[RuleCount, ...],
        bounded("Number of requests by rule and result.", limit=MAX_COUNTS, **list_map("rule", "result")),
    ] = ()
    recent_refusals: Annotated[
        tuple[RecentRefusal, ...],
        bounded(
            "Most recent requests that the rules rejected in Enforce mode, latest first.", limit=MAX_REFUSALS, **ATOMIC
        ),
    ] = ()
    replicas: Annotated[
        tuple[ReplicaStatus, ...],
        bounded(
            "Replicas of the operator that serve admission requests, sorted by name.",
            limit=MAX_REPLICAS,
            **list_map("name"),
        ),
    ] = ()

    def running_replicas(self, now: float) -> tuple[ReplicaStatus, ...]:
        """Return the replicas that have updated the status recently. ``now`` is in seconds since the epoch."""
        return tuple(each for each in self.replicas if now - each.last_seen.timestamp() < REPLICA_TIMEOUT)


class PlacementAdmission(Spec, frozen=True):
    """Configures placement admission, which validates and changes how new pods and pod templates select nodes.

    Placement admission uses admission webhooks. A cluster can have only one PlacementAdmission, which must be named
    default. Without a PlacementAdmission, no rules are applied.

    By default, the admission webhooks are disabled. To enable them, set the Helm value admission.enabled to true.
    """

    cel: ClassVar[tuple[Rule, ...]] = (Rule(rule=f"self.metadata.name == '{NAME}'", message=ONE_FOR_ALL),)

    metadata: ObjectMeta = ObjectMeta()
    spec: PlacementAdmissionSpec = PlacementAdmissionSpec()
    status: PlacementAdmissionStatus = PlacementAdmissionStatus()
    api_version: Literal["trimtab.dev/v1alpha1"] = "trimtab.dev/v1alpha1"
    kind: Literal["PlacementAdmission"] = KIND

    @property
    def name(self) -> str:
        """Return ``metadata.name``."""
        return self.metadata.name

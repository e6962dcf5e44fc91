"""Admission policies that ``trimtab convert --to admission-policy`` makes have the verdicts of the rules, case by case.

Each case is sent to a real API server twice, as a dry run: before the policies exist, which gives the object with all
defaults, and afterwards. The rules, applied to the first result, must predict the second one: the tolerations, the node
affinity and the node selector, or the refusal with its message.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.conftest import MakeCluster
from tests.fixtures.clusters import ADMISSION_POLICIES, NO_ADMISSION_POLICIES, require_kubernetes
from tests.fixtures.users import User
from tests.fixtures.waiting import eventually
from trimtab.admission.admission_policies import to_admission_policies
from trimtab.admission.requests import TEMPLATE_PATHS, Attributes, NamespaceInfo, PodSpec, PodTemplate, UserInfo
from trimtab.admission.reviewer import compile_rules
from trimtab.admission.rules import Refusal
from trimtab.api.decode import decode_placement_admission
from trimtab.api.placement_admission import PlacementAdmission
from trimtab.kube.api import Forbidden
from trimtab.kube.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    POD_TEMPLATES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)
from trimtab_local.cluster import LocalCluster
from trimtab_local.components import DEFAULT_COMPONENTS, Settings

MARK = secrets.token_hex(4)
ONE, TWO, SHOP, EXEMPT = (f"{name}-{MARK}" for name in ("one", "two", "shop", "exempt"))
KUBERNETES, OPENSHIFT = "scheduler.alpha.kubernetes.io/node-selector", "openshift.io/node-selector"
ANNOTATED, PROJECT, BOTH, EMPTY, BAD, TWICE = (
    f"{name}-{MARK}" for name in ("annotated", "project", "both", "empty", "bad", "twice")
)
NAMESPACE_ANNOTATIONS: Mapping[str, Mapping[str, str]] = {
    ONE: {}, TWO: {}, SHOP: {}, EXEMPT: {},
    ANNOTATED: {KUBERNETES: " env = test , example.com/os=fedora"},
    PROJECT: {OPENSHIFT: "zone=a"},
    BOTH: {OPENSHIFT: "zone=a", KUBERNETES: "env=test"},
    EMPTY: {KUBERNETES: ""},
    BAD: {KUBERNETES: "env=test,x=y=z"},
    TWICE: {KUBERNETES: "env=test,env=prod"},
}  # fmt: skip
CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
DAEMONS = "system:serviceaccount:kube-system:daemon-set-controller"
ACCOUNTS = ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")

SPEC = f"""
exemptNamespaces: [{EXEMPT}]
defaultTolerationSeconds: {{notReadyTolerationSeconds: 60, unreachableTolerationSeconds: 300}}
extendedResourceToleration: {{ignoredResources: [example.com/ignored]}}
dedicatedNodes:
  pools:
  - {{name: one, namespaces: [{ONE}], taint: {{key: dedicated, value: one}}}}
  - {{name: team, groups: [team], namespaces: [{TWO}], taint: {{key: dedicated, value: team}},
     nodeLabel: {{key: pool, value: x}}}}
  - {{name: twin, groups: [team], taint: {{key: twin, effect: NoExecute}},
     nodeLabel: {{key: pool, value: x}}}}
  - {{name: rest, groups: [team, others], taint: {{key: rest, value: "1"}}}}
specialHardware:
  classes:
  - {{name: gpu, resources: [example.com/gpu], taint: {{key: gpu}}, nodeLabel: {{key: hardware, value: gpu}},
     exclusive: true}}
  - {{name: ssd, podLabels: {{disk: ssd, fast: "yes"}}, taint: {{key: disk, value: ssd, effect: PreferNoSchedule}}}}
"""
SELECTION = f"""
podNodeConstraints:
  nodeSelectorLabelBlacklist: [region, kubernetes.io/hostname, dedicated]
  additionalChecks: [NodeAffinity, Tolerations, GatedPodUpdates, EphemeralContainers, DaemonSets, TopologyKeys]
  protectedTaints:
  - {{key: dedicated}}
  - {{key: gpu, value: a}}
  - {{key: infra, value: "", effect: NoExecute}}
  - {{key: node.kubernetes.io/unreachable}}
podNodeSelector:
  clusterDefaultNodeSelector: region=west
  namespaceWhitelists: {{{TWO}: "region=west,env=test"}}
  exemptDaemonSetPods: true
extendedResourceToleration: {{}}
dedicatedNodes:
  pools:
  - {{name: one, namespaces: [{ONE}], taint: {{key: dedicated, value: one}}}}
  - {{name: second, namespaces: [{ONE}], taint: {{key: infra, effect: NoExecute}},
     nodeLabel: {{key: region, value: second}}}}
specialHardware:
  classes:
  - {{name: gpu, resources: [example.com/gpu], taint: {{key: gpu, value: a}}, nodeLabel: {{key: region, value: gpus}}}}
"""
PLAIN = """
podNodeConstraints:
  nodeSelectorLabelBlacklist: [region, kubernetes.io/hostname]
podNodeSelector: {}
"""

CHECKS = ["NodeAffinity", "Tolerations", "GatedPodUpdates", "EphemeralContainers", "DaemonSets", "TopologyKeys"]
LARGE = {
    "podNodeConstraints": {
        "nodeSelectorLabelBlacklist": [f"example.com/label-{number}" for number in range(64)],
        "additionalChecks": CHECKS,
        "protectedTaints": [{"key": f"protected-{number}", "value": "v"} for number in range(64)],
    },
    "podNodeSelector": {"clusterDefaultNodeSelector": ",".join(f"k{number}=v" for number in range(40))},
    "defaultTolerationSeconds": {},
    "extendedResourceToleration": {},
    "dedicatedNodes": {
        "pools": [
            {"name": f"p{number}", "taint": {"key": f"pool-{number}", "value": "v"}}
            | ({"namespaces": [ONE]} if number < 32 else {"groups": [f"group-{number}"]})
            for number in range(64)
        ]
    },
    "specialHardware": {
        "classes": [
            {
                "name": f"c{number}",
                "resources": [f"example.com/gpu-{number}", f"example.com/part-{number}"],
                "podLabels": {"disk": f"d{number}"},
                "taint": {"key": f"hardware-{number}"},
                "nodeLabel": {"key": f"hardware-{number}", "value": "yes"},
                "exclusive": True,
            }
            for number in range(64)
        ]
    },
}
"""As many items as a PlacementAdmission permits."""


class Person(NamedTuple):
    """A user of the cluster, and whether they may create pods/binding."""

    name: str
    groups: tuple[str, ...] = ()
    may_bind: bool = False


DEV, BINDER = Person("dev"), Person("binder", may_bind=True)
MEMBER, OTHER = Person("member", ("team",)), Person("other", ("others",))
PODS_OF = Person(CONTROLLER, ACCOUNTS)
DAEMON = Person(DAEMONS, ACCOUNTS, may_bind=True)


def toleration(key: str, value: str = "", effect: str = "NoSchedule", **more: Any) -> dict[str, Any]:
    found = {"key": key, "operator": "Equal" if value else "Exists", "value": value, "effect": effect, **more}
    return {name: each for name, each in found.items() if each != ""}


def needs(*terms: Any, **more: Any) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required, **more}}


def labelled(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def requesting(**amounts: str) -> dict[str, Any]:
    named = {f"example.com/{name}": each for name, each in amounts.items()}
    return {"containers": [{"name": "main", "image": "none", "resources": {"limits": named, "requests": named}}]}


def owner(kind: str) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "1", "controller": True}


class Case(NamedTuple):
    """A request to create an object, or to update it if there is an old pod spec."""

    who: Person
    namespace: str
    resource: Resource
    spec: Mapping[str, Any]
    labels: Mapping[str, str] = {}
    owners: Sequence[Mapping[str, Any]] = ()
    old: Mapping[str, Any] | None = None

    def updated(self, stored: dict[str, Any]) -> dict[str, Any]:
        """The stored object with the new spec: tolerations are appended, other fields replaced."""
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(stored))
        at = found
        for each in () if self.resource is PODS else TEMPLATE_PATHS[self.resource.group, self.resource.kind]:
            at = at[each]
        spec = at["spec"]
        tolerations = [*spec.get("tolerations", ()), *self.spec.get("tolerations", ())]
        at["spec"] = {**spec, **self.spec, **({"tolerations": tolerations} if tolerations else {})}
        return found

    @property
    def subresource(self) -> str:
        """The subresource of an update."""
        return "ephemeralcontainers" if "ephemeralContainers" in self.spec else ""

    def manifest(self) -> dict[str, Any]:
        """The object to create."""
        spec = {"containers": [{"name": "main", "image": "none"}], **self.spec}
        metadata = {"name": "web", "labels": dict(self.labels)}
        owners = {"ownerReferences": list(self.owners)} if self.owners else {}
        if self.resource is PODS:
            return {"metadata": metadata | owners, "spec": spec}
        if self.resource in (JOBS, CRON_JOBS):
            spec["restartPolicy"] = "Never"
        template = {"metadata": {"labels": {"app": "web", **self.labels}}, "spec": spec}
        path = TEMPLATE_PATHS[self.resource.group, self.resource.kind]
        body: dict[str, Any] = {"metadata": {"name": "web"} | owners}
        at = body
        for each in path[:-1]:
            at = at.setdefault(each, {})
        at[path[-1]] = template
        if self.resource is CRON_JOBS:
            body["spec"]["schedule"] = "0 0 * * *"
        elif self.resource is REPLICATION_CONTROLLERS:
            body["spec"]["selector"] = {"app": "web"}
        elif self.resource not in (JOBS, POD_TEMPLATES):
            body["spec"]["selector"] = {"matchLabels": {"app": "web"}}
            if self.resource is STATEFUL_SETS:
                body["spec"]["serviceName"] = "web"
        return body


def tolerating(*found: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"tolerations": list(found), **more}


OF_ONE, OF_TEAM, OF_REST = (toleration("dedicated", "one"), toleration("dedicated", "team"), toleration("rest", "1"))
OF_SECOND = {"key": "infra", "operator": "Equal", "effect": "NoExecute"}
WIDE = {"operator": "Exists"}
HOST = {"matchExpressions": [labelled("zone", "a")]}
BY_NAME = {"matchFields": [labelled("metadata.name", "n1")]}
POOL = {"matchExpressions": [labelled("pool", "x")]}

CASES = {
    "plain pod": Case(DEV, SHOP, PODS, {}),
    "pod with its own seconds": Case(
        DEV, SHOP, PODS, tolerating(toleration("node.kubernetes.io/not-ready", "", "NoExecute", tolerationSeconds=5))
    ),
    "pod that tolerates all": Case(DEV, EXEMPT, PODS, tolerating(WIDE)),
    "pod of a pool's namespace": Case(DEV, ONE, PODS, {}),
    "pod of a pool's namespace with its toleration": Case(DEV, ONE, PODS, tolerating(OF_ONE)),
    "pod with one term": Case(DEV, ONE, PODS, needs(HOST)),
    "pod with two terms": Case(DEV, ONE, PODS, needs(HOST, BY_NAME)),
    "pod with a preference": Case(
        DEV, ONE, PODS,
        {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": HOST}]}}},
    ),
    "pod with pod affinity": Case(
        DEV, ONE, PODS,
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}]}}},
    ),
    "pod with the node selector": Case(DEV, ONE, PODS, {"nodeSelector": {"dedicated": "one"}}),
    "pod with another node selector": Case(DEV, ONE, PODS, {"nodeSelector": {"dedicated": "two", "a": "b"}}),
    "pod in some terms of the pool": Case(DEV, TWO, PODS, needs(POOL, HOST)),
    "pod tolerates another pool": Case(DEV, ONE, PODS, tolerating(OF_TEAM)),
    "pod of a stranger tolerates a pool": Case(DEV, SHOP, PODS, tolerating(OF_ONE)),
    "pod tolerates any value": Case(DEV, SHOP, PODS, tolerating(toleration("dedicated"))),
    "pod tolerates any effect": Case(DEV, SHOP, PODS, tolerating(toleration("dedicated", "one", ""))),
    "pod tolerates everything": Case(DEV, SHOP, PODS, tolerating(WIDE)),
    "pod tolerates every NoExecute": Case(DEV, SHOP, PODS, tolerating(WIDE | {"effect": "NoExecute"})),
    "pod tolerates another value": Case(DEV, SHOP, PODS, tolerating(toleration("dedicated", "three"))),
    "pod tolerates another effect": Case(DEV, SHOP, PODS, tolerating(toleration("dedicated", "one", "NoExecute"))),
    "binder's pod tolerates a pool": Case(BINDER, SHOP, PODS, tolerating(OF_ONE)),
    "binder's DaemonSet tolerates a pool": Case(BINDER, SHOP, DAEMON_SETS, tolerating(OF_ONE)),
    "stranger's DaemonSet tolerates a pool": Case(DEV, SHOP, DAEMON_SETS, tolerating(OF_ONE)),
    "stranger's pod pretends to be of a DaemonSet": Case(
        DEV, SHOP, PODS, tolerating(OF_ONE), owners=(owner("DaemonSet"),)
    ),
    "pod of a DaemonSet": Case(DAEMON, SHOP, PODS, tolerating(WIDE), owners=(owner("DaemonSet"),)),
    "pod of a DaemonSet in a pool's namespace": Case(DAEMON, ONE, PODS, {}, owners=(owner("DaemonSet"),)),
    "member's pod": Case(MEMBER, SHOP, PODS, {}),
    "member's pod chooses by key": Case(MEMBER, SHOP, PODS, tolerating(OF_REST)),
    "member's pod chooses by label": Case(MEMBER, SHOP, PODS, {"nodeSelector": {"rest": "1"}}),
    "member's pod tolerates everything": Case(MEMBER, SHOP, PODS, tolerating(WIDE)),
    "member's pod in another pool's namespace": Case(MEMBER, ONE, PODS, {}),
    "other's pod": Case(OTHER, SHOP, PODS, {}),
    "member's twin is tolerated for a while": Case(
        MEMBER, SHOP, PODS, tolerating(toleration("twin", "", "NoExecute", tolerationSeconds=9))
    ),
    "controller's pod of the member's template": Case(
        PODS_OF, SHOP, PODS, tolerating(OF_TEAM, **needs(POOL)), owners=(owner("ReplicaSet"),)
    ),
    "controller's pod of a pool with namespaces": Case(
        PODS_OF, SHOP, PODS, tolerating(OF_ONE), owners=(owner("ReplicaSet"),)
    ),
    "controller's pod in a pool's namespace": Case(PODS_OF, ONE, PODS, {}, owners=(owner("ReplicaSet"),)),
    "controller's chosen pod in a pool's namespace": Case(
        PODS_OF, ONE, PODS, tolerating(OF_REST, nodeSelector={"rest": "1"}), owners=(owner("ReplicaSet"),)
    ),
    "node name bypasses taints": Case(DEV, SHOP, PODS, {"nodeName": "n1"}),
    "binder's node name": Case(BINDER, SHOP, PODS, {"nodeName": "n1"}),
    "node name in a pool's namespace": Case(DEV, ONE, PODS, {"nodeName": "n1"}),
    "pod requests a GPU": Case(DEV, SHOP, PODS, requesting(gpu="1")),
    "pod requests no GPU": Case(DEV, SHOP, PODS, requesting(gpu="0")),
    "pod requests others": Case(DEV, SHOP, PODS, requesting(other="1", ignored="2", another="3")),
    "init container requests": Case(
        DEV, SHOP, PODS,
        {"initContainers": [{"name": "first", "image": "none", **{k: v for k, v in requesting(gpu="1", z="1")
            ["containers"][0].items() if k == "resources"}}]},
    ),
    "pod claims the GPU's taint": Case(DEV, SHOP, PODS, tolerating(toleration("gpu"))),
    "pod requests a GPU and tolerates it": Case(DEV, SHOP, PODS, requesting(gpu="1") | tolerating(toleration("gpu"))),
    "pod with the labels": Case(DEV, SHOP, PODS, {}, {"disk": "ssd", "fast": "yes"}),
    "pod with a part of the labels": Case(DEV, SHOP, PODS, {}, {"disk": "ssd"}),
    "member's GPU": Case(MEMBER, SHOP, PODS, requesting(gpu="1")),
    "GPU in a DaemonSet": Case(BINDER, SHOP, DAEMON_SETS, requesting(gpu="1")),
    "GPU in a Deployment": Case(DEV, SHOP, DEPLOYMENTS, requesting(gpu="1")),
    "Deployment claims the GPU's taint": Case(DEV, SHOP, DEPLOYMENTS, tolerating(toleration("gpu"))),
    "controller's ReplicaSet": Case(
        Person("system:serviceaccount:kube-system:deployment-controller", ACCOUNTS), ONE, REPLICA_SETS, {},
        owners=(owner("Deployment"),),
    ),
    "member's controlled ReplicaSet": Case(MEMBER, SHOP, REPLICA_SETS, {}, owners=(owner("Rollout"),)),
    "controlled ReplicaSet in a pool's namespace": Case(DEV, ONE, REPLICA_SETS, {}, owners=(owner("Rollout"),)),
    "many tolerations": Case(DEV, SHOP, PODS, tolerating(*(toleration(f"k{each}") for each in range(257)))),
    **{
        f"{resource.kind}: {name}": Case(who, namespace, resource, spec)
        for resource in (
            CRON_JOBS, DAEMON_SETS, DEPLOYMENTS, JOBS, POD_TEMPLATES, REPLICA_SETS, REPLICATION_CONTROLLERS,
            STATEFUL_SETS,
        )
        for name, who, namespace, spec in (
            ("pool", DEV, ONE, needs(HOST)),
            ("stranger", DEV, SHOP, tolerating(OF_ONE)),
            ("member", MEMBER, SHOP, {}),
            ("node name", DEV, SHOP, {"nodeName": "n1"}),
        )
    },
}  # fmt: skip


GATED = {"schedulingGates": [{"name": "example.com/wait"}]}
DEBUG = {"ephemeralContainers": [{"name": "debug", "image": "none"}]}
OTHER_IMAGE = {"containers": [{"name": "main", "image": "other"}]}

UPDATES = {
    "pod gets a pool's toleration": Case(DEV, SHOP, PODS, tolerating(OF_ONE), old={}),
    "pod gets another toleration": Case(DEV, SHOP, PODS, tolerating(toleration("x")), old={}),
    "pod of a pool gets an image": Case(DEV, SHOP, PODS, OTHER_IMAGE, old=tolerating(OF_ONE)),
    "binder's image": Case(BINDER, SHOP, PODS, OTHER_IMAGE, old=tolerating(OF_ONE)),
    "pod of a pool is debugged": Case(DEV, SHOP, PODS, DEBUG, old=tolerating(OF_ONE)),
    "pod of no pool is debugged": Case(DEV, SHOP, PODS, DEBUG, old={}),
    "Deployment gets a pool's toleration": Case(DEV, SHOP, DEPLOYMENTS, tolerating(OF_ONE), old={}),
    "Deployment of a pool gets an image": Case(DEV, SHOP, DEPLOYMENTS, OTHER_IMAGE, old=tolerating(OF_ONE)),
    "Deployment of a pool stays as it is": Case(DEV, SHOP, DEPLOYMENTS, {}, old=tolerating(OF_ONE)),
    "Deployment in a pool's namespace changes": Case(DEV, ONE, DEPLOYMENTS, OTHER_IMAGE, old={}),
}

WEST, EAST, HOSTNAME = {"region": "west"}, {"region": "east"}, {"kubernetes.io/hostname": "n1"}


def preferring(*terms: Any) -> dict[str, Any]:
    preferred = [{"weight": 1, "preference": each} for each in terms]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


BY_REGION = {"matchExpressions": [labelled("region", "east"), labelled("zone", "a")]}
NOT_HERE = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]}]}


def near(key: str, *, kind: str = "podAffinity", preferred: bool = False) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"a": "b"}}}
    name = f"{'preferred' if preferred else 'required'}DuringSchedulingIgnoredDuringExecution"
    return {"affinity": {kind: {name: [{"weight": 1, "podAffinityTerm": term} if preferred else term]}}}


def spread(key: str) -> dict[str, Any]:
    selector = {"matchLabels": {"a": "b"}}
    constraint = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return {"topologySpreadConstraints": [constraint]}


SELECTING = {
    "plain pod": Case(DEV, SHOP, PODS, {}),
    "the default itself": Case(DEV, SHOP, PODS, {"nodeSelector": WEST}),
    "another value of the default": Case(DEV, SHOP, PODS, {"nodeSelector": EAST}),
    "another value, binder": Case(BINDER, SHOP, PODS, {"nodeSelector": EAST}),
    "a blacklisted label": Case(DEV, SHOP, PODS, {"nodeSelector": HOSTNAME}),
    "two blacklisted labels": Case(DEV, EMPTY, PODS, {"nodeSelector": HOSTNAME | EAST}),
    "a blacklisted label, binder": Case(BINDER, SHOP, PODS, {"nodeSelector": HOSTNAME}),
    "label and node name": Case(DEV, SHOP, PODS, {"nodeSelector": HOSTNAME, "nodeName": "n1"}),
    "node name": Case(DEV, SHOP, PODS, {"nodeName": "n1"}),
    "node name, binder": Case(BINDER, SHOP, PODS, {"nodeName": "n1"}),
    "other label": Case(DEV, SHOP, PODS, {"nodeSelector": {"disk": "ssd"}}),
    "whitelisted namespace": Case(DEV, TWO, PODS, {}),
    "whitelisted label": Case(DEV, TWO, PODS, {"nodeSelector": {"env": "test"}}),
    "label that is not whitelisted": Case(DEV, TWO, PODS, {"nodeSelector": {"disk": "ssd"}}),
    "value that is not whitelisted": Case(DEV, TWO, PODS, {"nodeSelector": {"env": "prod"}}),
    "annotation": Case(DEV, ANNOTATED, PODS, {}),
    "annotation and own label": Case(DEV, ANNOTATED, PODS, {"nodeSelector": {"disk": "ssd", "env": "test"}}),
    "conflict with the annotation": Case(DEV, ANNOTATED, PODS, {"nodeSelector": {"env": "prod"}}),
    "default in an annotated namespace": Case(DEV, ANNOTATED, PODS, {"nodeSelector": WEST}),
    "project": Case(DEV, PROJECT, PODS, {}),
    "conflict with the project": Case(DEV, PROJECT, PODS, {"nodeSelector": {"zone": "b"}}),
    "both annotations": Case(DEV, BOTH, PODS, {}),
    "empty annotation": Case(DEV, EMPTY, PODS, {}),
    "invalid annotation": Case(DEV, BAD, PODS, {}),
    "annotation with a key twice": Case(DEV, TWICE, PODS, {}),
    "required affinity": Case(DEV, SHOP, PODS, needs(BY_REGION)),
    "required affinity, binder": Case(BINDER, SHOP, PODS, needs(BY_REGION)),
    "preferred affinity": Case(DEV, SHOP, PODS, preferring(HOST, NOT_HERE)),
    "affinity by name": Case(DEV, SHOP, PODS, needs(HOST, BY_NAME)),
    "other affinity": Case(DEV, SHOP, PODS, needs(HOST) | preferring()),
    "pod affinity": Case(DEV, SHOP, PODS, near("kubernetes.io/hostname")),
    "pod affinity, binder": Case(BINDER, SHOP, PODS, near("kubernetes.io/hostname")),
    "preferred pod anti-affinity": Case(DEV, SHOP, PODS, near("region", kind="podAntiAffinity", preferred=True)),
    "pod affinity by another label": Case(DEV, SHOP, PODS, near("zone")),
    "topology spread": Case(DEV, SHOP, PODS, spread("kubernetes.io/hostname") | near("region")),
    "topology spread by another label": Case(DEV, SHOP, PODS, spread("zone")),
    "topology spread in a Deployment": Case(DEV, SHOP, DEPLOYMENTS, spread("region")),
    "controller's topology spread": Case(PODS_OF, SHOP, PODS, spread("region"), owners=(owner("ReplicaSet"),)),
    "gated pod with topology spread": Case(DEV, SHOP, PODS, {"nodeSelector": {"a": "b"}}, old=GATED | spread("region")),
    "debugging a pod with pod affinity": Case(DEV, SHOP, PODS, DEBUG, old=near("region")),
    "protected taint": Case(DEV, EMPTY, PODS, tolerating(toleration("gpu", "a"))),
    "any value of a protected taint": Case(DEV, EMPTY, PODS, tolerating(toleration("gpu"))),
    "other value of a protected taint": Case(DEV, EMPTY, PODS, tolerating(toleration("gpu", "b"))),
    "taint without a value": Case(DEV, EMPTY, PODS, tolerating(toleration("infra", "", "NoExecute"))),
    "other effect": Case(DEV, EMPTY, PODS, tolerating(toleration("infra"))),
    "all taints": Case(DEV, EMPTY, PODS, tolerating(WIDE)),
    "all taints, binder": Case(BINDER, EXEMPT, DAEMON_SETS, tolerating(WIDE)),
    "toleration of the own pool": Case(DEV, ONE, PODS, tolerating(OF_ONE)),
    "affinity for the own pool": Case(DEV, ONE, PODS, needs({"matchExpressions": [labelled("dedicated", "one")]})),
    "affinity for another pool": Case(DEV, ONE, PODS, needs({"matchExpressions": [labelled("dedicated", "two")]})),
    "own seconds for a protected taint": Case(
        DEV, SHOP, PODS, tolerating(toleration("node.kubernetes.io/unreachable", "", "NoExecute", tolerationSeconds=9))
    ),
    "own seconds for the own pool": Case(DEV, ONE, PODS, tolerating(OF_SECOND | {"tolerationSeconds": 9})),
    "toleration of the second own pool": Case(DEV, ONE, PODS, tolerating(OF_SECOND)),
    "label of the second own pool": Case(
        DEV, ONE, PODS, needs({"matchExpressions": [labelled("region", "second")]}, {"matchExpressions": []})
    ),
    "toleration of one own pool and label of the second": Case(
        DEV, ONE, PODS, needs({"matchExpressions": [labelled("region", "second")]}) | tolerating(OF_ONE)
    ),
    "Deployment with the toleration of the second own pool": Case(DEV, ONE, DEPLOYMENTS, tolerating(OF_SECOND)),
    "node selector for the own pool": Case(DEV, ONE, PODS, {"nodeSelector": {"dedicated": "one"}}),
    "hardware": Case(DEV, EMPTY, PODS, requesting(gpu="1")),
    "hardware with its toleration": Case(DEV, EMPTY, PODS, requesting(gpu="1") | tolerating(toleration("gpu", "a"))),
    "hardware in a Deployment with its toleration": Case(
        DEV, EMPTY, DEPLOYMENTS, requesting(gpu="1") | tolerating(toleration("gpu", "a"))
    ),
    "controller's label": Case(PODS_OF, SHOP, PODS, {"nodeSelector": HOSTNAME}, owners=(owner("ReplicaSet"),)),
    "controller's affinity": Case(PODS_OF, SHOP, PODS, needs(BY_NAME), owners=(owner("ReplicaSet"),)),
    "DaemonSet's pod": Case(DAEMON, SHOP, PODS, needs(BY_NAME), owners=(owner("DaemonSet"),)),
    "stranger's DaemonSet pod": Case(DEV, SHOP, PODS, {}, owners=(owner("DaemonSet"),)),
    "many tolerations": Case(DEV, EMPTY, PODS, tolerating(*(toleration(f"k{each}") for each in range(257)))),
    **{
        f"{resource.kind}: {name}": Case(who, SHOP, resource, spec)
        for resource in (CRON_JOBS, DAEMON_SETS, DEPLOYMENTS, JOBS, POD_TEMPLATES, STATEFUL_SETS)
        for name, who, spec in (
            ("plain", DEV, {}),
            ("label", DEV, {"nodeSelector": HOSTNAME | WEST}),
            ("binder's label", BINDER, {"nodeSelector": HOSTNAME}),
            ("affinity and toleration", DEV, needs(BY_NAME, BY_REGION) | tolerating(OF_ONE)),
        )
    },
    "update of a label": Case(DEV, SHOP, PODS, {"nodeSelector": HOSTNAME}, old=GATED),
    "update of another label": Case(DEV, SHOP, PODS, {"nodeSelector": {**HOSTNAME, "a": "b"}},
                                    old=GATED | {"nodeSelector": HOSTNAME}),
    "update of the affinity": Case(DEV, EMPTY, PODS, needs(BY_REGION), old=GATED),
    "update, binder": Case(BINDER, EMPTY, PODS, {"nodeSelector": HOSTNAME}, old=GATED),
    "update of tolerations": Case(DEV, SHOP, PODS, tolerating(toleration("gpu", "a")), old={}),
    "update of an image": Case(DEV, SHOP, PODS, OTHER_IMAGE, old={"nodeSelector": HOSTNAME}),
    "debugging": Case(DEV, SHOP, PODS, DEBUG, old=needs(BY_NAME)),
    "debugging a pod with a label": Case(DEV, SHOP, PODS, DEBUG, old={"nodeSelector": HOSTNAME}),
    "debugging, binder": Case(BINDER, SHOP, PODS, DEBUG, old=needs(BY_NAME)),
    "debugging an ordinary pod": Case(DEV, SHOP, PODS, DEBUG, old={}),
    "Deployment with the same template": Case(DEV, SHOP, DEPLOYMENTS, {}, old={"nodeSelector": HOSTNAME}),
    "Deployment with another template": Case(DEV, SHOP, DEPLOYMENTS, OTHER_IMAGE, old={"nodeSelector": HOSTNAME}),
}  # fmt: skip

PLAIN_CASES = {
    name: SELECTING[name]
    for name in ("plain pod", "a blacklisted label", "node name", "label and node name", "required affinity",
                 "all taints", "annotation", "update of a label", "debugging", "DaemonSet: label", "Job: label")
}  # fmt: skip

MANY = [toleration(f"harmless-{number}") for number in range(250)]
TERMS = [{"matchExpressions": [labelled("disk", f"d{number}")]} for number in range(1000)]
CLAIMS = requesting(**{f"gpu-{number}": "1" for number in range(64)})
LARGE_CASES = {
    "plain": Case(DEV, EMPTY, PODS, {}),
    "plain, of many pools": Case(DEV, ONE, PODS, {}),
    "as many tolerations as possible": Case(DEV, EMPTY, PODS, tolerating(*MANY)),
    "many tolerations, of many pools": Case(DEV, ONE, PODS, tolerating(*MANY[:180])),
    "a pool's toleration among many": Case(DEV, EMPTY, PODS, tolerating(*MANY, toleration("pool-63", "v"))),
    "a protected taint among many": Case(DEV, EMPTY, PODS, tolerating(*MANY, toleration("protected-63", "v"))),
    "many terms": Case(DEV, EMPTY, PODS, needs(*TERMS)),
    "many terms, of many pools": Case(DEV, ONE, PODS, needs(*TERMS)),
    "a restricted term among many": Case(
        DEV, EMPTY, PODS, needs(*TERMS, {"matchExpressions": [labelled("example.com/label-63", "a")]})
    ),
    "many terms and tolerations in a Deployment": Case(DEV, ONE, DEPLOYMENTS, needs(*TERMS) | tolerating(*MANY[:180])),
    "hardware of every class": Case(DEV, EMPTY, PODS, CLAIMS),
    "node name": Case(DEV, EMPTY, PODS, {"nodeName": "node-1"}),
}


def admission(text: str) -> PlacementAdmission:
    manifest = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "PlacementAdmission", "metadata": {"name": "default"}}
    return decode_placement_admission(manifest | {"spec": msgspec.yaml.decode(text)})


CONFIGURATIONS = {
    "reserved nodes": (admission(SPEC), CASES | UPDATES),
    "selection": (admission(SELECTION), SELECTING),
    "OpenShift's checks": (admission(PLAIN), PLAIN_CASES),
    "large": (admission(msgspec.json.encode(LARGE).decode()), LARGE_CASES),
}


def spec_of(resource: Resource, found: Mapping[str, Any]) -> PodTemplate:
    at: Any = found
    for each in () if resource is PODS else TEMPLATE_PATHS[resource.group, resource.kind]:
        at = at[each]
    return msgspec.json.decode(msgspec.json.encode(at), type=PodTemplate)


def placed(spec: PodSpec) -> Any:
    """The fields that rules change, in a form that can be compared."""
    affinity = spec.node_affinity.required
    terms = (affinity.node_selector_terms if affinity is not None else None) or ()
    # Kubernetes applies mutating policies in any order.
    return (
        sorted(spec.tolerations or (), key=str),
        dict(spec.node_selector or {}),
        [(sorted(each.match_expressions or (), key=str), each.match_fields) for each in terms],
    )


Outcome = str | dict[str, Any]


@pytest.fixture(scope="module")
def policies_cluster(make_cluster: MakeCluster) -> LocalCluster:
    cluster = make_cluster(Settings(components=DEFAULT_COMPONENTS[:2]), nodes=0)
    require_kubernetes(cluster.client, ADMISSION_POLICIES, NO_ADMISSION_POLICIES)
    return cluster


class Observed(NamedTuple):
    """The stored object that is updated, if any, and the outcome of the request without policies."""

    stored: dict[str, Any] | None
    outcome: Outcome


def send(cluster: LocalCluster, case: Case, stored: dict[str, Any] | None) -> Outcome:
    """The object of a dry run, or the message with which it was refused."""
    user = User(cluster, case.who.name, groups=case.who.groups)
    try:
        if stored is None:
            return user.create(case.resource, case.manifest(), namespace=case.namespace, dry_run=True).object
        name = stored["metadata"]["name"]
        path = case.resource.path(name, namespace=case.namespace, subresource=case.subresource)
        return user.request("PUT", path, case.updated(stored), params={"dryRun": "All"}).object
    except Forbidden as error:
        return error.message
    finally:
        user.close()


@pytest.fixture(scope="module")
def observed(policies_cluster: LocalCluster) -> dict[tuple[str, str], Observed]:
    """All requests without policies."""
    client = policies_cluster.client
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    for namespace, each in NAMESPACE_ANNOTATIONS.items():
        client.request("POST", NAMESPACES.path(), {"metadata": {"name": namespace, "annotations": each}})
        client.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    rules = [
        {"apiGroups": ["*"], "resources": ["pods", "podtemplates", "replicationcontrollers", "deployments", "jobs",
         "replicasets", "statefulsets", "daemonsets", "cronjobs", "pods/ephemeralcontainers"], "verbs": ["*"]}
    ]  # fmt: skip
    bind = [{"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}]
    for name, granted, users in (
        ("dev", rules, [each.name for each in (DEV, BINDER, MEMBER, OTHER)]),
        ("bind", bind, [BINDER.name]),
    ):
        client.request("POST", f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": granted})
        subjects = [{"kind": "User", "name": each, "apiGroup": "rbac.authorization.k8s.io"} for each in users]
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects}
        client.request("POST", f"{rbac}/clusterrolebindings", binding)
    found = {}
    for configuration, (_, cases) in CONFIGURATIONS.items():
        for number, (name, case) in enumerate(cases.items()):
            stored = None
            if case.old is not None:
                manifest = case._replace(spec=case.old).manifest()
                manifest["metadata"]["name"] = f"web-{list(CONFIGURATIONS).index(configuration)}-{number}"
                stored = client.request("POST", case.resource.path(namespace=case.namespace), manifest)
            found[configuration, name] = Observed(stored, send(policies_cluster, case, stored))
    return found


class Policies:
    """Keeps the policies of one configuration in force."""

    def __init__(self, cluster: LocalCluster, observed: Mapping[tuple[str, str], Observed]) -> None:
        self.cluster = cluster
        self.observed = observed
        self.name = ""
        self._paths: list[str] = []

    def activate(self, name: str) -> None:
        """Replace the policies by those of another configuration, and wait until the API server has noticed."""
        if name == self.name:
            return
        self.remove()
        client, (placement, cases) = self.cluster.client, CONFIGURATIONS[name]
        for document in to_admission_policies(placement).documents:
            plural = f"{document['kind'].lower()}s".replace("policys", "policies")
            path = f"/apis/{document['apiVersion']}/{plural}"
            client.request("POST", path, document, params={"fieldValidation": "Strict"})
            self._paths.append(f"{path}/{document['metadata']['name']}")
        self.name = name
        self._sentinels = [each for each in cases if changes(placement, cases[each], self.observed[name, each])][::9]
        for each in self._sentinels:
            with suppress(AssertionError):  # then the test of the case fails
                eventually(lambda each=each: not self.difference(each), what=f"{each}: policies in force", seconds=5)

    def remove(self) -> None:
        """Delete the policies."""
        if not self.name:
            return
        for path in self._paths:
            self.cluster.client.request("DELETE", path)
        self._paths.clear()
        for each in self._sentinels:
            eventually(lambda each=each: isinstance(self.send(each), dict), what=f"{each}: policies gone")

    def send(self, case: str) -> Outcome:
        """Send the request of a case."""
        return send(self.cluster, CONFIGURATIONS[self.name][1][case], self.observed[self.name, case].stored)

    def difference(self, name: str) -> str:
        """How the outcome with policies differs from the verdict of the rules; empty if it does not."""
        placement, cases = CONFIGURATIONS[self.name]
        case, before = cases[name], self.observed[self.name, name]
        expected, found = predict(placement, case, before), self.send(name)
        if isinstance(found, str):
            refused = isinstance(expected, list) and found.partition("denied request: ")[2] in expected
            return "" if refused else f"{expected}\n{found}"
        if isinstance(expected, list):
            return f"admitted, but: {expected}"
        wanted, given = placed(expected), placed(spec_of(case.resource, found).spec)
        return "" if wanted == given else f"expected: {wanted}\nfound: {given}"


@pytest.fixture(scope="module")
def policies(policies_cluster: LocalCluster, observed: dict[tuple[str, str], Observed]) -> Policies:
    return Policies(policies_cluster, observed)


def predict(placement: PlacementAdmission, case: Case, before: Observed) -> list[str] | PodSpec:
    """What the rules make of the object: the messages of refusals, of which users see one, or the pod spec."""
    assert isinstance(before.outcome, dict), before.outcome
    pod = spec_of(case.resource, before.outcome)
    old = None if before.stored is None else spec_of(case.resource, before.stored)
    request = Attributes(
        kind=case.resource.kind,
        group=case.resource.group,
        operation="CREATE" if old is None else "UPDATE",
        subresource=case.subresource,
        name="web",
        namespace=NamespaceInfo(case.namespace, annotations=NAMESPACE_ANNOTATIONS[case.namespace]),
        user=UserInfo(username=case.who.name, groups=(*case.who.groups, "system:authenticated")),
        pod=pod,
        old=old,
        controlled=bool(case.owners),
        same_template=case.resource is not PODS and old == pod,
    )
    spec, refusals = pod.spec, []
    rules = [] if case.namespace in placement.spec.exempt_namespaces else compile_rules(placement.spec)
    for rule in rules:
        try:
            spec = rule.mutate(request, spec)
        except Refusal:
            continue  # found again below
    final = msgspec.structs.replace(request, pod=msgspec.structs.replace(pod, spec=spec))
    refusals = [refusal for rule in rules for refusal in rule.validate(final)]
    messages = [each.message for each in refusals if not (each.unless_may_bind and case.who.may_bind)]
    return messages or spec


def changes(placement: PlacementAdmission, case: Case, before: Observed) -> bool:
    """Whether the rules refuse the object or change it."""
    expected = predict(placement, case, before)
    assert isinstance(before.outcome, dict)
    return isinstance(expected, list) or placed(expected) != placed(spec_of(case.resource, before.outcome).spec)


@pytest.mark.parametrize(
    ("configuration", "name"),
    [(configuration, name) for configuration, (_, cases) in CONFIGURATIONS.items() for name in cases],
)
def test_policies_have_the_verdicts_of_the_rules(policies: Policies, configuration: str, name: str) -> None:
    policies.activate(configuration)
    with suppress(AssertionError):  # the API server takes a moment to notice each policy
        eventually(lambda: not policies.difference(name), what=name, seconds=3)
    assert policies.difference(name) == ""

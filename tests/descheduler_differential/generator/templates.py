"""Templates of pods: what the pods of one owner have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from tests.builders import HOSTNAME, ZONE, PodBuilder, expression, pod
from tests.descheduler_differential.generator.nodes import DISKS, TAINTS, ZONES
from tests.differential.generator.chance import Chance

NAMESPACES: Final = (*("red",) * 5, *("blue",) * 3, *("grey",) * 3, "kube-tools")
LABELS: Final = {"red": {"team": "x"}, "blue": {"team": "y"}, "grey": {}, "kube-tools": {"team": "x"}}
APPS: Final = ("a", "b", "c", "d")
TIERS: Final = ("front", "back")
IMAGES: Final = ("registry.example/app:1", "registry.example/app:2")
CLAIM: Final = "data"
"""The name of a claim in each namespace, bound to a volume that every node can reach."""
PRIORITIES: Final = (0, 100, 1000)


@dataclass
class Template:
    """How the pods of one owner are made.

    Attributes:
        kind: of the owner; empty for bare pods.
        name: of the owner.
        namespace: of both.
        replicas: how many pods there are.
        changes: what is merged into each pod's manifest.
    """

    kind: str
    name: str
    namespace: str
    replicas: int
    labels: dict[str, str]
    image: str
    requests: dict[str, str]
    rules: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)

    def pod(self, number: int) -> PodBuilder:
        """One of the pods."""
        made = pod(f"{self.name}-{number}", self.namespace).labels(self.labels).image(self.image)
        if self.requests:
            made.requests(self.requests)
        if self.kind:
            made.owned_by(self.kind, self.name)
        for method, positional, named in self.rules:
            getattr(made, method)(*positional, **named)
        return made

    def rule(self, method: str, *positional: Any, **named: Any) -> None:
        """Let a step of the builder be done with each of the pods."""
        self.rules.append((method, positional, named))


def random_template(chance: Chance, number: int) -> Template:
    """An owner with a bit of everything that strategies and protections read."""
    kind = chance.pick(*("ReplicaSet",) * 6, "StatefulSet", "StatefulSet", "Job", "DaemonSet", "")
    made = Template(
        kind=kind,
        name=f"{kind.lower() or 'bare'}-{number}",
        namespace=chance.pick(*NAMESPACES),
        replicas=chance.pick(1, 2, 3, 4, 6),
        labels={"app": chance.pick(*APPS), "tier": chance.pick(*TIERS)},
        image=chance.pick(*IMAGES),
        requests=_requests(chance),
    )
    for one_in, add in (
        (4, _tolerations),
        (3, _node_rules),
        (3, _anti_affinity),
        (8, _affinity),
        (3, _spread),
        (6, _volumes),
        (4, _priority),
        (10, _annotations),
        (40, _resource_claim),
    ):
        part = chance.fork()
        if part.one_in(one_in):
            add(part, made)
    return made


def _requests(chance: Chance) -> dict[str, str]:
    found = {}
    if not chance.one_in(6):
        found["cpu"] = chance.pick("50m", "100m", "250m", "250m", "500m", "1200m")
    if not chance.one_in(4):
        found["memory"] = chance.pick("64Mi", "256Mi", "512Mi", "1Gi", "2Gi")
    return found


def _tolerations(chance: Chance, made: Template) -> None:
    effect = chance.pick("", "NoSchedule", "NoExecute")
    made.rule("tolerates", chance.pick(*TAINTS, ""), "", effect)


def _node_rules(chance: Chance, made: Template) -> None:
    kind = chance.pick("selector", "required", "required", "preferred", "preferred")
    disk = chance.pick(*DISKS)
    if kind == "selector":
        made.rule("node_selector", disk=disk)
    elif kind == "required":
        made.rule("node_affinity", _expression(chance))
    else:
        made.rule("prefers_nodes", chance.pick(1, 50), _expression(chance))
        if chance.one_in(3):
            made.rule("prefers_nodes", 20, _expression(chance))


def _expression(chance: Chance) -> dict[str, Any]:
    return chance.pick(
        expression("disk", "In", chance.pick(*DISKS)),
        expression(ZONE, "In", *chance.sample(ZONES, 2)),
        expression(ZONE, "NotIn", chance.pick(*ZONES)),
        expression("disk", "Exists"),
    )


def _anti_affinity(chance: Chance, made: Template) -> None:
    term: dict[str, Any] = {"labelSelector": {"matchLabels": {"app": chance.pick(made.labels["app"], *APPS)}}}
    if chance.one_in(6):
        term["namespaceSelector"] = {"matchLabels": {"team": "x"}}
    elif chance.one_in(6):
        term["namespaces"] = ["red", "blue"]
    made.rule("anti_affinity", chance.pick(HOSTNAME, HOSTNAME, HOSTNAME, ZONE), **term)


def _affinity(chance: Chance, made: Template) -> None:
    made.rule("affinity", chance.pick(HOSTNAME, ZONE), labelSelector={"matchLabels": {"app": chance.pick(*APPS)}})


def _spread(chance: Chance, made: Template) -> None:
    for key in chance.pick((HOSTNAME,), (ZONE,), (ZONE,), (ZONE, HOSTNAME)):
        named: dict[str, Any] = {"max_skew": chance.pick(1, 1, 2)}
        named["when"] = chance.pick("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")
        named["labelSelector"] = {"matchLabels": chance.pick({"app": made.labels["app"]}, made.labels)}
        if named["when"] == "DoNotSchedule" and chance.one_in(6):
            named["minDomains"] = chance.pick(2, 4)
        if chance.one_in(6):
            named["nodeTaintsPolicy"] = "Honor"
        if chance.one_in(6):
            named["nodeAffinityPolicy"] = "Ignore"
        made.rule("spread", key, **named)


def _volumes(chance: Chance, made: Template) -> None:
    kind = chance.pick("emptyDir", "emptyDir", "hostPath", "claim", "claim", "ephemeral")
    if kind == "claim":
        made.rule("claim", CLAIM)
    elif kind == "ephemeral":
        made.rule("ephemeral", "scratch", storageClassName="fast")
    else:
        made.rule("volume", kind, **({"path": "/x"} if kind == "hostPath" else {}))


def _priority(chance: Chance, made: Template) -> None:
    if chance.one_in(8):
        made.rule("priority", 2_000_000_000, "system-cluster-critical")
    else:
        made.rule("priority", chance.pick(*PRIORITIES))


def _resource_claim(_chance: Chance, made: Template) -> None:
    made.rule("merge", spec={"resourceClaims": [{"name": "device", "resourceClaimName": "device"}]})


def _annotations(chance: Chance, made: Template) -> None:
    if chance.one_in(6):
        made.rule("annotations", {"scheduler.alpha.kubernetes.io/critical-pod": ""})
        return
    name = chance.pick("evict", "evict", "prefer-no-eviction")
    value = chance.pick("true", "true", "false")
    made.rule("annotations", {f"descheduler.alpha.kubernetes.io/{name}": value})

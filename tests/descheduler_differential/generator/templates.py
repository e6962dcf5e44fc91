"""Pod templates: the common fields of the pods of one owner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from tests.builders import HOSTNAME, ZONE, PodBuilder, expression, pod
from tests.descheduler_differential.generator.nodes import DISKS, TAINTS, ZONES
from tests.differential.generator.rng import RandomSource

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
    """The template of one owner's pods.

    Attributes:
        kind: the kind of the owner; empty for bare pods.
        name: the name of the owner.
        namespace: the namespace of the owner and its pods.
        replicas: the number of pods.
        labels: the pods' labels.
        image: the pods' image.
        requests: the pods' resource requests.
        rules: builder methods to call for each pod, with positional and keyword arguments.
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
        """Build one of the pods."""
        made = pod(f"{self.name}-{number}", self.namespace).labels(self.labels).image(self.image)
        if self.requests:
            made.requests(self.requests)
        if self.kind:
            made.owned_by(self.kind, self.name)
        for method, positional, named in self.rules:
            getattr(made, method)(*positional, **named)
        return made

    def rule(self, method: str, *positional: Any, **named: Any) -> None:
        """Call a method of the builder for each pod."""
        self.rules.append((method, positional, named))


def random_template(rng: RandomSource, number: int) -> Template:
    """Generate an owner with fields that strategies and protections read."""
    kind = rng.pick(*("ReplicaSet",) * 6, "StatefulSet", "StatefulSet", "Job", "DaemonSet", "")
    made = Template(
        kind=kind,
        name=f"{kind.lower() or 'bare'}-{number}",
        namespace=rng.pick(*NAMESPACES),
        replicas=rng.pick(1, 2, 3, 4, 6),
        labels={"app": rng.pick(*APPS), "tier": rng.pick(*TIERS)},
        image=rng.pick(*IMAGES),
        requests=_requests(rng),
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
        part = rng.fork()
        if part.one_in(one_in):
            add(part, made)
    return made


def _requests(rng: RandomSource) -> dict[str, str]:
    found = {}
    if not rng.one_in(6):
        found["cpu"] = rng.pick("50m", "100m", "250m", "250m", "500m", "1200m")
    if not rng.one_in(4):
        found["memory"] = rng.pick("64Mi", "256Mi", "512Mi", "1Gi", "2Gi")
    return found


def _tolerations(rng: RandomSource, made: Template) -> None:
    effect = rng.pick("", "NoSchedule", "NoExecute")
    made.rule("tolerates", rng.pick(*TAINTS, ""), "", effect)


def _node_rules(rng: RandomSource, made: Template) -> None:
    kind = rng.pick("selector", "required", "required", "preferred", "preferred")
    disk = rng.pick(*DISKS)
    if kind == "selector":
        made.rule("node_selector", disk=disk)
    elif kind == "required":
        made.rule("node_affinity", _expression(rng))
    else:
        made.rule("prefers_nodes", rng.pick(1, 50), _expression(rng))
        if rng.one_in(3):
            made.rule("prefers_nodes", 20, _expression(rng))


def _expression(rng: RandomSource) -> dict[str, Any]:
    return rng.pick(
        expression("disk", "In", rng.pick(*DISKS)),
        expression(ZONE, "In", *rng.sample(ZONES, 2)),
        expression(ZONE, "NotIn", rng.pick(*ZONES)),
        expression("disk", "Exists"),
    )


def _anti_affinity(rng: RandomSource, made: Template) -> None:
    term: dict[str, Any] = {"labelSelector": {"matchLabels": {"app": rng.pick(made.labels["app"], *APPS)}}}
    if rng.one_in(6):
        term["namespaceSelector"] = {"matchLabels": {"team": "x"}}
    elif rng.one_in(6):
        term["namespaces"] = ["red", "blue"]
    made.rule("anti_affinity", rng.pick(HOSTNAME, HOSTNAME, HOSTNAME, ZONE), **term)


def _affinity(rng: RandomSource, made: Template) -> None:
    made.rule("affinity", rng.pick(HOSTNAME, ZONE), labelSelector={"matchLabels": {"app": rng.pick(*APPS)}})


def _spread(rng: RandomSource, made: Template) -> None:
    for key in rng.pick((HOSTNAME,), (ZONE,), (ZONE,), (ZONE, HOSTNAME)):
        named: dict[str, Any] = {"max_skew": rng.pick(1, 1, 2)}
        named["when"] = rng.pick("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")
        named["labelSelector"] = {"matchLabels": rng.pick({"app": made.labels["app"]}, made.labels)}
        if named["when"] == "DoNotSchedule" and rng.one_in(6):
            named["minDomains"] = rng.pick(2, 4)
        if rng.one_in(6):
            named["nodeTaintsPolicy"] = "Honor"
        if rng.one_in(6):
            named["nodeAffinityPolicy"] = "Ignore"
        made.rule("spread", key, **named)


def _volumes(rng: RandomSource, made: Template) -> None:
    kind = rng.pick("emptyDir", "emptyDir", "hostPath", "claim", "claim", "ephemeral")
    if kind == "claim":
        made.rule("claim", CLAIM)
    elif kind == "ephemeral":
        made.rule("ephemeral", "scratch", storageClassName="fast")
    else:
        made.rule("volume", kind, **({"path": "/x"} if kind == "hostPath" else {}))


def _priority(rng: RandomSource, made: Template) -> None:
    if rng.one_in(8):
        made.rule("priority", 2_000_000_000, "system-cluster-critical")
    else:
        made.rule("priority", rng.pick(*PRIORITIES))


def _resource_claim(_rng: RandomSource, made: Template) -> None:
    made.rule("merge", spec={"resourceClaims": [{"name": "device", "resourceClaimName": "device"}]})


def _annotations(rng: RandomSource, made: Template) -> None:
    if rng.one_in(6):
        made.rule("annotations", {"scheduler.alpha.kubernetes.io/critical-pod": ""})
        return
    name = rng.pick("evict", "evict", "prefer-no-eviction")
    value = rng.pick("true", "true", "false")
    made.rule("annotations", {f"descheduler.alpha.kubernetes.io/{name}": value})

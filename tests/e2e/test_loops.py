"""The real scheduler puts pods back badly, for reasons that no strategy looks at: three tries, then the condition.

All strategies at once, each with nodes, a namespace and a policy of its own, before one operator. Nobody cheats: that
pods start on the node from which they are evicted, and come back there, is the scheduler's own choice each time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from examples.demo.workloads import deployment
from tests.e2e.conftest import POLICIES, Stage, wait_for_cycles
from tests.fixtures.waiting import wait_for
from trimtab.api import reasons
from trimtab.kube.api import ApiError, NotFound, Unreachable
from trimtab_local.cluster import LocalCluster
from trimtab_local.install import OperatorProcess
from trimtab_local.nodes import node, ready

HOST = "kubernetes.io/hostname"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
FAR = {"key": "example.com/far", "value": "yes", "effect": "PreferNoSchedule"}
"""The scheduler weighs such a taint more than anything else that pods merely prefer."""

COOLDOWN = {"initial": "2s", "maximum": "1m"}
Ail = Callable[[dict[str, Any]], dict[str, Any]]


def spread(when: str = "ScheduleAnyway", key: str = "kubernetes.io/os", skew: int = 5) -> dict[str, Any]:
    """A topology spread constraint; an ineffective one replaces the scheduler's default, which spreads pods."""
    return {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": {"app": "web"}},
    }


def prefers(key: str, value: str) -> dict[str, Any]:
    """A preferred node affinity."""
    wanted = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    return {PREFERRED: [{"weight": 100, "preference": wanted}]}


def near(app: str) -> dict[str, Any]:
    """A preferred pod affinity or anti-affinity per node."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": HOST}
    return {PREFERRED: [{"weight": 100, "podAffinityTerm": term}]}


def marks(**values: Any) -> dict[str, Any]:
    """The thresholds of a utilization strategy."""
    return {"nodeResourceUtilizationThresholds": values}


@dataclass(frozen=True)
class Loop:
    """One strategy, and a pod whose scheduling preferences undo its evictions.

    Attributes:
        strategy: its name.
        params: its parameters.
        pod: of the Deployment ``web``, over what all have; ``{home}`` and ``{away}`` stand for the two nodes.
        replicas: of it.
        far: whether the node that the strategy would rather have them on repels pods a little.
        home_taints: of the node from which they are evicted.
        anchors: a Deployment on each of these nodes that stays, and how much cpu it wants.
        ail: what befalls every new pod, as its kubelet would report it.
        falls_ill: how many pods it befalls.
        trouble: what the condition says of the last eviction.
    """

    strategy: str
    params: Mapping[str, Any] = field(default_factory=dict)
    pod: Mapping[str, Any] = field(default_factory=dict)
    replicas: int = 2
    far: bool = True
    home_taints: tuple[Mapping[str, str], ...] = ()
    anchors: Mapping[str, str] = field(default_factory=dict)
    ail: Ail | None = None
    falls_ill: int = 1000
    trouble: str = "was scheduled to {home}"


def at_home(**more: Any) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": prefers(HOST, "{home}"), **more}}


def restarted(pod: dict[str, Any]) -> dict[str, Any]:
    return {"containerStatuses": [{**each, "restartCount": 120} for each in pod["status"]["containerStatuses"]]}


def crashing(pod: dict[str, Any]) -> dict[str, Any]:
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    return {"containerStatuses": [{**each, "state": state} for each in pod["status"]["containerStatuses"]]}


def failing(pod: dict[str, Any]) -> dict[str, Any]:
    ended = {"terminated": {"exitCode": 1, "reason": "Error"}}
    return {
        "phase": "Failed",
        "containerStatuses": [{**each, "state": ended} for each in pod["status"]["containerStatuses"]],
    }


LOOPS: dict[str, Loop] = {
    "duplicates": Loop("RemoveDuplicates", pod=at_home(), replicas=3),
    "low": Loop(
        "LowNodeUtilization",
        marks(thresholds={"pods": 1}, targetThresholds={"pods": 2}),
        pod=at_home(),
        replicas=4,
    ),
    # LeastAllocated, as the scheduler scores by default: which the operator does not know without --scoring
    "high": Loop("HighNodeUtilization", marks(thresholds={"cpu": 20}), far=False, anchors={"away": "6"}),
    "apart": Loop(
        "RemovePodsViolatingInterPodAntiAffinity",
        {"interPodAntiAffinityType": [PREFERRED]},
        pod=at_home(podAntiAffinity=near("web")),
    ),
    "together": Loop(
        "RemovePodsViolatingInterPodAffinity",
        {"interPodAffinityType": [PREFERRED]},
        pod=at_home(podAffinity=near("away")),
        anchors={"away": "100m"},
    ),
    "nodes": Loop(
        "RemovePodsViolatingNodeAffinity",
        {"nodeAffinityType": [PREFERRED]},
        pod={"affinity": {"nodeAffinity": prefers(HOST, "{away}")}},
    ),
    "taints": Loop(
        "RemovePodsViolatingNodeTaints",
        {"includePreferNoSchedule": True},
        pod=at_home(podAffinity=near("home")),
        far=False,
        home_taints=(FAR,),
        anchors={"home": "100m"},
    ),
    "spread": Loop(
        "RemovePodsViolatingTopologySpreadConstraint",
        {"constraints": ["ScheduleAnyway"]},
        pod={**at_home(), "topologySpreadConstraints": [spread(key=HOST, skew=1)]},
        replicas=3,
    ),
    "restarts": Loop(
        "RemovePodsHavingTooManyRestarts",
        {"podRestartThreshold": 100},
        ail=restarted,
        trouble="RemovePodsHavingTooManyRestarts would evict",
    ),
    "states": Loop(
        "PodLifeTime",
        {"states": ["CrashLoopBackOff"]},
        replicas=1,
        ail=crashing,
        trouble="PodLifeTime would evict",
    ),
}

NO_LOOPS: dict[str, Loop] = {
    "ages": Loop("PodLifeTime", {"maxPodLifeTimeSeconds": 3}, replicas=1, trouble=""),
    "fails": Loop("RemoveFailedPods", {"minPodLifetimeSeconds": 0}, ail=failing, falls_ill=5, trouble=""),
}
"""Strategies that evict again and again because that is what they are for."""


class Place(Stage):
    """The part of the cluster that one loop uses."""

    process: OperatorProcess
    """The operator, once it was started."""

    def __init__(self, cluster: LocalCluster, name: str, loop: Loop) -> None:
        super().__init__(cluster, f"loop-{name}")
        self.name = name
        self.loop = loop
        self.home, self.away = f"{name}-home", f"{name}-away"

    def furnish(self) -> None:
        """Create nodes, namespace and static pods."""
        labels = {"loop": self.name}
        for name, taints in ((self.home, self.loop.home_taints), (self.away, (FAR,) if self.loop.far else ())):
            self.client.request("POST", "/api/v1/nodes", node(name, zone="zone-0", labels=labels, taints=taints))
        self.client.request("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})

    def usable(self) -> bool:
        """Whether pods can be created in the namespace."""
        return self._exists(f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default")

    def settle(self) -> None:
        """Create the static pods, which set the utilization of nodes or attract pods."""
        for place, cpu in self.loop.anchors.items():
            self.deploy(place, 1, {"nodeSelector": {HOST: getattr(self, place)}}, cpu=cpu)

    def settled(self) -> bool:
        """Whether the static pods run."""
        return len(self.staying()) == len(self.loop.anchors)

    def deploy(self, name: str, replicas: int, pod: Mapping[str, Any], cpu: str = "100m") -> None:
        manifest = deployment(name, namespace=self.namespace, replicas=replicas, cpu=cpu, pod=pod)
        self.client.request("POST", f"/apis/apps/v1/namespaces/{self.namespace}/deployments", manifest)

    def crowd_home(self) -> None:
        """Create the pods; the scheduler chooses their nodes."""
        own = {"nodeSelector": {"loop": self.name}, "topologySpreadConstraints": [spread()]}
        self.deploy("web", self.loop.replicas, filled({**own, **self.loop.pod}, home=self.home, away=self.away))

    def at_home(self) -> bool:
        """Whether all pods of the loop run on the node from which the strategy evicts them."""
        nodes = list(self.running("web").values())
        anywhere = not self.loop.trouble.startswith("was scheduled")
        return len(nodes) == self.loop.replicas and (anywhere or set(nodes) == {self.home})

    def staying(self) -> dict[str, str]:
        return {uid: where for name in self.loop.anchors for uid, where in self.running(name).items()}

    def begin(self, **spec: Any) -> None:
        strategies = {self.loop.strategy: {"params": dict(self.loop.params)}}
        selector = {"matchLabels": {"loop": self.name}}
        self.write_policy(
            self.name, mode="Act", strategies=strategies, nodeSelector=selector, cooldown=COOLDOWN, **spec
        )

    def gave_up(self) -> bool:
        return self.condition(self.name, "Effective").get("reason") == "GaveUp"

    def evicted(self) -> int:
        return int(self.status(self.name).get("evicted", 0))

    def pods(self) -> list[dict[str, Any]]:
        """The running pods of ``web``."""
        path, running = f"/api/v1/namespaces/{self.namespace}/pods", self.running("web")
        found = self.client.request("GET", path, params={"labelSelector": "app=web"})["items"]
        return [pod for pod in found if pod["metadata"]["uid"] in running]

    def report(self, pod: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Write a pod's status, as its kubelet would."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
        with suppress(ApiError):  # it may be on its way out meanwhile
            self.client.request("PATCH", path, {"status": status}, content_type="application/merge-patch+json")


def filled(value: Any, **names: str) -> Any:
    """The value with node names for ``{home}`` and ``{away}``."""
    if isinstance(value, Mapping):
        return {key: filled(each, **names) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, **names) for each in value]
    return value.format(**names) if isinstance(value, str) else value


class Illness:
    """Gives new pods a condition or restarts."""

    def __init__(self, places: list[Place]) -> None:
        self._places = places
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="illness")

    def _run(self) -> None:
        ill: dict[str, set[str]] = {place.name: set() for place in self._places}
        while not self._over.wait(0.5):
            for place in self._places:
                with suppress(ApiError, Unreachable):  # a pod may be gone, and a busy API server refuse
                    self._report(place, ill[place.name])

    def _report(self, place: Place, known: set[str]) -> None:
        for pod in place.pods():
            uid = pod["metadata"]["uid"]
            if place.loop.ail is not None and uid not in known and len(known) < place.loop.falls_ill:
                place.report(pod, place.loop.ail(pod))
                known.add(uid)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture(scope="module")
def places(stage_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    """All loops, in parallel, with one operator."""
    found = {name: Place(stage_cluster, name, loop) for name, loop in {**LOOPS, **NO_LOOPS}.items()}
    client = stage_cluster.client
    for place in found.values():
        place.furnish()
    wait_for(lambda: all(map(ready, client.request("GET", "/api/v1/nodes")["items"])), "the nodes")
    for place in found.values():
        wait_for(place.usable, f"the namespace of {place.name}")
        place.settle()
    for place in found.values():
        wait_for(place.settled, f"what stays in {place.name} to run")
        place.crowd_home()
    for place in found.values():
        wait_for(place.at_home, f"the pods of {place.name} to run at home")
    operator = OperatorProcess(stage_cluster, tmp_path_factory.mktemp("loops"))
    operator.start()
    try:
        for place in found.values():
            place.process = operator
            place.begin()
        with Illness([place for place in found.values() if place.loop.ail is not None]):
            yield found
    finally:
        operator.stop()
        for place in found.values():
            remove(place)


def remove(place: Place) -> None:
    path = f"{POLICIES}/{place.name}"
    with suppress(NotFound):
        place.client.request(
            "PATCH", path, {"metadata": {"finalizers": None}}, content_type="application/merge-patch+json"
        )
        place.client.request("DELETE", path)
    place.client.request("DELETE", f"/api/v1/namespaces/{place.namespace}")


@pytest.fixture(scope="module")
def stayed(places: dict[str, Place]) -> dict[str, dict[str, str]]:
    """Pods of the start that no strategy concerns."""
    return {name: place.staying() for name, place in places.items()}


@pytest.mark.parametrize("name", LOOPS)
def test_strategy_gives_up_after_three_ineffective_evictions(
    places: dict[str, Place], stayed: dict[str, dict[str, str]], name: str
) -> None:
    place = places[name]
    wait_for(place.gave_up, f"{place.loop.strategy} to give up", timeout=300)
    condition = place.condition(name, "Effective")
    assert condition["status"] == "False"
    assert condition["reason"] == reasons.GAVE_UP
    for word in (place.loop.strategy, "3 consecutive evictions", f"{place.namespace}/web"):
        assert word in condition["message"]
    assert place.loop.trouble.format(home=place.home) in condition["message"]
    assert place.evicted() == 3
    assert place.staying() == stayed[name]


def test_no_eviction_follows_after_giving_up(places: dict[str, Place]) -> None:
    before = {name: places[name].running("web") for name in LOOPS}
    wait_for_cycles(places["ages"].process, *LOOPS)
    assert {name: places[name].running("web") for name in LOOPS} == before, "two cycles later all are there"
    assert {name: places[name].evicted() for name in LOOPS} == dict.fromkeys(LOOPS, 3)


def test_pod_lifetime_never_gives_up(places: dict[str, Place]) -> None:
    place = places["ages"]
    wait_for(lambda: place.evicted() > 4, "the fifth new start", timeout=120)
    assert place.condition("ages", "Effective")["status"] == "True"
    assert not place.status("ages").get("memory", {}).get("setbacks")


def test_failed_pods_are_removed_and_not_recreated(places: dict[str, Place]) -> None:
    place = places["fails"]
    wait_for(lambda: place.evicted() == 5, "all that has failed to be removed", timeout=120)
    assert place.condition("fails", "Effective")["status"] == "True"
    wait_for(place.at_home, "the others to run")
    before = place.running("web")
    wait_for_cycles(place.process, "fails")
    assert (place.evicted(), place.running("web")) == (5, before)

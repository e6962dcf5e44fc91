"""DaemonSet and static pods that are expected on new nodes, and those that must not count."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import (
    HOSTNAME,
    daemon_set,
    expression,
    limit_range,
    machine_set,
    node,
    pod,
    priority_class,
    runtime_class,
)
from tests.unit.autoscaling.scale_up_helpers import NOW, group, pending_pods, planned, sizes
from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec, ScaleUp
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.plan import Plan
from trimtab.autoscaling.cluster_state.state import AutoscalerState
from trimtab.autoscaling.groups import build_groups
from trimtab.autoscaling.report.iteration_report import IterationReport, kept_pods
from trimtab.autoscaling.report.status import conditions_of
from trimtab.autoscaling.scale_up import ScaleUpPlan
from trimtab.autoscaling.template import Templates, build_templates
from trimtab.cluster.snapshot import Snapshot

LONG_AGO = "2026-11-20T10:00:00Z"
CRITICAL = 2_000_001_000


def hog(cpu: str = "3", *, desired: int = 1, current: int = 0, name: str = "hog", **spec: Any) -> Any:
    """A tenant's DaemonSet with its status counts."""
    made = daemon_set(name, "tenant").of_pods(pod().cpu(cpu).merge(spec=spec))
    return made.merge(status={"desiredNumberScheduled": desired, "currentNumberScheduled": current})


def of_hog(
    on: str = "", *, meant_for: str = "", cpu: str = "3", name: str = "hog", uid: str = "", group: str = "apps"
) -> Any:
    made = pod(f"{name}-{on or meant_for}", "tenant").owned_by("DaemonSet", name, api_version=f"{group}/v1").cpu(cpu)
    if uid:
        made.manifest()
        made._manifest["metadata"]["ownerReferences"][0]["uid"] = uid
    if meant_for:
        made.node_affinity(fields=(expression("metadata.name", "In", meant_for),)).unschedulable()
    return made.on(on) if on else made


def settled() -> list[Any]:
    """A group with a settled node of 4 cores that is full."""
    owner = group(size=1)
    there = node("n1").created(LONG_AGO).condition("Ready", "True", since=LONG_AGO).allocatable(cpu="4", memory="16Gi")
    return [owner, owner.machine("m").on("n1"), there]


def expected(*builders: Any, force: bool = False) -> list[str]:
    return [each.key for each in _templates(*builders, force=force).of_group[GROUP].pods]


def uncounted(*builders: Any) -> dict[str, str]:
    return {each.name: each.reason for each in _templates(*builders).uncounted}


def _templates(*builders: Any, force: bool = False) -> Templates:
    snapshot = Snapshot([builder.build() for builder in builders])
    spec = ClusterAutoscalerSpec(scale_up=ScaleUp(force_daemon_sets=force))
    return build_templates(snapshot, build_groups(snapshot).all, now=NOW, spec=spec)


GROUP = "MachineSet/openshift-machine-api/a"


class TestHostileDaemonSets:
    """A DaemonSet without pods, because a quota prevents them."""

    @pytest.mark.parametrize("cpu", ["1000", "3"])
    @pytest.mark.parametrize("world", [settled, lambda: [group()]], ids=["existing node", "no node"])
    def test_uncreated_daemon_set_does_not_affect_other_pods(self, cpu: str, world: Any) -> None:
        made = planned(*world(), hog(cpu, desired=5), *pending_pods(4, cpu="3"))

        [action] = made.actions
        assert action.to - action.from_ == 4 - (action.from_ == 1)
        assert {each.name: each.reason for each in made.kept if each.kind == "DaemonSet"} == {
            "hog": "DaemonSetNotCreated"
        }

    def test_force_daemon_sets_counts_it(self) -> None:
        made = planned(group(), hog("1000"), *pending_pods(4, cpu="3"), scaleUp={"forceDaemonSets": True})

        assert made.actions == ()

    def test_quota_for_one_pod_does_not_make_it_count(self) -> None:
        assert expected(group(), node("n1"), of_hog("n1"), hog(desired=2, current=1)) == []
        assert expected(*settled(), of_hog("n1"), hog(desired=2, current=1)) == []

    @pytest.mark.parametrize(
        ("namespace", "cpu", "priority", "counts"),
        [
            ("tenant", "3", 0, False),
            ("tenant", "3", CRITICAL, False),
            ("tenant", "400m", 0, True),
            ("kube-system", "3", 0, True),
        ],
    )
    def test_all_pods_that_a_quota_allows_prove_no_further_pod(
        self, namespace: str, cpu: str, priority: int, counts: bool
    ) -> None:
        """The tenant excludes every existing node but one; the quota is ``pods: 1``."""
        others = expression("kubernetes.io/hostname", "NotIn", "n3", "n4")
        template = pod().cpu(cpu).node_affinity(others).priority(priority)
        status = {"desiredNumberScheduled": 1, "currentNumberScheduled": 1}
        hogs = daemon_set("hog", namespace).of_pods(template).merge(status=status)
        running = pod("hog-n2", namespace).owned_by("DaemonSet", "hog").cpu(cpu).priority(priority).on("n2")
        there = [node("n2"), node("n3"), node("n4").taint("unusual"), running, hogs]

        assert expected(group(), *there) == ([f"{namespace}/hog"] if counts else [])
        assert uncounted(group(), *there) == ({} if counts else {"hog": "DaemonSetOnFewNodes"})
        assert expected(*settled(), *there) == []

    @pytest.mark.parametrize(
        ("template", "counts"),
        [
            (pod().node_selector({"gpu": "yes"}), True),
            (pod().node_affinity(expression("gpu", "In", "yes")), True),
            (pod().node_affinity(expression("gpu", "NotIn", "no")), True),
            (pod().node_affinity(expression("gpu", "In", "yes"), expression(HOSTNAME, "NotIn", "n1")), True),
            (pod().node_affinity(expression(HOSTNAME, "NotIn", *(f"n{each}" for each in range(4, 34)))), False),
            (pod().node_affinity(expression("name", "NotIn", *(f"n{each}" for each in range(4, 34)))), False),
            (pod().node_affinity(fields=(expression("metadata.name", "NotIn", "n4"),)), False),
        ],
    )
    def test_daemon_set_is_compared_with_the_nodes_that_it_selects_by_their_kind(
        self, template: Any, counts: bool
    ) -> None:
        """It runs on all three GPU nodes of 33 nodes. Requirements that name nodes could exclude any others."""
        there = [node(f"n{each}").labels(gpu="yes" if each < 4 else "no", name=f"n{each}") for each in range(1, 34)]
        agent = daemon_set("hog", "tenant").of_pods(template.cpu("3"))
        agent.merge(status={"desiredNumberScheduled": 3, "currentNumberScheduled": 3})
        running = [of_hog(f"n{each}") for each in (1, 2, 3)]
        new = group(labels="gpu=yes,name=new")

        assert expected(new, *there, *running, agent) == (["tenant/hog"] if counts else [])

    @pytest.mark.parametrize(("namespace", "cpu"), [("tenant", [250]), ("kube-system", [3000])])
    def test_template_that_was_never_created_counts_no_more_than_its_pods(self, namespace: str, cpu: list[int]) -> None:
        """The update strategy is ``OnDelete``, or a rolling update makes no progress."""
        status = {"desiredNumberScheduled": 2, "currentNumberScheduled": 2}
        agent = daemon_set("hog", namespace).of_pods(pod().cpu("3")).merge(status=status)
        old = [
            pod(f"hog-{on}", namespace).owned_by("DaemonSet", "hog").cpu(cpu).on(on)
            for on, cpu in (("n2", "10m"), ("n3", "250m"))
        ]
        made = _templates(group(), node("n2"), node("n3"), *old, agent).of_group[GROUP]

        assert [each.spec.requests["cpu"] for each in made.pods] == cpu

    @pytest.mark.parametrize(
        ("namespace", "others", "cpu"),
        [
            ("tenant", [], 100),
            ("tenant", ["100m", "100m"], 100),
            ("tenant", ["3", "100m"], 3000),
            ("tenant", ["200m", "100m"], 200),
            ("kube-system", [], 3000),
        ],
        ids=["its only pod", "one of three", "two of three", "two of three, smaller", "system namespace"],
    )
    def test_pod_on_the_sample_counts_no_more_than_the_template_or_most_pods(
        self, namespace: str, others: list[str], cpu: int
    ) -> None:
        """A tenant's DaemonSet adopts a bare pod of 3 cores. But admission webhooks may enlarge all its pods."""
        number = 1 + len(others)
        status = {"desiredNumberScheduled": number, "currentNumberScheduled": number}
        agent = daemon_set("hog", namespace).of_pods(pod().cpu("100m")).merge(status=status)
        there = [node(f"n{each}") for each in range(2, number + 1)]
        pods = [
            pod(f"hog-n{each}", namespace).owned_by("DaemonSet", "hog").cpu(amount).on(f"n{each}")
            for each, amount in enumerate(["3", *others], 1)
        ]
        made = _templates(*settled(), *there, *pods, agent).of_group[GROUP]

        assert [each.spec.requests["cpu"] for each in made.pods] == [cpu]

    def test_pod_on_the_sample_that_matches_no_new_node_does_not_count(self) -> None:
        own = hog(desired=1, current=1, nodeSelector={"kubernetes.io/hostname": "n1"})

        assert expected(*settled(), of_hog("n1"), own) == []

    @pytest.mark.parametrize(
        "owner", [{"name": "gone"}, {"uid": "other"}, {"group": "x"}], ids=["no such DaemonSet", "UID", "API group"]
    )
    def test_forged_owner_reference_does_not_count(self, owner: dict[str, str]) -> None:
        assert expected(*settled(), of_hog("n1", **owner), hog(desired=1, current=1)) == []

    @pytest.mark.parametrize(("namespace", "counts"), [("tenant", False), ("kube-system", True)])
    @pytest.mark.parametrize("on", ["", "n2"], ids=["pending", "on one of two nodes"])
    def test_owner_reference_does_not_count_if_no_daemon_set_is_known(
        self, on: str, namespace: str, counts: bool
    ) -> None:
        forged = pod("hog", namespace).owned_by("DaemonSet", "hog").cpu("3")
        there = [node("n2"), node("n3"), forged.on(on) if on else forged.unschedulable()]

        assert expected(group(), *there) == ([f"{namespace}/hog"] if counts and on else [])

    @pytest.mark.parametrize("on", ["n1", "n2"])
    def test_pods_of_a_daemon_set_with_no_desired_pods_do_not_count(self, on: str) -> None:
        """Pods with an owner reference that a tenant has forged."""
        assert expected(*settled(), node("n2"), of_hog(on).priority(CRITICAL), hog(desired=0)) == []
        assert expected(group(), node("n2"), of_hog("n2").priority(CRITICAL), hog(desired=0)) == []

    def test_critical_priority_in_the_template_alone_does_not_count(self) -> None:
        assert expected(group(), hog(priority=CRITICAL, desired=0)) == []


class TestStaticPods:
    """A tenant can write the annotation, the owner reference and ``nodeName`` of a mirror pod, but not its status."""

    def mirror(self, on: str, namespace: str = "tenant", *, phase: str = "Running") -> Any:
        return pod(f"x-{on}", namespace).on(on).cpu("3").mirror().owned_by("Node", on, uid=on).phase(phase)

    def nodes(self, number: int) -> list[Any]:
        """A group with settled nodes of 4 cores."""
        owner = group(size=number)
        names = [f"n{each}" for each in range(1, number + 1)]
        machines = [owner.machine(f"m-{name}").on(name) for name in names]
        there = [node(each).condition("Ready", "True", since=LONG_AGO).allocatable(cpu="4") for each in names]
        return [owner, *machines, *there]

    def test_forged_mirror_pod_does_not_stop_scale_up(self) -> None:
        made = planned(*self.nodes(1), self.mirror("n1", phase="Pending"), *pending_pods(4, cpu="3"))

        assert sizes(made) == {"a": (1, 5)}
        [entry] = made.kept
        assert (entry.kind, entry.name, entry.reason) == ("MachineSet", "a", "StaticPodNotCounted")
        assert "tenant/x-n1" in entry.message
        assert list(kept_pods(Plan(now=NOW, kept=made.kept))) == []

    @pytest.mark.parametrize("number", [1, 2, 3])
    def test_running_static_pod_counts_whatever_the_size_of_the_group(self, number: int) -> None:
        mirrors = [self.mirror(f"n{each}") for each in range(1, number + 1)]

        made = planned(*self.nodes(number), *mirrors, *pending_pods(4, cpu="3"))

        assert (sizes(made), {each.reason for each in made.kept}) == ({}, {"NoGroupFits"})

    @pytest.mark.parametrize(
        ("namespace", "on", "phase", "counts"),
        [
            ("tenant", (1,), "Running", False),
            ("tenant", (1, 2), "Running", False),
            ("tenant", (1, 2, 3), "Running", True),
            ("tenant", (1, 2, 3), "Pending", False),
            ("tenant", (2, 3, 4), "Running", False),
            ("kube-system", (1,), "Pending", True),
            ("openshift-etcd", (1,), "Running", True),
        ],
    )
    def test_static_pod_counts_if_no_tenant_can_have_created_it(
        self, namespace: str, on: tuple[int, ...], phase: str, counts: bool
    ) -> None:
        mirrors = [self.mirror(f"n{each}", namespace, phase=phase) for each in on]

        assert expected(*self.nodes(4), *mirrors) == ([f"{namespace}/x"] if counts else [])


class TestAdmission:
    """What admission will set is added to a template of a DaemonSet whose pods are not on a node of the group."""

    def requests(self, *builders: Any, **spec: Any) -> dict[str, int]:
        agent = daemon_set("agent", "tenant").of_pods(pod().merge(spec=spec))
        [made] = _templates(group(), agent, *builders).of_group[GROUP].pods
        return dict(made.spec.requests)

    def test_default_requests_of_a_limit_range(self) -> None:
        limits = limit_range(namespace="tenant").containers(defaultRequest={"cpu": "500m"})
        assert self.requests(limits) == {"cpu": 500}
        assert self.requests() == {}

    def test_overhead_of_a_runtime_class(self) -> None:
        assert self.requests(runtime_class().overhead(cpu="250m"), runtimeClassName="sandbox") == {"cpu": 250}

    @pytest.mark.parametrize("labels", ["sandbox=no", "sandbox=yes"])
    def test_nodes_of_a_runtime_class(self, labels: str) -> None:
        runtime = runtime_class().merge(scheduling={"nodeSelector": {"sandbox": "yes"}})
        agent = daemon_set("agent", "tenant").of_pods(pod().merge(spec={"runtimeClassName": "sandbox"}))
        assert expected(group(labels=labels), agent, runtime) == (["tenant/agent"] if labels == "sandbox=yes" else [])

    def test_a_toleration_of_a_runtime_class_creates_no_pod(self) -> None:
        """The DaemonSet controller reads the template only."""
        runtime = runtime_class().merge(scheduling={"tolerations": [{"operator": "Exists"}]})
        agent = daemon_set("agent", "tenant").of_pods(pod().merge(spec={"runtimeClassName": "sandbox"}))
        assert expected(group(taints="a=b:NoSchedule"), agent, runtime) == []

    def test_pods_of_a_higher_priority_class_are_expected_first(self) -> None:
        """Both do not fit on a node of 4 cores."""
        low, high = (
            daemon_set(name, "tenant").of_pods(pod().cpu("3").merge(spec={"priorityClassName": name}))
            for name in ("a-low", "b-high")
        )
        classes = priority_class("a-low", 1), priority_class("b-high", 2)
        assert expected(group(), low, high, *classes) == ["tenant/b-high"]


class TestCountedPods:
    def test_pods_on_the_sample_count(self) -> None:
        assert expected(*settled(), of_hog("n1"), hog(desired=1, current=1)) == ["tenant/hog"]

    def test_older_of_two_pods_on_the_sample_counts(self) -> None:
        older = of_hog("n1", cpu="1").created(LONG_AGO)
        newer = of_hog("n1").created("2026-11-20T11:00:00Z").merge(metadata={"name": "hog-y"})
        made = _templates(*settled(), older, newer, hog(desired=1, current=1)).of_group[GROUP]

        assert [each.spec.requests["cpu"] for each in made.pods] == [1000]

    def test_daemon_set_without_a_pod_on_the_settled_sample_does_not_count(self) -> None:
        other_nodes = [node("n2"), of_hog("n2"), hog(desired=2, current=2)]

        assert expected(*settled(), *other_nodes) == []
        assert uncounted(*settled(), *other_nodes) == {"hog": "DaemonSetNotOnNodes"}

    def test_pending_pod_for_the_sample_counts(self) -> None:
        other_nodes = [node("n2"), of_hog("n2"), of_hog(meant_for="n1"), hog(desired=2, current=2)]

        assert expected(*settled(), *other_nodes) == ["tenant/hog"]

    @pytest.mark.parametrize("elsewhere", [[], [node("n2"), of_hog("n2")]], ids=["only there", "elsewhere"])
    def test_pod_replaced_by_a_rolling_update_counts(self, elsewhere: list[Any]) -> None:
        """The next pod is created after the last one has terminated."""
        number = 1 + len(elsewhere) // 2
        old = of_hog("n1").deleted(LONG_AGO)

        assert expected(*settled(), *elsewhere, old, hog(desired=number, current=number)) == ["tenant/hog"]

    def test_daemon_set_that_never_ran_does_not_count(self) -> None:
        waiting = [of_hog(meant_for="n1"), hog(desired=1, current=1)]

        assert expected(*settled(), *waiting) == []
        assert uncounted(group(), hog(desired=0)) == {"hog": "DaemonSetNeverRan"}

    @pytest.mark.parametrize(("policy", "counts"), [("PreemptLowerPriority", True), ("Never", False)])
    def test_preempting_pods_count_once_created(self, policy: str, counts: bool) -> None:
        waiting = of_hog(meant_for="n1").priority(CRITICAL).merge(spec={"preemptionPolicy": policy})

        assert bool(expected(*settled(), waiting, hog(desired=1, current=1))) is counts

    def test_without_a_sample_pods_on_other_nodes_count(self) -> None:
        assert expected(group(), node("n2"), of_hog("n2"), hog(desired=1, current=1)) == ["tenant/hog"]

    def test_only_pods_that_fit_count(self) -> None:
        two = [hog("3", desired=1, current=1, name=name) for name in ("a", "b")]
        pods = [of_hog("n2", name=name) for name in ("a", "b")]

        assert expected(group(), node("n2"), *pods, *two) == ["tenant/a"]
        assert uncounted(group(), node("n2"), *pods, *two) == {"b": "DaemonSetTooLarge"}

    def test_force_counts_all_that_match(self) -> None:
        assert expected(*settled(), hog("1000", desired=1), force=True) == ["tenant/hog"]

    def test_recorded_overhead_limits_what_counts(self) -> None:
        """DaemonSets that match no existing node count up to the overhead in the group's record."""
        record = (
            '{"v":1,"at":"2026-11-20T11:00:00Z","of":"%s","node":"n1","allocatable":{"cpu":"4","memory":"16Gi",'
            '"pods":"110"},"capacity":{"cpu":"4","memory":"16Gi","pods":"110"},'
            '"daemons":{"pods":2,"requests":{"cpu":"500m"}}}'
        )
        from trimtab.autoscaling.template.learned_node import template_digest

        owner = machine_set("a").limits(0, 9).replicas(0)
        [digest] = [template_digest(each) for each in build_groups(Snapshot([owner.build()])).all]
        owner.annotations({"trimtab.dev/learned-node": record % digest})
        sets = [hog("400m", desired=0, name="agent"), hog("3", desired=0)]

        assert expected(owner, *sets) == ["tenant/agent"]

        # DaemonSets whose pods ran come first, even if their priority is lower.
        ran = [node("n2"), node("n3"), of_hog("n2", cpu="450m", name="z"), hog("450m", current=1, name="z")]
        sets[0].merge(spec={"template": {"spec": {"priority": 1}}})
        assert expected(owner, *sets, *ran) == ["tenant/z"]


class TestBlockingDaemonSets:
    def made(self) -> ScaleUpPlan:
        return planned(group(), node("n2"), of_hog("n2"), hog(desired=1, current=1), *pending_pods(2, cpu="3500m"))

    def test_plan_names_the_daemon_set(self) -> None:
        entries = [each for each in self.made().kept if each.kind == "DaemonSet"]

        assert [(each.namespace, each.name, each.reason) for each in entries] == [
            ("tenant", "hog", "DaemonSetsTakeRoom")
        ]
        assert "3 of 4 cpu" in entries[0].message

    def test_condition_names_the_daemon_set(self) -> None:
        report = IterationReport(
            started=NOW,
            finished=NOW,
            mode="Act",
            generation=1,
            plan=Plan(now=NOW, kept=self.made().kept),
            groups=build_groups(Snapshot([])),
            state=AutoscalerState(),
        )
        found = {each.type: each for each in conditions_of(report, ClusterAutoscalerStatus())}["Degraded"]

        assert (found.status, found.reason) == (True, reasons.DAEMON_SETS_TAKE_ROOM)
        assert "tenant/hog" in found.message

    def test_no_daemon_set_is_named_if_pods_do_not_fit_without_it(self) -> None:
        made = planned(group(), node("n2"), of_hog("n2"), hog(desired=1, current=1), *pending_pods(2, cpu="5"))

        assert [each for each in made.kept if each.kind == "DaemonSet"] == []


@st.composite
def hostile(draw: st.DrawFn) -> Any:
    """A DaemonSet of which a quota prevented some pods."""
    desired = draw(st.integers(0, 20))
    current = draw(st.integers(0, max(0, -(-9 * desired // 10) - 1)))
    spec: dict[str, Any] = draw(
        st.sampled_from(
            (
                {},
                {"priority": CRITICAL},
                {"tolerations": [{"operator": "Exists"}]},
                {"nodeSelector": {"kubernetes.io/hostname": "n1"}},
                {"nodeSelector": {"pool": "a"}},
                {"hostNetwork": True},
            )
        )
    )
    cpu = draw(st.sampled_from(("1m", "1", "3", "4", "1000", "9000000")))
    return hog(cpu, desired=desired, current=current, name=draw(st.sampled_from("abc")), **spec)


@given(st.lists(hostile(), max_size=3, unique_by=lambda each: each.build().name), st.booleans(), st.booleans())
def test_uncreated_daemon_sets_never_change_the_plan(sets: list[Any], full: bool, running: bool) -> None:
    world = settled() if full else [group()]
    wanting = pending_pods(6, cpu="1500m")
    forged = [of_hog("n1", name=each.build().name) for each in sets] if running and full else []

    made = planned(*world, *sets, *forged, *wanting)

    # What really runs on the node that is there takes room there, and none on new nodes.
    extra = len(made.nodes) - len(planned(*world, *wanting).nodes)
    assert extra <= (1 if forged else 0)
    assert all(sum(pod.spec.requests["cpu"] for pod in each.pods) <= 4000 for each in made.nodes)
    assert sum(len(each.pods) for each in made.nodes) + len(made.reserved) == 6


def test_sizes_with_running_agents() -> None:
    agent = hog("1", desired=1, current=1)

    assert sizes(planned(group(), node("n2").allocatable(cpu="1"), of_hog("n2", cpu="1"), agent, *pending_pods(6))) == {
        "a": (0, 2)
    }

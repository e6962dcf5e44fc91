"""Who may cause whose eviction: a tenant's statements move only its own pods, unless the policy allows more."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import (
    HOSTNAME,
    ZONE,
    PodBuilder,
    budget,
    expression,
    job,
    namespace,
    node,
    pod,
    replica_set,
    replication_controller,
    selector,
    stateful_set,
)
from tests.unit.descheduling.planning import (
    ANTI_AFFINITY,
    NOW,
    PREFERRED,
    REQUIRED,
    affinity,
    ago,
    anti_affinity,
    built,
    kept,
    messages,
    moves,
    nodes,
    policy,
    topology_spread,
    utilization,
)
from tests.unit.descheduling.planning import plan as plan_of
from trimtab.api import reasons
from trimtab.api.plan import Plan
from trimtab.cluster.affinity import bind
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planning.anti_affinity_conflicts import AntiAffinityConflicts
from trimtab.descheduling.planning.planner import plan_and_measure
from trimtab.descheduling.runs.record import run_plan, to_evictions
from trimtab.disruption.outcome import Refusal
from trimtab.disruption.protections.causes import EvictionCauses, bound_by_name
from trimtab.disruption.protections.gate import EvictionRules, Gate
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import KubeObject, Pod, PodCondition
from trimtab.kube.wire.limits import DEFAULT_LIMITS

ONLY = {ANTI_AFFINITY: {}}
NAME = "kubernetes.io/metadata.name"


def namespaces(*names: str) -> list[Any]:
    """Namespaces with the label that the API server gives them."""
    return [namespace(name).labels({NAME: name}) for name in names]


def resident(name: str, on: str, *, owner: str = "pay", of: str = "bank") -> PodBuilder:
    """A pod of another tenant that may be moved."""
    return pod(name, of).labels(app=owner).owned_by("ReplicaSet", owner).on(on).ready().cpu("100m")


def all_but(own: str = "tenant") -> dict[str, Any]:
    """Fields of a term that picks all pods of all other namespaces."""
    return {
        "labelSelector": {},
        "namespaceSelector": {"matchExpressions": [expression(NAME, "NotIn", own)]},
    }


def hostile(name: str = "hostile", on: str = "n1", *, key: str = HOSTNAME, owned: bool = False) -> PodBuilder:
    """A pod of the tenant that must not be with any pod of another namespace."""
    builder = pod(name, "tenant").labels(app="hostile").on(on).ready().anti_affinity(key, **all_but())
    return builder.owned_by("ReplicaSet", "hostile") if owned else builder


def too_complex(builder: PodBuilder) -> PodBuilder:
    """The pod with more tolerations than are kept, so that it is never moved."""
    for number in range(DEFAULT_LIMITS.tolerations + 1):
        builder.tolerates(f"key-{number}")
    return builder


def outcome(plan: Plan) -> tuple[list[tuple[str, str, str]], dict[str, str]]:
    return moves(plan), kept(plan)


def test_a_bare_pod_evicts_no_pod_of_another_namespace():
    """a1.yaml: the pod was bound by nodeName, and cannot be moved."""
    objects = [*nodes("n1", "n2"), *namespaces("bank", "tenant"), hostile()]
    objects += [resident("ledger", "n1", owner="ledger"), resident("pay", "n1")]
    result = plan_of(objects, ONLY)
    denied = reasons.CAUSED_FROM_OTHER_NAMESPACE
    assert outcome(result) == ([], {"hostile": reasons.BARE_POD, "ledger": denied, "pay": denied})
    assert "tenant/hostile" in messages(result)["pay"]


def test_bare_pod_does_not_evict_a_zone():
    objects = [*(node(f"n{number}").zone("a") for number in range(3)), node("n9").zone("b")]
    objects += [*namespaces("bank", "tenant"), hostile(key=ZONE)]
    objects += [resident(f"pay-{number}", f"n{number % 3}") for number in range(30)]
    result = plan_of(objects, ONLY)
    assert moves(result) == []
    assert set(kept(result)) == {"hostile", *(f"pay-{number}" for number in range(30))}


def test_unmovable_replica_set_evicts_no_other_pod():
    """leak.yaml: its term has every zone's ``pay`` pods in view."""
    objects = [*(node(f"n{number}").zone("ab"[number % 2]) for number in range(4)), *namespaces("bank", "tenant")]
    objects.append(
        pod("spy", "tenant")
        .labels(app="spy")
        .owned_by("ReplicaSet", "spy")
        .on("n0")
        .ready()
        .anti_affinity(ZONE, labelSelector=selector(app="pay"), namespaceSelector={})
    )
    objects += [resident(f"pay-{number}", f"n{number}") for number in range(4)]
    result = plan_of(objects, ONLY)
    denied = reasons.CAUSED_FROM_OTHER_NAMESPACE
    assert outcome(result) == ([], {"spy": reasons.NO_PLACE, "pay-0": denied, "pay-2": denied})


def test_pod_stating_the_rule_is_evicted_first():
    objects = [*nodes("n1", "n2"), *namespaces("bank", "tenant"), hostile(owned=True)]
    objects += [resident("ledger", "n1", owner="ledger").priority(-5), resident("pay", "n1")]
    assert outcome(plan_of(objects, ONLY)) == ([("hostile", "n1", "n2")], {})


@pytest.mark.parametrize("scope", [{}, {"namespaces": {"include": ["bank"]}}], ids=["all", "pol2.yaml: bank alone"])
@pytest.mark.parametrize("cross", ["Deny", "Allow"])
def test_no_pod_is_evicted_for_lower_priority(cross, scope):
    """prio.py: five pods of priority 1,000,000, one of kube-system, and a hostile one of priority -1000."""
    objects = [*nodes("n1", "n2"), *namespaces("bank", "tenant", "kube-system"), hostile().priority(-1000)]
    objects += [resident(f"v{number}", "n1", owner=f"v{number}").priority(1_000_000) for number in range(5)]
    objects.append(resident("dns", "n1", owner="dns", of="kube-system"))
    result = plan_of(objects, ONLY, crossNamespace=cross, **scope)
    assert moves(result) == []
    why = reasons.CAUSED_FROM_OTHER_NAMESPACE if cross == "Deny" else reasons.CAUSE_OF_LOWER_PRIORITY
    assert {name: reason for name, reason in kept(result).items() if name.startswith("v")} == {
        f"v{number}": why for number in range(5)
    }


def test_lower_priority_causes_no_eviction_within_namespace():
    """Also where it alone would do: then those go that state the rule."""
    apart = [
        pod(name, "shop")
        .labels(app=name)
        .owned_by("ReplicaSet", name)
        .on("n1")
        .anti_affinity(labelSelector=selector(app="a"))
        for name in "bcd"
    ]
    first = pod("a", "shop").labels(app="a").owned_by("ReplicaSet", "a").on("n1")
    assert moves(plan_of([*nodes("n1", "n2"), first, *apart], ONLY)) == [("a", "n1", "n2")]
    result = plan_of([*nodes("n1", "n2"), first.priority(1), *apart], ONLY)
    assert moves(result) == [(name, "n1", "n2") for name in "bcd"]
    pinned = [builder.volume("emptyDir") for builder in apart]
    result = plan_of([*nodes("n1", "n2"), first, *pinned], ONLY)
    assert (moves(result), kept(result)["a"]) == ([], reasons.CAUSE_OF_LOWER_PRIORITY)


def test_allow_evicts_pods_of_lower_priority():
    stated = pod("db", "data").labels(app="db").owned_by("StatefulSet", "db").on("n1").ready().priority(10)
    stated.anti_affinity(labelSelector={}, namespaceSelector={"matchExpressions": [expression(NAME, "NotIn", "data")]})
    objects = [node("n1"), node("n2"), *namespaces("bank", "data"), stated]
    objects += [resident("less", "n1", owner="less"), resident("equal", "n1", owner="equal").priority(10)]
    result = plan_of(objects, ONLY, crossNamespace="Allow", nodeSelector={"matchLabels": {HOSTNAME: "n1"}})
    assert (moves(result), kept(result)["equal"]) == ([], reasons.CAUSE_OF_LOWER_PRIORITY)
    # it has no place itself: its rule holds wherever "equal" and "other" are
    objects.append(resident("other", "n2", owner="other").priority(10))
    result = plan_of(objects, ONLY, crossNamespace="Allow")
    assert moves(result) == [("less", "n1", "n2")]
    assert [action.cause for action in result.actions] == ["data/db"]
    assert to_evictions(run_plan(policy(ONLY), result, nodes=2, pods=4)) == result.actions
    assert kept(result) == {"db": reasons.NO_PLACE, "equal": reasons.CAUSE_OF_LOWER_PRIORITY}
    assert moves(plan_of(objects, ONLY)) == []


CREATED_ON_NODE = {"managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:nodeName": {}}}}]}
ALLOWED = [*nodes("n1", "n2"), *namespaces("bank", "tenant"), resident("pay", "n1").started(ago(60))]


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        pytest.param(lambda pod: pod, reasons.CAUSE_UNMOVABLE, id="a bare pod"),
        pytest.param(
            lambda pod: pod.owned_by("ReplicaSet", "h").volume("emptyDir"), reasons.CAUSE_UNMOVABLE, id="local storage"
        ),
        pytest.param(
            lambda pod: pod.owned_by("ReplicaSet", "h").annotations(
                {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
            ),
            reasons.CAUSE_UNMOVABLE,
            id="safe-to-evict",
        ),
        pytest.param(
            lambda pod: pod.owned_by("ReplicaSet", "h").annotations({"descheduler.alpha.kubernetes.io/evict": "false"}),
            reasons.CAUSE_UNMOVABLE,
            id="evict",
        ),
        pytest.param(
            lambda pod: pod.owned_by("ReplicaSet", "h").labels(guarded="yes"), reasons.CAUSE_UNMOVABLE, id="budget"
        ),
        pytest.param(
            lambda pod: too_complex(pod.owned_by("ReplicaSet", "h")), reasons.CAUSE_UNMOVABLE, id="too complex"
        ),
        pytest.param(
            lambda pod: pod.owned_by("ReplicaSet", "h").started(ago(30)), reasons.CAUSE_NOT_SCHEDULED, id="came later"
        ),
        pytest.param(
            lambda pod: pod.owned_by("ReplicaSet", "h").started(ago(60)),
            reasons.CAUSE_NOT_SCHEDULED,
            id="came in the same second",
        ),
        pytest.param(
            lambda pod: pod.owned_by("ReplicaSet", "h").started(ago(90)).merge(metadata=CREATED_ON_NODE),
            reasons.CAUSE_NOT_SCHEDULED,
            id="ready, and created with a node name",
        ),
        pytest.param(
            lambda pod: pod.owned_by("ReplicaSet", "h").condition("Ready", "False").phase("Pending").started(ago(90)),
            reasons.CAUSE_NOT_SCHEDULED,
            id="on a node without the condition PodScheduled",
        ),
    ],
)
def test_a_pod_that_is_unmovable_or_was_bound_by_name_is_the_violator(cause, expected):
    """With Allow, and of higher priority. The node that would take it is full of what it must not be with."""
    builder = pod("hostile", "tenant").labels(app="h").on("n1").priority(100).anti_affinity(**all_but())
    builder = cause(builder if "PodScheduled" in str(expected) else builder.ready())
    objects = [*ALLOWED, builder, resident("other", "n2", owner="other").priority(1000)]
    objects.append(budget("guard", "tenant").selecting(guarded="yes").allowing(0))
    result = plan_of(objects, ONLY, crossNamespace="Allow")
    assert (moves(result), kept(result)["pay"]) == ([], expected)


@pytest.mark.parametrize(("metadata", "expected"), [({}, True), (CREATED_ON_NODE, False)])
def test_preference_of_a_pod_created_on_a_node_moves_no_pod_of_another_namespace(metadata, expected):
    """No order of arrival shows who broke a preference, so only managedFields do."""
    stating = pod("stating", "tenant").labels(app="s").owned_by("ReplicaSet", "s").on("n1").ready().priority(100)
    stating.anti_affinity(preferred=100, **all_but()).started(ago(90)).merge(metadata=metadata)
    objects = [*ALLOWED, stating, resident("other", "n2", owner="other").priority(1000)]
    result = plan_of(objects, anti_affinity(PREFERRED), crossNamespace="Allow")
    assert (moves(result) == [("pay", "n1", "n2")]) is expected
    if not expected:
        assert kept(result)["pay"] == reasons.CAUSE_NOT_SCHEDULED


def anti_social(name: str, *, started: int) -> PodBuilder:
    """A pod of the tenant that may be moved, with higher priority than the bank's."""
    builder = pod(name, "tenant").labels(app=name).owned_by("ReplicaSet", name).on("n1").ready().priority(100)
    return builder.anti_affinity(**all_but()).started(ago(started))


def test_pods_that_started_in_the_same_second_as_an_earlier_one_move_themselves():
    """The plan must not evict one of the bank's pods for causes that are refused for the other one."""
    objects = [*nodes("n1", "n2", "n3", "n4"), *namespaces("bank", "tenant")]
    objects += [resident("late", "n1", owner="late").started(ago(30))]
    objects += [resident("same", "n1", owner="same").started(ago(60))]
    objects += [anti_social(f"c{number}", started=60) for number in range(3)]
    result = plan_of(objects, ONLY, crossNamespace="Allow")
    assert sorted(name for name, *_ in moves(result)) == ["c0", "c1", "c2"]


@pytest.mark.parametrize(("first", "second"), [(60, 90), (90, 60)])
def test_the_cause_that_came_first_counts_whatever_its_name_is(first, second):
    pinned = {"nodeSelector": {HOSTNAME: "n1"}}
    objects = [*ALLOWED, anti_social("a", started=first).merge(spec=pinned)]
    objects.append(anti_social("z", started=second).merge(spec=pinned))
    assert moves(plan_of(objects, ONLY, crossNamespace="Allow")) == [("pay", "n1", "n2")]


def test_pods_that_only_other_namespaces_select_form_no_groups():
    objects = [*nodes("n1"), *namespaces("bank", "tenant"), hostile(), hostile("second")]
    objects += [resident(f"pay-{number}", "n1") for number in range(3)]
    snapshot = Snapshot(built(objects))
    for cross, unmovable, bystanders in (
        ("Deny", None, 3),
        ("Allow", None, 0),
        ("Allow", Refusal(reasons.BARE_POD, ""), 3),  # the pods with the term may evict none of another namespace
    ):
        rule = EvictionCauses(policy(ONLY, crossNamespace=cross).spec, lambda _, found=unmovable: found, snapshot)
        conflicts = AntiAffinityConflicts(snapshot, rule)
        assert sum(map(len, conflicts.components())) == 5 - bystanders
        assert [key for key, _ in conflicts.bystanders()] == [f"bank/pay-{number}" for number in range(bystanders)]
        assert {cause.pod.key for _, cause in conflicts.bystanders()} <= {"tenant/hostile"}
        conflicts.remove("tenant/hostile")
        assert {cause.pod.key for _, cause in conflicts.bystanders()} <= {"tenant/second"}
        conflicts.remove("tenant/second")
        assert conflicts.bystanders() == []


def test_a_protected_pod_is_kept_because_of_the_cause():
    bare = pod("bare", "bank").labels(app="bare").on("n1").ready()
    objects = [*nodes("n1", "n2"), *namespaces("bank", "tenant"), hostile(), bare]
    assert kept(plan_of(objects, ONLY))["bare"] == reasons.CAUSED_FROM_OTHER_NAMESPACE


def test_cause_may_evict_after_other_pods_were_moved():
    """Of three pods that state the rule the first must not cause the eviction, and the second has been moved."""
    stating = [pod(name, "data").on("n1").ready().anti_affinity(**all_but("data")) for name in ("a", "b", "c")]
    for number, each in enumerate(stating):
        each.priority(10 * (3 - number))
    objects = [*nodes("n1"), *namespaces("bank", "data"), resident("pay", "n1"), stating[0]]
    objects += [each.owned_by("ReplicaSet", "r") for each in stating[1:]]
    unmovable = Refusal(reasons.BARE_POD, "")
    spec, snapshot = policy(ONLY, crossNamespace="Allow").spec, Snapshot(built(objects))
    rule = EvictionCauses(spec, lambda pod: None if pod.owners else unmovable, snapshot)
    conflicts = AntiAffinityConflicts(snapshot, rule)
    conflicts.remove("data/b")
    assert conflicts.reasons("bank/pay") == 1
    assert [cause.pod.key for cause in conflicts.causes_of("bank/pay")] == ["data/c"]


def test_a_pod_whose_arrival_is_not_known_counts_as_scheduled():
    cause = pod("first", "tenant").labels(app="f").owned_by("ReplicaSet", "f").on("n1").ready().priority(100)
    cause.anti_affinity(**all_but())
    objects = [*ALLOWED, cause, resident("other", "n2", owner="other").priority(1000)]
    assert moves(plan_of(objects, ONLY, crossNamespace="Allow")) == [("pay", "n1", "n2")]


@pytest.mark.parametrize(
    ("builder", "expected"),
    [
        (pod("a"), False),
        (pod("a").on("n1").ready(), False),
        (pod("a").on("n1").ready().merge(metadata=CREATED_ON_NODE), True),
        (pod("a").ready().merge(metadata=CREATED_ON_NODE), False),
        (pod("a").on("n1"), False),
        (pod("a").on("n1").phase("Pending"), True),
        (pod("a").on("n1").phase("Pending").condition("PodScheduled", "True"), False),
        (pod("a").on("n1").condition("Ready", "False"), True),
    ],
)
def test_a_pod_on_a_node_without_the_condition_pod_scheduled_was_bound_by_name(builder, expected):
    assert bound_by_name(builder.build()) is expected


def test_a_preference_moves_no_pod_of_another_namespace():
    spy = pod("spy", "tenant").labels(app="spy").on("n1").ready()
    spy.anti_affinity(preferred=100, labelSelector={}, namespaceSelector={})
    objects = [*nodes("n1", "n2"), *namespaces("bank", "tenant"), spy, resident("pay", "n1")]
    result = plan_of(objects, anti_affinity(PREFERRED))
    assert outcome(result) == ([], {"spy": reasons.BARE_POD, "pay": reasons.CAUSED_FROM_OTHER_NAMESPACE})
    objects = [
        *nodes("n1", "n2"),
        *namespaces("bank", "tenant"),
        spy.owned_by("ReplicaSet", "spy"),
        resident("pay", "n1"),
    ]
    assert moves(plan_of(objects, anti_affinity(PREFERRED))) == [("spy", "n1", "n2")]


def test_a_preference_of_lower_priority_moves_no_pod():
    low = pod("low", "bank").labels(app="low").on("n1").ready().anti_affinity(preferred=1, labelSelector={})
    result = plan_of([*nodes("n1", "n2"), low, resident("pay", "n1").priority(1)], anti_affinity(PREFERRED))
    assert outcome(result) == ([], {"low": reasons.BARE_POD, "pay": reasons.CAUSE_OF_LOWER_PRIORITY})
    result = plan_of([*nodes("n1", "n2"), low, resident("pay", "n1")], anti_affinity(PREFERRED))
    assert moves(result) == [("pay", "n1", "n2")]


def test_a_hostile_preference_does_not_worsen_the_sum():
    """It cannot cause a move, but where it would weigh more, its own reason does not move a pod either."""
    spy = pod("spy", "tenant").labels(app="spy").on("n2").ready()
    spy.anti_affinity(preferred=100, labelSelector={}, namespaceSelector={})
    apart = [resident(name, "n1").anti_affinity(preferred=1) for name in ("a", "b")]
    objects = [*nodes("n1", "n2"), *namespaces("bank", "tenant"), spy, *apart]
    assert moves(plan_of(objects, anti_affinity(PREFERRED))) == []


LEVEL = utilization({"cpu": 30}, {"cpu": 50})


def test_unmovable_load_moves_no_pod_of_another_namespace():
    """A bare pod fills a node; without it the node is not above its target."""
    pinned = pod("pinned", "tenant").on("n1").ready().cpu("2500m")
    objects = [*nodes("n1", "n2"), pinned, resident("pay", "n1").cpu("500m"), resident("ledger", "n1").cpu("500m")]
    result = plan_of(objects, LEVEL)
    denied = reasons.CAUSED_FROM_OTHER_NAMESPACE
    assert outcome(result) == ([], {"pinned": reasons.BARE_POD, "pay": denied, "ledger": denied})
    assert moves(plan_of([*objects, resident("big", "n1", owner="big").cpu("2")], LEVEL)) == [("big", "n1", "n2")]


@pytest.mark.parametrize(
    "pinned",
    [
        pod("pinned", "tenant").owned_by("ReplicaSet", "x").on("n1").ready().node_selector({HOSTNAME: "n1"}),
        pod("pinned", "tenant").owned_by("ReplicaSet", "x").on("n1").ready().volume("emptyDir"),
        pod("pinned", "tenant").owned_by("ReplicaSet", "x").on("n1").phase("Pending"),
        pod("pinned", "tenant").owned_by("DaemonSet", "x").on("n1").ready(),
        too_complex(pod("pinned", "tenant").owned_by("ReplicaSet", "x").on("n1").ready()),
    ],
    ids=["suits no other node", "local storage", "bound by name", "a DaemonSet's on one node of four", "too complex"],
)
def test_pinned_load_moves_no_pod_of_another_namespace(pinned):
    objects = [*nodes("n1", "n2", "n3", "n4"), pinned.cpu("2500m"), resident("pay", "n1").cpu("500m")]
    assert moves(plan_of(objects, LEVEL)) == []
    assert kept(plan_of(objects, LEVEL))["pay"] == reasons.CAUSED_FROM_OTHER_NAMESPACE


TEMPLATED = [replica_set, stateful_set, replication_controller, job]


def naming_a_node(owner: Any) -> tuple[Any, PodBuilder]:
    """A workload of the tenant whose template sets ``nodeName``, and its pod, which the kubelet runs."""
    made = owner("x", "tenant").of_pods(pod()).merge(spec={"template": {"spec": {"nodeName": "n1"}}})
    kind = made.manifest()["kind"]
    return made, pod("pinned", "tenant").labels(app="h").owned_by(kind, "x", uid=uid_of(made)).on("n1").ready()


def uid_of(made: Any) -> str:
    return str(made.manifest()["metadata"]["uid"])


@pytest.mark.parametrize("owner", TEMPLATED)
def test_load_of_a_template_with_a_node_name_moves_no_pod_of_another_namespace(owner):
    """The tenant picks the node, and the pod always comes back to it."""
    made, pinned = naming_a_node(owner)
    objects = [*nodes("n1", "n2"), pinned.cpu("2500m"), resident("pay", "n1").cpu("500m")]
    assert moves(plan_of(objects, LEVEL)) == [("pay", "n1", "n2")]
    result = plan_of([*objects, made], LEVEL)
    assert moves(result) == []
    assert kept(result)["pay"] == reasons.CAUSED_FROM_OTHER_NAMESPACE


@pytest.mark.parametrize("owner", TEMPLATED)
def test_pod_of_a_template_with_a_node_name_was_not_placed_by_a_scheduler(owner):
    made, pinned = naming_a_node(owner)
    pinned.priority(100).anti_affinity(**all_but())
    objects = [*ALLOWED, pinned, resident("other", "n2", owner="other").priority(1000)]
    assert moves(plan_of(objects, ONLY, crossNamespace="Allow")) == [("pay", "n1", "n2")]
    result = plan_of([*objects, made], ONLY, crossNamespace="Allow")
    assert (moves(result), kept(result)["pay"]) == ([], reasons.CAUSE_NOT_SCHEDULED)


@pytest.mark.parametrize(
    ("stated", "goes"),
    [
        (lambda pod: pod.affinity(labelSelector=selector(app="anchor")), False),
        (lambda pod: pod.anti_affinity(labelSelector=selector(app="agent"), namespaceSelector={}), False),
        (lambda pod: pod.host_port(80), False),
        (lambda pod: pod.affinity(), True),
        (lambda pod: pod.anti_affinity(ZONE), True),
        (lambda pod: pod.host_port(81), True),
    ],
    ids=["near", "away", "port", "near its own", "away from its own", "free port"],
)
def test_load_that_rules_about_other_pods_pin_moves_no_pod_of_another_namespace(stated, goes):
    """A ReplicaSet's pods may be evicted; with a nodeName in the template they come back where they were."""
    names = ("n1", "n2", "n3", "n4")
    pinned = pod("pinned", "tenant").labels(app="big").owned_by("ReplicaSet", "x").on("n1").ready().cpu("2500m")
    objects = [*(node(name).zone("a") for name in names), *namespaces("bank", "tenant", "kube-system"), stated(pinned)]
    objects += [pod("anchor", "tenant").labels(app="anchor").on("n1").ready().cpu("1m")]
    objects += [
        pod(f"agent-{name}", "kube-system").labels(app="agent").on(name).ready().cpu("1m").host_port(80)
        for name in names[1:]
    ]
    result = plan_of([*objects, resident("pay", "n1").cpu("500m")], LEVEL)
    assert moves(result) == ([("pay", "n1", "n2")] if goes else [])
    assert kept(result).get("pay") == (None if goes else reasons.CAUSED_FROM_OTHER_NAMESPACE)


@pytest.mark.parametrize("others", ["small", "failed"])
def test_a_few_small_or_failed_pods_on_other_nodes_do_not_make_a_large_one_alike(others):
    """A user who makes pods with a DaemonSet for an owner, of any API group, chooses where they are and how large."""
    objects = [*nodes("n1", "n2", "n3", "n4"), resident("pay", "n1").cpu("500m")]
    for name in ("n1", "n2", "n3", "n4"):
        made = pod(f"p-{name}", "tenant").owned_by("DaemonSet", "x", api_version="x/v1").on(name).ready()
        made.cpu("1m" if name != "n1" and others == "small" else "2500m")
        objects.append(made.phase("Failed") if name != "n1" and others == "failed" else made)
    assert moves(plan_of(objects, LEVEL)) == []
    assert kept(plan_of(objects, LEVEL))["pay"] == reasons.CAUSED_FROM_OTHER_NAMESPACE


def test_load_common_to_all_nodes_counts():
    daemons = [
        pod(f"log-{name}", "logging").owned_by("DaemonSet", "log").on(name).ready().cpu("1") for name in ("n1", "n2")
    ]
    objects = [*nodes("n1", "n2"), *daemons, resident("pay", "n1").cpu("1"), resident("ledger", "n1").cpu("500m")]
    assert moves(plan_of(objects, utilization({"cpu": 30}, {"cpu": 50}))) == [("ledger", "n1", "n2")]


@pytest.mark.parametrize(
    "changes",
    [
        {"owners": ()},
        {"annotations": Labels({"descheduler.alpha.kubernetes.io/evict": "false"})},
        {"annotations": Labels({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})},
        {"conditions": (PodCondition("Ready", "False"),), "ready": False},
        {"node_name_managed": True},
    ],
    ids=["bare", "held", "unsafe", "bound by name", "created with a node name"],
)
def test_pods_that_share_a_spec_are_unmovable_each_for_itself(changes):
    """One of two made itself unmovable, whether it is asked about before the other or after it."""
    free = pod("free", "tenant").owned_by("ReplicaSet", "x").on("n1").ready().cpu("1250m").build()
    for name in ("a-pinned", "pinned"):
        pinned = replace(free, name=name, uid=name, **changes)
        objects = [*nodes("n1", "n2"), free, pinned, resident("pay", "n1").cpu("500m").priority(-1)]
        result = plan_of(objects, utilization({"cpu": 30}, {"cpu": 63}), crossNamespace="Deny")
        assert kept(result)["pay"] == reasons.CAUSED_FROM_OTHER_NAMESPACE
        movable = [*nodes("n1", "n2"), free, replace(free, name=name, uid=name), objects[-1]]
        assert moves(plan_of(movable, utilization({"cpu": 30}, {"cpu": 63}))) == [("pay", "n1", "n2")]


def test_template_verdict_is_computed_once(monkeypatch):
    """Nodes above their targets hold several times as many pods as have to move."""
    requested: list[str] = []
    rules, by_template = EvictionRules.unmovable, EvictionRules.unmovable_by_template

    def unmovable(self: EvictionRules, each: Pod) -> Refusal | None:
        requested.append(each.key)
        return rules(self, each)

    def unmovable_by_template(self: EvictionRules, each: Pod) -> bool | None:
        requested.append(each.key)
        return by_template(self, each)

    monkeypatch.setattr(EvictionRules, "unmovable", unmovable)
    monkeypatch.setattr(EvictionRules, "unmovable_by_template", unmovable_by_template)
    first = resident("pay", "n1").build()
    alike = [replace(first, name=f"pay-{number}", uid=str(number), node=f"n{number % 2}") for number in range(60)]
    assert len(moves(plan_of([*nodes("n0", "n1", "n2"), *alike], LEVEL))) == 20
    assert requested == [alike[0].key]


def test_unmovable_load_of_the_same_namespace_and_of_the_cluster_itself_counts():
    objects = [*nodes("n1", "n2"), resident("pay", "n1").cpu("500m")]
    for of in ("bank", "kube-system"):
        pinned = pod("pinned", of).on("n1").ready().cpu("2500m")
        assert moves(plan_of([*objects, pinned], LEVEL)) == [("pay", "n1", "n2")]


def test_a_pod_of_higher_priority_does_not_make_up_for_unmovable_load():
    pinned = pod("pinned", "bank").on("n1").ready().cpu("2500m")
    result = plan_of([*nodes("n1", "n2"), pinned, resident("pay", "n1").cpu("500m").priority(1)], LEVEL)
    assert (moves(result), kept(result)["pay"]) == ([], reasons.CAUSE_OF_LOWER_PRIORITY)


def test_a_limit_counts_by_the_namespace_that_causes_evictions():
    """The victims are of one namespace each; the rules of one namespace move them."""
    stated = pod("db", "data").labels(app="db").owned_by("StatefulSet", "db").on("n1").ready().priority(10)
    stated.anti_affinity(labelSelector=selector(app="pay"), namespaceSelector={})
    objects = [*nodes("n1", "n2"), *namespaces("data", "a", "b", "c"), stated]
    objects += [resident("stay", "n2", of="data").priority(1000), *(resident("pay", "n1", of=of) for of in "abc")]
    allowed = plan_of(objects, ONLY, crossNamespace="Allow")
    assert [action.namespace for action in allowed.actions] == ["a", "b", "c"]
    result = plan_of(objects, ONLY, crossNamespace="Allow", limits={"perCausingNamespace": 2})
    assert [action.namespace for action in result.actions] == ["a", "b"]
    assert [(each.namespace, each.reason) for each in result.kept if each.name == "pay"] == [
        ("c", reasons.LIMIT_REACHED)
    ]


def test_a_limit_counts_a_namespace_s_own_statements():
    spread = [resident(f"pay-{number}", "n1").spread(HOSTNAME) for number in range(6)]
    objects = [*nodes("n1", "n2"), *spread]
    limit = {"limits": {"perCausingNamespace": 1}}
    assert len(plan_of(objects, topology_spread()).actions) == 3
    assert len(plan_of(objects, topology_spread(), **limit).actions) == 1
    assert len(plan_of(objects, {"RemoveDuplicates": {}}, **limit).actions) == 3  # no pod states that


@pytest.mark.parametrize(
    ("fixed", "namespace", "pods", "evicted"),
    [
        ("3", "bank", ["200m"] * 4, (4, 1)),
        ("1", "bank", ["300m"] * 8, (5, 3)),
        ("3", "kube-system", ["200m"] * 4, (4, 4)),
    ],
    ids=["unmovable load", "first two for other load", "not counted as unmovable"],
)
def test_a_limit_counts_evictions_for_unmovable_load(fixed: str, namespace: str, pods: list[str], evicted: Any):
    objects = [*nodes("n1", "n2"), *namespaces("bank"), pod("fixed", namespace).on("n1").ready().cpu(fixed)]
    objects += [resident(f"pay-{number}", "n1").cpu(cpu) for number, cpu in enumerate(pods)]
    level, limit = utilization({"cpu": 45}, {"cpu": 50}), {"limits": {"perCausingNamespace": 1}}

    assert (len(plan_of(objects, level).actions), len(plan_of(objects, level, **limit).actions)) == evicted


@pytest.mark.parametrize(
    ("loads", "caused"),
    [
        ([("bank", 0, "10m"), ("shop", 0, "10m"), ("data", 10, "3")], {"data": 4}),
        ([("bank", 10, "1400m"), ("shop", 0, "10m"), ("data", 10, "750m"), ("data", 20, "750m")], {"data": 4}),
        ([("bank", 10, "2"), ("shop", 0, "10m"), ("data", 10, "1")], {"": 2, "bank": 2}),
    ],
    ids=["small ones of the victims' namespaces", "load of several priorities", "the victim's namespace"],
)
def test_evictions_for_unmovable_load_count_toward_the_namespace_with_the_largest(
    loads: list[tuple[str, int, str]], caused: dict[str, int]
) -> None:
    objects: list[Any] = [*nodes("n1", "n2"), *namespaces("bank", "shop", "data")]
    for number, (of, priority, cpu) in enumerate(loads):
        pinned = pod(f"pinned-{number}", of).owned_by("ReplicaSet", "pinned").priority(priority)
        objects.append(pinned.on("n1").ready().cpu(cpu).node_selector({HOSTNAME: "n1"}))
    objects += [resident(f"pay-{at}", "n1", owner=of, of=of).cpu("200m") for of in ("bank", "shop") for at in (1, 2)]
    level, allow = utilization({"cpu": 45}, {"cpu": 50}), {"crossNamespace": "Allow"}
    planned = plan_of(objects, level, **allow).actions
    assert Counter(each.cause.partition("/")[0] for each in planned) == caused
    assert len(plan_of(objects, level, **allow, limits={"perCausingNamespace": 1}).actions) == 1


TENANTS = ("bank", "shop", "tenant")


@st.composite
def clusters(draw: st.DrawFn) -> list[KubeObject]:
    """Up to 14 pods of three namespaces on three nodes of two zones, with terms against each other."""
    objects: list[Any] = [node("n1").zone("a"), node("n2").zone("a"), node("n3").zone("b"), *namespaces(*TENANTS)]
    for number in range(draw(st.integers(2, 14))):
        builder = pod(f"p{number}", draw(st.sampled_from(TENANTS))).labels(app=draw(st.sampled_from("ab")))
        builder.on(draw(st.sampled_from(("n1", "n1", "n2")))).ready()
        builder.priority(draw(st.sampled_from((0, 0, 10)))).started(ago(draw(st.integers(0, 3))))
        if draw(st.integers(0, 3)):
            builder.owned_by("ReplicaSet", f"r{number}")
        if not draw(st.integers(0, 5)):
            builder.volume("emptyDir")
        for _ in range(draw(st.integers(0, 2))):
            builder.anti_affinity(
                draw(st.sampled_from((HOSTNAME, HOSTNAME, ZONE))),
                preferred=draw(st.sampled_from((None, None, 5, 50))),
                labelSelector=draw(st.sampled_from(({}, selector(app="a")))),
                **draw(st.sampled_from(({}, {"namespaceSelector": {}}, {"namespaces": ["bank"]}))),
            )
        objects.append(builder)
    return built(objects)


@pytest.mark.parametrize("types", [(REQUIRED,), (PREFERRED,), (REQUIRED, PREFERRED)])
@given(data=st.data())
def test_no_eviction_has_its_only_cause_in_another_namespace(types, data):
    objects = data.draw(clusters())
    cross = data.draw(st.sampled_from(["Deny", "Deny", "Allow"]))
    strategies = {**anti_affinity(*types), **affinity(), **topology_spread()}
    snapshot = Snapshot(objects)
    result, measured = plan_and_measure(snapshot, [policy(strategies, crossNamespace=cross)], now=NOW)
    for action in result.actions:
        victim = snapshot.pods[action.key]
        stating = [other for other in snapshot.pods.values() if states_against(snapshot, other, victim)]
        allowed = [other for other in stating if may_cause(victim, other, allow=cross == "Allow")]
        assert allowed or states_anything(snapshot, victim), action
        if cross == "Deny":
            assert action.cause == ""
    for each in measured:
        assert each.after <= each.before


def may_cause(victim: Pod, other: Pod, *, allow: bool) -> bool:
    """The rule, in other words."""
    if victim.namespace == other.namespace:
        return other.priority >= victim.priority
    unmovable = not other.owners or any(volume.kind == "emptyDir" for volume in other.spec.volumes)
    return allow and other.priority > victim.priority and not unmovable


def states_against(snapshot: Snapshot, pod: Pod, other: Pod) -> bool:
    """Whether a pod has an anti-affinity term that picks another one."""
    labels = snapshot.namespace_labels(other.namespace)
    stated = pod.spec.affinity
    terms = (*stated.anti_required, *(each.term for each in stated.anti_preferred))
    return pod.key != other.key and any(
        bind(term, pod.namespace).matches(other.namespace, other.labels, labels) for term in terms
    )


def states_anything(snapshot: Snapshot, pod: Pod) -> bool:
    """Whether a pod has an anti-affinity term that picks some other pod."""
    return any(states_against(snapshot, pod, other) for other in snapshot.pods.values())


@st.composite
def loads(draw: st.DrawFn) -> list[KubeObject]:
    """Up to 12 pods of three namespaces, most of them on one of three nodes of 4 cpu."""
    objects: list[Any] = [*nodes("n1", "n2", "n3"), *namespaces(*TENANTS)]
    for number in range(draw(st.integers(3, 12))):
        builder = pod(f"p{number}", draw(st.sampled_from(TENANTS))).on(draw(st.sampled_from(("n1", "n1", "n2"))))
        builder.ready().cpu(draw(st.sampled_from(("100m", "400m", "900m")))).priority(draw(st.sampled_from((0, 10))))
        if draw(st.integers(0, 2)):
            builder.owned_by("ReplicaSet", f"r{number}")
        if not draw(st.integers(0, 4)):
            builder.volume("emptyDir")
        objects.append(builder)
    return built(objects)


@given(loads())
def test_unmovable_load_of_other_namespaces_evicts_no_pod(objects):
    snapshot = Snapshot(objects)
    for action in plan_of(objects, LEVEL).actions:
        victim = snapshot.pods[action.key]
        there = snapshot.pods_on(victim.node)
        counted = [each for each in there if movable(each) or may_cause(victim, each, allow=False)]
        assert sum(each.spec.requests["cpu"] for each in counted) > 2000, action


def movable(pod: Pod) -> bool:
    """Whether nothing that the pod states keeps it where it is."""
    return bool(pod.owners) and not any(volume.kind == "emptyDir" for volume in pod.spec.volumes)


@given(loads())
def test_template_result_applies_to_each_of_its_pods(objects):
    snapshot = Snapshot(objects)
    rules = Gate(snapshot, now=NOW).rules_for(policy(LEVEL).spec)
    for each in snapshot.pods.values():
        assert rules.unmovable_by_template(each) in (None, rules.unmovable(each) is not None)


_APPS = st.sampled_from(["pay", "web", "db"])


@given(
    st.lists(st.tuples(st.sampled_from(["tenant", "bank"]), _APPS, st.integers(0, 2), st.integers(0, 1)), max_size=8),
    st.lists(
        st.tuples(st.integers(0, 7), st.sampled_from([HOSTNAME, ZONE]), _APPS, st.sampled_from(["In", "NotIn"])),
        max_size=30,
    ),
    st.booleans(),
    st.lists(st.integers(0, 7), max_size=4),
)
def test_merged_terms_give_the_same_conflicts(
    pods: list[tuple[str, str, int, int]],
    terms: list[tuple[int, str, str, str]],
    crosses: bool,
    removed: list[int],
) -> None:
    builders = [
        pod(f"p{number}", of).labels(app=app).on(f"n{on}").ready().priority(priority)
        for number, (of, app, on, priority) in enumerate(pods)
    ]
    for place, (number, key, app, operator) in enumerate(terms):
        if number < len(builders):
            different = [expression("app", operator, app), expression(f"absent-{place}", "DoesNotExist")]
            builders[number].anti_affinity(key, labelSelector={"matchExpressions": different}, namespaceSelector={})
    world = [each.build() for each in (*namespaces("tenant", "bank"), *nodes("n0", "n1", "n2"), *builders)]

    def conflicts(merged_from: int, narrow: int) -> AntiAffinityConflicts:
        module = "trimtab.descheduling.planning.anti_affinity_conflicts"
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(f"{module}.MERGED_FROM", merged_from)
            patched.setattr(f"{module}._NARROW", narrow)
            spec = policy(ONLY, crossNamespace="Allow" if crosses else "Deny").spec
            snapshot = Snapshot(world)
            made = AntiAffinityConflicts(snapshot, EvictionCauses(spec, lambda _: None, snapshot))
        for number in removed:
            made.remove(f"{pods[number][0]}/p{number}") if number < len(pods) else None
        return made

    apart, merged = conflicts(10_000, 10_000), conflicts(0, 0)
    assert len(merged.conflicts) <= len(apart.conflicts)
    assert merged.pairs() == apart.pairs()
    keys = [f"{of}/p{number}" for number, (of, *_) in enumerate(pods)]
    for key in keys:
        assert merged.degree(key) == apart.degree(key)
        assert merged.reasons(key) == apart.reasons(key)
        assert merged.neighbours(key) == apart.neighbours(key)
        assert bool(merged.causes_of(key)) == bool(apart.causes_of(key))
    movable = set(keys[2:])
    assert merged.forced(movable, keys[:2]) & movable == apart.forced(movable, keys[:2]) & movable
    groups = [{frozenset(group) for group in each.components()} for each in (merged, apart)]
    assert groups[0] == groups[1]

"""Which pods are never moved, and why."""

from __future__ import annotations

import msgspec
import pytest

from tests.builders import NOW, PodBuilder, budget, pod
from tests.fixtures.golden import Golden
from trimtab.api import reasons
from trimtab.api.descheduler_policy import DeschedulerPolicySpec, PriorityThreshold, Protections, Requirement, Selector
from trimtab.api.strategies import Strategies
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import BudgetLedger
from trimtab.disruption.outcome import Refusal
from trimtab.disruption.protections import PROTECTIONS, ProtectionContext, protections_of
from trimtab.disruption.protections.gate import EvictionRules, Gate
from trimtab.disruption.protections.surge import SurgeChecker
from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects import KubeObject, Namespace, PersistentVolumeClaim, Pod, PriorityClass
from trimtab.kube.wire.decode import decode_object

EVICT = "descheduler.alpha.kubernetes.io/evict"
CRITICAL = "scheduler.alpha.kubernetes.io/critical-pod"
PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
NOW_SECONDS = 1795176000.0  # builders.NOW


def spec(**parts: object) -> DeschedulerPolicySpec:
    return DeschedulerPolicySpec(strategies=Strategies(), **parts)  # type: ignore[arg-type]


def rules(spec: DeschedulerPolicySpec, *objects: KubeObject) -> EvictionRules:
    return Gate(Snapshot(objects), now=NOW_SECONDS).rules_for(spec)


def web(name: str = "web-1", namespace: str = "shop") -> PodBuilder:
    return pod(name, namespace=namespace).labels(app="web").on("n1").ready().owned_by("ReplicaSet", "web")


def verdict(builder: PodBuilder, policy: DeschedulerPolicySpec, *objects: KubeObject) -> Refusal | None:
    requested = builder.build()
    return rules(policy, requested, *objects).protected(requested)


ALL_LIFTED = spec(protections=Protections(disabled=("PodsWithLocalStorage", "SystemNamespaces", "FailedBarePods")))

OF_CLASS_SLOW = spec(protections=Protections(extra=("PodsWithPVC",), protected_storage_classes=("slow",)))
MANDATORY = spec(protections=Protections(no_eviction_policy="Mandatory"))
SELECTED = spec(namespace_selector=Selector(match_expressions=(Requirement(key="held", operator="DoesNotExist"),)))

NEVER_MOVED = [
    pytest.param(lambda: web().priority(2_000_000_000), reasons.CRITICAL_POD, id="critical priority"),
    pytest.param(lambda: web().priority(2_000_001_000, "system-node-critical"), reasons.CRITICAL_POD, id="class"),
    pytest.param(
        lambda: web().merge(spec={"priorityClassName": "system-cluster-critical"}),
        reasons.CRITICAL_POD,
        id="critical class without an admitted priority",
    ),
    pytest.param(lambda: web().annotations({CRITICAL: ""}), reasons.CRITICAL_POD, id="critical annotation"),
    pytest.param(lambda: pod("lone", namespace="shop").on("n1").ready(), reasons.BARE_POD, id="bare"),
    pytest.param(
        lambda: pod("lone", namespace="shop").on("n1").ready().owned_by("ConfigMap", "c", controller=False),
        reasons.BARE_POD,
        id="an owner that is no controller",
    ),
    pytest.param(
        lambda: web().annotations({"kubernetes.io/config.source": "file"}), reasons.STATIC_POD, id="static from a file"
    ),
    pytest.param(
        lambda: web().annotations({"kubernetes.io/config.source": "http"}), reasons.STATIC_POD, id="static from a URL"
    ),
    pytest.param(lambda: web().mirror(), reasons.MIRROR_POD, id="mirror"),
    pytest.param(
        lambda: pod("m", namespace="shop").on("n1").ready().owned_by("Node", "n1"), reasons.MIRROR_POD, id="node's"
    ),
    pytest.param(
        lambda: pod("d", namespace="shop").on("n1").ready().owned_by("DaemonSet", "d"),
        reasons.DAEMON_SET_POD,
        id="daemon set",
    ),
    pytest.param(
        lambda: (
            pod("d", namespace="shop")
            .on("n1")
            .ready()
            .owned_by("DaemonSet", "d", api_version="apps.kruise.io/v1alpha1")
        ),
        reasons.DAEMON_SET_POD,
        id="another group's daemon set",
    ),
    pytest.param(lambda: web().deleted(), reasons.TERMINATING, id="terminating"),
    pytest.param(lambda: web().phase("Succeeded"), reasons.TERMINAL, id="succeeded"),
    pytest.param(lambda: web().phase("Failed"), reasons.TERMINAL, id="failed"),
]


@pytest.mark.parametrize(("build", "reason"), NEVER_MOVED)
def test_protected_pods_are_refused(build, reason):
    refusal = verdict(build(), spec())
    assert refusal is not None
    assert refusal.reason == reason


@pytest.mark.parametrize(("build", "reason"), NEVER_MOVED)
def test_non_liftable_protections_cannot_be_lifted(build, reason):
    refusal = verdict(build().annotations({EVICT: "true"}), ALL_LIFTED)
    assert refusal is not None
    assert refusal.reason == reason


def test_owner_without_controller_flag_is_named(golden: Golden):
    lone = pod("lone", namespace="shop").on("n1").ready().owned_by("ReplicaSet", "web", controller=False)
    refusal = verdict(lone, spec())
    assert refusal is not None
    golden(refusal.message)


LIFTABLE = [
    pytest.param(lambda: web().volume("emptyDir"), spec(), reasons.LOCAL_STORAGE, id="emptyDir"),
    pytest.param(lambda: web().volume("hostPath", path="/x"), spec(), reasons.LOCAL_STORAGE, id="hostPath"),
    pytest.param(lambda: web(namespace="kube-system"), spec(), reasons.SYSTEM_NAMESPACE, id="kube-system"),
    pytest.param(lambda: web(namespace="openshift-dns"), spec(), reasons.SYSTEM_NAMESPACE, id="openshift-dns"),
    pytest.param(
        lambda: web().volume("persistentVolumeClaim", claimName="data"),
        spec(protections=Protections(extra=("PodsWithPVC",))),
        reasons.PERSISTENT_VOLUME_CLAIM,
        id="claim",
    ),
    pytest.param(
        lambda: web().volume("persistentVolumeClaim", claimName="data"),
        OF_CLASS_SLOW,
        reasons.PERSISTENT_VOLUME_CLAIM,
        id="a claim of no known class",
    ),
    pytest.param(
        lambda: web().merge(spec={"resourceClaims": [{"name": "gpu"}]}),
        spec(protections=Protections(extra=("PodsWithResourceClaims",))),
        reasons.RESOURCE_CLAIM,
        id="resource claim",
    ),
    pytest.param(
        lambda: web().annotations({PREFER_NO_EVICTION: "true"}),
        spec(protections=Protections(no_eviction_policy="Mandatory")),
        reasons.NO_EVICTION_ANNOTATION,
        id="prefer-no-eviction",
    ),
    pytest.param(
        web, spec(protections=Protections(extra=("PodsWithoutPDB",))), reasons.NO_DISRUPTION_BUDGET, id="no budget"
    ),
    pytest.param(web, spec(protections=Protections(min_replicas=2)), reasons.TOO_FEW_REPLICAS, id="one replica of two"),
    pytest.param(
        lambda: web().started("2026-11-20T11:59:00Z"),
        spec(protections=Protections(min_pod_age="2m")),
        reasons.POD_TOO_YOUNG,
        id="started a minute ago",
    ),
    pytest.param(web, spec(protections=Protections(min_pod_age="2m")), reasons.POD_TOO_YOUNG, id="not started"),
    pytest.param(
        lambda: web().priority(1000),
        spec(priority_threshold=PriorityThreshold(value=1000)),
        reasons.PRIORITY_TOO_HIGH,
        id="priority at the threshold",
    ),
    pytest.param(
        lambda: web().phase("Pending").created("2026-11-20T11:56:00Z"), spec(), reasons.POD_STARTING, id="starting"
    ),
    pytest.param(lambda: web().phase("Pending"), spec(), reasons.POD_STARTING, id="starting since an unknown time"),
]


@pytest.mark.parametrize(("build", "policy", "reason"), LIFTABLE)
def test_policy_settings_protect_pods(build, policy, reason):
    refusal = verdict(build(), policy)
    assert refusal is not None
    assert refusal.reason == reason


@pytest.mark.parametrize(("build", "policy", "reason"), LIFTABLE)
def test_evict_annotation_lifts_liftable_protections(build, policy, reason):
    assert verdict(build().annotations({EVICT: "true"}), policy) is None


@pytest.mark.parametrize(
    ("build", "policy"),
    [
        pytest.param(web, spec(), id="plain"),
        pytest.param(lambda: web().volume("configMap", name="c"), spec(), id="volumes without data"),
        pytest.param(lambda: web().volume("emptyDir"), ALL_LIFTED, id="local storage lifted"),
        pytest.param(lambda: web(namespace="kube-system"), ALL_LIFTED, id="system namespaces lifted"),
        pytest.param(lambda: web(namespace="kubeflow"), spec(), id="a namespace that only looks like the cluster's"),
        pytest.param(lambda: web().volume("persistentVolumeClaim", claimName="d"), spec(), id="claims are no matter"),
        pytest.param(lambda: web().annotations({"kubernetes.io/config.source": "api"}), spec(), id="source api"),
        pytest.param(lambda: web().priority(1_999_999_999), spec(), id="just below critical"),
        pytest.param(
            lambda: web().priority(999), spec(priority_threshold=PriorityThreshold(value=1000)), id="below threshold"
        ),
        pytest.param(
            lambda: web().started("2026-11-20T11:58:00Z"), spec(protections=Protections(min_pod_age="2m")), id="of age"
        ),
        pytest.param(
            lambda: web().phase("Pending").created("2026-11-20T11:55:00Z"), spec(), id="stuck rather than starting"
        ),
        pytest.param(web, spec(protections=Protections(min_replicas=1)), id="one replica of one"),
        pytest.param(web, OF_CLASS_SLOW, id="no claim at all"),
        pytest.param(
            web, spec(protections=Protections(extra=("PodsWithResourceClaims",))), id="no resource claim at all"
        ),
        pytest.param(lambda: web().annotations({PREFER_NO_EVICTION: "true"}), spec(), id="a wish is no order"),
        pytest.param(lambda: web().annotations({PREFER_NO_EVICTION: "false"}), MANDATORY, id="a wish that is none"),
    ],
)
def test_unprotected_pods_may_be_evicted(build, policy):
    assert verdict(build(), policy) is None


@pytest.mark.parametrize("value", ["false", "", "no", "True"])
def test_an_evict_annotation_other_than_true_protects(value):
    refusal = verdict(web().annotations({EVICT: value}), ALL_LIFTED)
    assert refusal is not None
    assert refusal.reason == reasons.EVICT_ANNOTATION
    assert f'"{value}"' in refusal.message


def test_pods_without_budget_are_refused_if_enabled():
    policy = spec(protections=Protections(extra=("PodsWithoutPDB",)))
    assert verdict(web(), policy, budget("web", namespace="shop").selecting(app="web").build()) is None
    assert verdict(web(), policy, budget("db", namespace="shop").selecting(app="db").build()) is not None


@pytest.mark.parametrize(
    ("volume", "claim", "storage_class", "stays"),
    [
        pytest.param({"claimName": "data"}, "data", "slow", True, id="of the protected class"),
        pytest.param({"claimName": "data"}, "data", "fast", False, id="of another class"),
        pytest.param({"claimName": "data"}, "data", "", False, id="of no class, and that is said"),
        pytest.param({"claimName": "data"}, "data", None, True, id="of a class that the policy does not name"),
        pytest.param({"claimName": "data"}, "other", "fast", True, id="a claim that is not there"),
    ],
)
def test_only_protected_storage_classes_refuse(volume, claim, storage_class, stays):
    requested = web().volume("persistentVolumeClaim", **volume)
    found = PersistentVolumeClaim(namespace="shop", name=claim, storage_class=storage_class)
    refusal = verdict(requested, OF_CLASS_SLOW, found)
    assert (refusal is not None) == stays
    assert refusal is None or refusal.reason == reasons.PERSISTENT_VOLUME_CLAIM


def test_ephemeral_claim_has_a_storage_class(golden: Golden):
    requested = web().ephemeral("scratch")
    slow = PersistentVolumeClaim(namespace="shop", name="web-1-scratch", storage_class="slow")
    fast = PersistentVolumeClaim(namespace="shop", name="web-1-scratch", storage_class="fast")
    refusal = verdict(requested, OF_CLASS_SLOW, slow)
    assert refusal is not None
    golden(refusal.message)
    assert verdict(requested, OF_CLASS_SLOW, fast) is None


@pytest.mark.parametrize(
    ("phase", "policy", "reason"),
    [
        pytest.param("Failed", ALL_LIFTED, reasons.TERMINAL, id="failed permanently"),
        pytest.param("Running", ALL_LIFTED, reasons.BARE_POD, id="running"),
        pytest.param("Pending", ALL_LIFTED, reasons.BARE_POD, id="pending"),
        pytest.param("Succeeded", ALL_LIFTED, reasons.TERMINAL, id="succeeded"),
    ],
)
def test_bare_pod_may_be_evicted_only_after_failure(phase, policy, reason):
    refusal = verdict(pod("lone", namespace="shop").on("n1").phase(phase), policy)
    assert refusal is not None
    assert refusal.reason == reason


def test_failed_bare_pods_are_not_refused():
    lone = pod("lone", namespace="shop").on("n1").phase("Failed").build()
    context = ProtectionContext(
        spec=ALL_LIFTED,
        snapshot=Snapshot([lone]),
        budgets=BudgetLedger(Snapshot([])),
        surges=SurgeChecker(Snapshot([]), None),
        now=NOW_SECONDS,
    )
    assert [rule.name for rule in protections_of(context) if rule.refusal(lone)] == [reasons.TERMINAL]


def test_pods_of_unknown_namespace_are_refused():
    refusal = verdict(web().annotations({EVICT: "true"}), SELECTED)
    assert refusal is not None
    assert refusal.reason == reasons.UNKNOWN_NAMESPACE
    assert verdict(web(), SELECTED, Namespace(name="shop")) is None


def test_terminal_and_terminating_replicas_do_not_count(golden: Golden):
    policy = spec(protections=Protections(min_replicas=3))
    others = [web("web-2").build(), web("web-3").deleted().build(), web("web-4").phase("Failed").build()]
    refusal = verdict(web(), policy, *others)
    assert refusal is not None
    assert refusal.reason == reasons.TOO_FEW_REPLICAS
    golden(refusal.message)
    assert verdict(web(), policy, *others, web("web-5").build()) is None


def test_tentatively_removed_pod_counts_itself_as_replica():
    policy = spec(protections=Protections(min_replicas=2))
    first, second = web("web-1").build(), web("web-2").build()
    snapshot = Snapshot([first, second])
    requested = Gate(snapshot, now=NOW_SECONDS).rules_for(policy)
    snapshot.remove(first)
    assert requested.protected(first) is None


def test_a_threshold_by_class_uses_the_class_value(golden: Golden):
    policy = spec(priority_threshold=PriorityThreshold(name="high"))
    high = PriorityClass(name="high", value=500)
    assert verdict(web().priority(499), policy, high) is None
    refusal = verdict(web().priority(500), policy, high)
    assert refusal is not None
    golden(refusal.message)


@pytest.mark.parametrize("name", ["system-cluster-critical", "system-node-critical"])
def test_system_priority_classes_are_built_in(name):
    assert verdict(web().priority(1_000_000_000), spec(priority_threshold=PriorityThreshold(name=name))) is None


def test_threshold_by_unknown_class_refuses_every_pod():
    policy = spec(priority_threshold=PriorityThreshold(name="hihg"))
    refusal = verdict(web().annotations({EVICT: "true"}), policy)
    assert refusal is not None
    assert refusal.reason == reasons.UNKNOWN_PRIORITY_CLASS
    assert "'hihg'" in refusal.message


def test_protection_result_is_stable_throughout_a_plan():
    policy = spec(protections=Protections(min_replicas=2))
    first, second = web("web-1").build(), web("web-2").build()
    snapshot = Snapshot([first, second])
    requested = Gate(snapshot, now=NOW_SECONDS).rules_for(policy)
    assert requested.protected(first) is None
    snapshot.remove(second)
    assert requested.protected(first) is None


def test_every_protection_has_its_own_reason_code():
    for policy in (spec(), ALL_LIFTED):
        names = [kind.name for kind in PROTECTIONS if kind.applies(policy)]
        assert len(set(names)) == len(names)
    assert {kind.name for kind in PROTECTIONS} <= {code for name, code in vars(reasons).items() if name.isupper()}


def test_builders_and_this_module_agree_on_now():
    assert web().started(NOW).build().started == NOW_SECONDS


def test_template_protections_are_consecutive():
    shared = "".join("t" if kind.of_template else "." for kind in PROTECTIONS)
    assert shared.strip(".") == "t" * shared.count("t")


def test_pods_of_one_template_keep_their_own_protections():
    first = web("web-1").build()
    snapshot = Snapshot([first])
    requested = Gate(snapshot, now=NOW_SECONDS).rules_for(spec())
    assert requested.protected(first) is None
    for fields, reason in [
        ({"deleted": 1.0}, reasons.TERMINATING),
        ({"phase": "Failed"}, reasons.TERMINAL),
        ({"phase": "Pending"}, reasons.POD_STARTING),
        ({"namespace": "kube-system"}, reasons.SYSTEM_NAMESPACE),
        ({"annotations": FrozenMap({EVICT: "false"})}, reasons.EVICT_ANNOTATION),
    ]:
        refusal = requested.protected(msgspec.structs.replace(first, name=f"web-{reason}", **fields))
        assert refusal is not None
        assert refusal.reason == reason


def test_too_complex_pod_is_refused_despite_annotation() -> None:
    manifest = web().annotations({EVICT: "true"}).manifest()
    manifest["spec"]["tolerations"] = [{"key": f"k{number}", "operator": "Exists"} for number in range(1_000)]
    found = decode_object(manifest)
    assert isinstance(found, Pod)
    refusal = rules(ALL_LIFTED, found).protected(found)
    assert refusal is not None
    assert refusal.reason == reasons.POD_TOO_COMPLEX

"""What the manifests ask of a cluster, read from the kustomize base (which is the chart with its default values)."""

from __future__ import annotations

import re
from typing import Any, Final

import click
import pytest
import yaml
from tools.generate import BASE, ROOT
from tools.generate.base import NAMESPACE

from trimtab.api.descheduler_status import RUN_NOW, TRY_AGAIN
from trimtab.autoscaling.actuation import node_markers
from trimtab.autoscaling.groups import annotations
from trimtab.autoscaling.machine_autoscalers import RULES as MACHINE_AUTOSCALER_RULES
from trimtab.autoscaling.machine_autoscalers import annotations as copies
from trimtab.autoscaling.machine_autoscalers.registry import OPENSHIFT_FINALIZER
from trimtab.autoscaling.providers import DIALECTS
from trimtab.autoscaling.report.status_config_map import NAME as CLUSTER_STATUS
from trimtab.autoscaling.scale_up.expanders.priority import CONFIG_MAP
from trimtab.autoscaling.template import recording
from trimtab.cli.run import run
from trimtab.cluster.disruption_signals import UNNEEDED_SINCE
from trimtab.cluster.kinds import KINDS, SNAPSHOT_KINDS, TAINTING
from trimtab.controller.history import WRITER_LABEL
from trimtab.descheduling.runs.record import POLICY_LABEL
from trimtab.inspection.live import HISTORY_KINDS, POLICY_KINDS
from trimtab.kube.events.recorder import CONTROLLER
from trimtab.kube.objects import NODE_LEASES
from trimtab.kube.resources import (
    CLUSTER_AUTOSCALERS,
    CONFIG_MAPS,
    DESCHEDULER_POLICIES,
    DESCHEDULING_RUNS,
    EVENTS,
    HISTORY_RECORDS,
    LEASES,
    MACHINE_AUTOSCALERS,
    NODE_METRICS,
    NODES,
    POD_METRICS,
    PODS,
    TAINT_MANAGERS,
    Resource,
)
from trimtab.kube.rules.taints import DELETION_CANDIDATE, NO_SCHEDULE, PREFER_NO_SCHEDULE, TO_BE_DELETED
from trimtab.runtime.http.server import Limits
from trimtab.runtime.inspection.questions import RESOURCES
from trimtab.runtime.kopf_operator import KOPF_PREFIX
from trimtab.runtime.leader_election.duplicate_operators import CONTROLLERS, LABEL, SUFFIX
from trimtab.runtime.settings import Settings
from trimtab.tainting.deadlines import SINCE_ANNOTATION
from trimtab.tainting.lifecycle.record import NAME as RECORD

Right = tuple[str, str, str]
"""Group, resource and verb."""

MANIFESTS: list[dict[str, Any]] = [
    document
    for path in sorted(BASE.glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]


def the(kind: str, name: str = "trimtab") -> dict[str, Any]:
    [found] = [each for each in MANIFESTS if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def rights(role: dict[str, Any]) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def rights_of(controller: str) -> set[Right]:
    """The permissions of a controller's role, and of its role for statuses, which have no rule in common."""
    role, reporting = (rights(the("ClusterRole", f"trimtab-{controller}{suffix}")) for suffix in ("", "-status"))
    assert not role & reporting
    return role | reporting


def right(resource: Resource, *verbs: str, subresource: str = "") -> set[Right]:
    plural = "/".join(filter(None, (resource.plural, subresource)))
    return {(resource.group, plural, verb) for verb in verbs}


def test_role_of_the_operator_matches_the_code() -> None:
    expected = set().union(*(right(resource, "list", "watch") for resource in KINDS))
    expected |= right(PODS, "get") | right(PODS, "create", subresource="eviction")
    expected |= right(NODE_METRICS, "list") | right(POD_METRICS, "list")
    expected |= right(EVENTS, "create", "patch")
    expected |= right(DESCHEDULER_POLICIES, "list", "watch", "patch")
    expected |= right(DESCHEDULER_POLICIES, "patch", subresource="status")
    expected |= right(DESCHEDULING_RUNS, "list", "watch", "create", "delete")
    expected |= right(DESCHEDULING_RUNS, "patch", subresource="status")
    assert rights_of("descheduler") == expected


def test_role_of_the_autoscaler_matches_the_code() -> None:
    expected = set().union(*(right(resource, "list", "watch") for resource in SNAPSHOT_KINDS))
    expected |= right(PODS, "get") | right(PODS, "create", subresource="eviction")
    expected |= right(NODES, "get", "patch")
    expected |= right(EVENTS, "create", "patch")
    expected |= right(CLUSTER_AUTOSCALERS, "list", "watch", "patch")
    expected |= right(CLUSTER_AUTOSCALERS, "patch", subresource="status")
    rules = [*MACHINE_AUTOSCALER_RULES, *recording.rules(), *(rule for each in DIALECTS for rule in each.rules())]
    expected |= rights({"rules": rules})
    assert rights_of("cluster-autoscaler") == expected


@pytest.mark.parametrize(
    ("controller", "kinds"),
    [
        ("descheduler", {DESCHEDULER_POLICIES, DESCHEDULING_RUNS}),
        ("cluster-autoscaler", {CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS}),
        ("taint-manager", {TAINT_MANAGERS}),
    ],
)
def test_separate_role_permits_reading_own_kinds_and_writing_their_status(
    controller: str, kinds: set[Resource]
) -> None:
    reporting = rights(the("ClusterRole", f"trimtab-{controller}-status"))
    for kind in kinds:
        assert right(kind, "list", "watch") | right(kind, "patch", subresource="status") <= reporting
    assert {resource.partition("/")[0] for _, resource, _ in reporting} == {kind.plural for kind in kinds}
    assert {verb for _, _, verb in reporting} <= {"get", "list", "watch", "patch"}


def test_the_autoscaler_may_touch_no_config_map_but_its_own() -> None:
    role = the("Role", "trimtab-cluster-autoscaler")
    assert rights(role) == right(CONFIG_MAPS, "get", "create", "patch")
    bound = {tuple(rule["verbs"]): rule.get("resourceNames") for rule in role["rules"]}
    assert bound == {("get",): [CONFIG_MAP], ("create",): None, ("get", "patch"): ["cluster-autoscaler-status"]}
    assert role["metadata"]["namespace"] == NAMESPACE


def test_role_of_the_taint_manager_only_observes() -> None:
    expected = right(NODES, "list", "watch") | right(PODS, "list", "watch")
    expected |= right(EVENTS, "create", "patch")
    expected |= right(TAINT_MANAGERS, "list", "watch", "patch") | right(TAINT_MANAGERS, "patch", subresource="status")
    assert rights_of("taint-manager") == expected


def test_the_taint_manager_reads_the_leases_of_nodes_and_no_others() -> None:
    role = the("Role", "trimtab-taint-manager")
    assert rights(role) == set().union(*(right(resource, "list", "watch") for resource in TAINTING))
    assert role["metadata"]["namespace"] == NODE_LEASES
    assert the("RoleBinding", "trimtab-taint-manager")["metadata"]["namespace"] == NODE_LEASES


def test_the_operator_may_touch_no_lease_but_its_own() -> None:
    role = the("Role", "trimtab-lease")
    assert rights(role) == right(LEASES, "create", "get", "update", "watch")
    name = Settings().lease_name
    assert {tuple(rule["verbs"]): rule.get("resourceNames") for rule in role["rules"]} == {
        ("create",): None,
        ("get", "update"): [name, name + SUFFIX],
        ("watch",): [name],
    }
    assert role["metadata"]["namespace"] == NAMESPACE
    assert rights(the("ClusterRole", "trimtab-acting")) == right(LEASES, "list"), "those of operators elsewhere"


def test_the_operator_writes_and_prunes_its_history() -> None:
    expected = right(HISTORY_RECORDS, "get", "list", "create", "patch", "delete")
    assert rights(the("ClusterRole", "trimtab-history")) == expected


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_no_role_has_a_wildcard_or_reads_secrets_or_deletes_more_than_our_own_objects(kind: str) -> None:
    for role in MANIFESTS:
        if role["kind"] != kind:
            continue
        for group, resource, verb in rights(role):
            assert "*" not in (group, resource, verb)
            assert resource not in {"secrets", "pods/exec", "serviceaccounts/token"}
            assert verb not in {"delete", "deletecollection", "escalate", "bind", "impersonate"} or (
                group in {"trimtab.dev", "autoscaling.openshift.io"}
            )


def test_operator_roles_are_bound_and_user_roles_are_not() -> None:
    account = {"kind": "ServiceAccount", "name": the("ServiceAccount")["metadata"]["name"], "namespace": NAMESPACE}
    bindings = [each for each in MANIFESTS if each["kind"].endswith("RoleBinding")]
    roles = {"trimtab-cluster-autoscaler", "trimtab-descheduler", "trimtab-lease"}
    roles |= {"trimtab-taint-manager", "trimtab-acting", "trimtab-history"}
    roles |= {f"trimtab-{each}-status" for each in ("cluster-autoscaler", "descheduler", "taint-manager")}
    assert {each["roleRef"]["name"] for each in bindings} == roles
    assert all(each["subjects"] == [account] for each in bindings)


def test_viewers_may_read_but_not_write_policies() -> None:
    role = the("ClusterRole", "trimtab-view")
    assert role["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    reading = ("get", "list", "watch")
    kinds = (DESCHEDULER_POLICIES, DESCHEDULING_RUNS, HISTORY_RECORDS)
    kinds += (CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS, TAINT_MANAGERS)
    assert rights(role) == set().union(*(right(kind, *reading) for kind in kinds))
    cli = the("ClusterRole", "trimtab-cli")
    assert {verb for _, _, verb in rights(cli)} <= set(reading)
    aggregated = [each["metadata"]["name"] for each in MANIFESTS if "aggregate-to" in str(each)]
    assert sorted(aggregated) == ["trimtab-cli", "trimtab-view"]


def test_users_of_the_command_line_may_list_all_that_it_reads() -> None:
    cli = rights(the("ClusterRole", "trimtab-cli"))
    for kind in (*SNAPSHOT_KINDS, *POLICY_KINDS, *HISTORY_KINDS):
        assert right(kind, "list") <= cli
    for resource in RESOURCES.values():
        assert ("inspection.trimtab.dev", resource.name, "get") in cli
    stats = the("ClusterRole", "trimtab-cli-node-stats")
    assert rights(stats) == {("", "nodes/proxy", "get")}
    assert not any("aggregate" in label for label in stats["metadata"]["labels"])


def test_approval_needs_a_separate_permission() -> None:
    approving = right(DESCHEDULING_RUNS, "patch", "update")
    may = {
        document["metadata"]["name"]
        for document in MANIFESTS
        if document["kind"].endswith("Role") and rights(document) & approving
    }
    assert may == {"trimtab-approver"}
    reading = ("get", "list", "watch")
    others = right(DESCHEDULER_POLICIES, *reading) | right(DESCHEDULING_RUNS, *reading)
    assert rights(the("ClusterRole", "trimtab-approver")) == approving | others


def test_policy_admins_may_write_policies_and_delete_runs() -> None:
    reading, deleting = ("get", "list", "watch"), ("delete", "deletecollection")
    expected = right(DESCHEDULING_RUNS, *reading, *deleting)
    for kind in (DESCHEDULER_POLICIES, CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS, TAINT_MANAGERS):
        expected |= right(kind, *reading, "create", "update", "patch", *deleting)
    assert rights(the("ClusterRole", "trimtab-policy-admin")) == expected


def policy(name: str) -> dict[str, Any]:
    """The spec of an admission policy."""
    found: dict[str, Any] = the("ValidatingAdmissionPolicy", f"trimtab-{name}")["spec"]
    return found


GUARD: Final = "!(request.userInfo.username.endsWith(':trimtab')) || "


def checks(name: str) -> list[str]:
    """The expressions that requests of the operator must fulfil."""
    found = [each["expression"] for each in policy(name)["validations"]]
    assert all(each.startswith(GUARD) for each in found)
    return [each.removeprefix(GUARD) for each in found]


def permitted(what: str, of: str) -> set[str]:
    """The keys that an admission policy permits, as the message of its validation lists them."""
    [found] = [each for each in policy(of)["validations"] if f"these {what}" in each.get("messageExpression", "")]
    [strings] = re.findall(r"\(\[(.*)\]\)", found["messageExpression"])
    assert f"([{strings}])" in found["expression"]
    return set(re.findall(r"'([^']*)'", strings))


def test_every_admission_policy_is_enforced_for_the_operators_account_only() -> None:
    account = f"system:serviceaccount:{NAMESPACE}:{the('ServiceAccount')['metadata']['name']}"
    policies = {
        each["metadata"]["name"]: each["spec"] for each in MANIFESTS if each["kind"].endswith("AdmissionPolicy")
    }
    bindings = [each["spec"] for each in MANIFESTS if each["kind"].endswith("PolicyBinding")]
    assert bindings == [{"policyName": name, "validationActions": ["Deny"]} for name in policies]
    for each in policies.values():
        assert each["failurePolicy"] == "Fail"
        [operator, denied] = (condition["expression"] for condition in each["matchConditions"])
        assert operator == f"request.userInfo.username in ['{account}']"
        assert denied.startswith("(request.userInfo.username.endsWith(':trimtab')) && !(")
        assert {each["reason"] for each in each["validations"]} == {"Forbidden"}


@pytest.mark.parametrize(
    "name", [each["metadata"]["name"] for each in MANIFESTS if each["kind"] == "ValidatingAdmissionPolicy"]
)
def test_admission_policy_matches_exactly_the_requests_that_it_denies(name: str) -> None:
    """Validations cost the API server three times as much as match conditions, so they are for denied requests only."""
    name = name.removeprefix("trimtab-")
    [_, denied] = policy(name)["matchConditions"]
    assert denied["expression"] == f"(request.userInfo.username.endsWith(':trimtab')) && !({' && '.join(checks(name))})"


def test_patches_of_shared_objects_are_limited_by_admission_policies() -> None:
    """Subresources of our kinds and ``scale`` hold no other fields; objects that RBAC names are the operator's own."""
    limited = {
        (group, resource)
        for each in MANIFESTS
        if each["kind"] == "ValidatingAdmissionPolicy"
        for rule in each["spec"]["matchConstraints"]["resourceRules"]
        if "UPDATE" in rule["operations"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    bound = {each["roleRef"]["name"] for each in MANIFESTS if each["kind"].endswith("RoleBinding")}
    patched = {
        (group, resource)
        for role in MANIFESTS
        if role["kind"].endswith("Role") and role["metadata"]["name"] in bound
        for rule in role["rules"]
        if {"patch", "update"} & set(rule["verbs"]) and "resourceNames" not in rule
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    ours = {(group, resource) for group, resource in patched if resource.endswith(("/scale", "/status"))}
    assert {group for group, _ in ours} <= {"trimtab.dev", "autoscaling.openshift.io", *(d.api_group for d in DIALECTS)}
    written_by_the_operator_only = {(HISTORY_RECORDS.group, HISTORY_RECORDS.plural)}
    assert patched - ours - written_by_the_operator_only <= limited


def test_admission_policies_allow_the_autoscalers_writes() -> None:
    assert permitted("annotations", "nodes") == {UNNEEDED_SINCE, node_markers.REMOVING, node_markers.CORDONED_BY}
    assert permitted("taints", "nodes") == {
        f"{TO_BE_DELETED}:{NO_SCHEDULE}",
        f"{DELETION_CANDIDATE}:{PREFER_NO_SCHEDULE}",
    }
    limits = {f"{each.api_group}/{key}" for each in DIALECTS for key in (annotations.MIN_SIZE, annotations.MAX_SIZE)}
    written = {annotations.OWNER, annotations.LEARNED_NODE, annotations.REMOVAL_BACKOFF, copies.COPIES}
    written |= {annotations.REMOVAL_IN_PROGRESS}
    written |= {annotations.CAPACITY + name for name in copies.CAPACITY_NAMES}
    assert permitted("annotations", "node-groups") == limits | written
    assert permitted("annotations", "machines") == {each.mark for each in DIALECTS}
    scalable = {plural for each in DIALECTS for plural in each.scalable.values()}
    [rule] = policy("node-groups")["matchConstraints"]["resourceRules"]
    assert (set(rule["apiGroups"]), set(rule["resources"])) == ({each.api_group for each in DIALECTS}, scalable)


NOT_WRITTEN = {annotations.PRICE, annotations.RESERVED, TRY_AGAIN, RUN_NOW}
"""Of users."""

NOT_PATCHED = {POLICY_LABEL, WRITER_LABEL, CONTROLLER, LABEL, CONTROLLERS}
"""Labels of runs and HistoryRecords that are set when they are created, the name of the events' controller, and what
the operator writes on its Lease of acting operators."""


def test_every_written_key_is_in_an_admission_policy() -> None:
    sources = sorted((ROOT / "operator" / "trimtab").rglob("*.py"))
    found = {key for path in sources for key in re.findall(r'"(trimtab\.dev/[a-z-]+)"', path.read_text("utf-8"))}
    known = {key for each in ("nodes", "node-groups", "machines") for key in permitted("annotations", each)}
    assert found - known - {SINCE_ANNOTATION} == NOT_WRITTEN | NOT_PATCHED


def test_admission_policies_allow_all_controllers_writes() -> None:
    assert permitted("finalizers", "policies") == {f"{KOPF_PREFIX}/finalizer", OPENSHIFT_FINALIZER}
    [*_, kopf] = checks("policies")
    assert set(re.findall(r"'([^']*)'", kopf)) == {f"{KOPF_PREFIX}/", TRY_AGAIN, RUN_NOW}
    [creation] = checks("creation")
    names = {Settings().lease_name, Settings().lease_name + SUFFIX, CLUSTER_STATUS, RECORD}
    assert set(re.findall(r"'([^']*)'", creation)) == {NAMESPACE, "leases", *names}
    [events] = checks("events")
    assert set(re.findall(r"'([^']*)'", events)) == {"", CONTROLLER, "CREATE"}


def test_the_pod_keeps_to_the_restricted_standard() -> None:
    """kubernetes.io/docs/concepts/security/pod-security-standards, field by field; the API server's word is in api/."""
    spec = the("Deployment")["spec"]["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert {kind for volume in spec["volumes"] for kind in volume if kind != "name"} == {"emptyDir"}
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not any("hostPort" in port for port in container["ports"])


def test_the_namespace_enforces_the_restricted_standard() -> None:
    assert the("Namespace", NAMESPACE)["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_arguments_are_those_that_the_command_takes() -> None:
    arguments = the("Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[0] == "run"
    parsed = run.make_context("run", list(arguments[1:])).params
    defaults = Settings()
    assert parsed["controllers"] == defaults.controllers
    assert parsed["leader_elect"] is True
    assert parsed["lease_name"] == defaults.lease_name
    assert parsed["lease_namespace"] == "", "the pod's own, so that an overlay may choose another namespace"
    assert parsed["identity"] == "", "one identity for all replicas would make all of them leaders"


def test_unknown_command_argument_fails_the_check() -> None:
    with pytest.raises(click.NoSuchOption):
        run.make_context("run", ["--lease-names=x"])


def test_probes_and_service_go_to_the_ports_that_are_listened_on() -> None:
    [container] = the("Deployment")["spec"]["template"]["spec"]["containers"]
    parsed = run.make_context("run", list(container["args"][1:])).params
    probes, metrics = parsed["listen"], parsed["metrics_listen"]
    assert probes != metrics, "a flood of one must not keep probes out of the other"
    assert container["ports"] == [
        {"name": "probes", "containerPort": probes[1]},
        {"name": "metrics", "containerPort": metrics[1]},
    ]
    assert probes[0] == metrics[0] == "", "all addresses: a cluster may know IPv6 only"
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "probes"}
    [port] = the("Service", "trimtab-metrics")["spec"]["ports"]
    assert port["targetPort"] == "metrics"


def test_the_chart_s_limits_of_clients_are_the_command_s() -> None:
    [container] = the("Deployment")["spec"]["template"]["spec"]["containers"]
    parsed = run.make_context("run", list(container["args"][1:])).params
    defaults = run.make_context("run", []).params
    for name in ("connections", "connections_per_client", "requests_per_second"):
        assert parsed[f"http_max_{name}"] == defaults[f"http_max_{name}"] == getattr(Limits(), name)
    assert parsed["http_timeout"] == defaults["http_timeout"] == Limits().timeout
    assert parsed["metrics_secure"] is False


def test_network_policy_admits_prometheus_dns_and_the_api_server_only() -> None:
    policy = the("NetworkPolicy")["spec"]
    labels = the("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    [metrics] = policy["ingress"]
    assert metrics["ports"] == [{"port": "metrics"}]
    [peer] = metrics["from"]
    [names] = peer["namespaceSelector"]["matchExpressions"]
    assert names == {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["monitoring"]}
    reached = {(port["port"], port["protocol"]) for rule in policy["egress"] for port in rule["ports"]}
    assert reached == {(53, "UDP"), (53, "TCP"), (5353, "UDP"), (5353, "TCP"), (443, "TCP"), (6443, "TCP")}


def test_service_and_deployment_select_the_pods() -> None:
    deployment = the("Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    for selector in (deployment["selector"]["matchLabels"], the("Service", "trimtab-metrics")["spec"]["selector"]):
        assert selector.items() <= labels.items()


def test_the_image_fits_the_deployment() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    spec = the("Deployment")["spec"]["template"]["spec"]
    [container] = spec["containers"]
    context = spec["securityContext"]
    assert re.findall(r"^USER (.+)$", dockerfile, re.MULTILINE) == [f"{context['runAsUser']}:{context['runAsGroup']}"]
    assert re.findall(r"^ENTRYPOINT (.+)$", dockerfile, re.MULTILINE) == ['["trimtab"]']
    assert "command" not in container, "the image's own entry point"
    [mount] = container["volumeMounts"]
    assert f"HOME={mount['mountPath']}" in dockerfile, "the one place that can be written to"
    exposed = re.findall(r"^EXPOSE (\d+)$", dockerfile, re.MULTILINE)
    assert exposed in ([], [str(container["ports"][0]["containerPort"])])


def test_grace_period_exceeds_the_shutdown_timeout() -> None:
    from trimtab.controller import kopf_handlers
    from trimtab.descheduling import handlers as descheduling
    from trimtab.runtime.kopf_operator import INSTANT_EXIT_TIMEOUT

    posting_events, releasing_the_lease = 5, 5
    grace = the("Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    longest = max(descheduling.LONGEST_STOP, kopf_handlers.STOP_TIMEOUT) + kopf_handlers.CANCEL_TIMEOUT
    assert grace > INSTANT_EXIT_TIMEOUT + longest + posting_events + releasing_the_lease

"""What the manifests ask of a cluster, read from the kustomize base (which is the chart with its default values)."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest
import yaml
from tools.generate import BASE, ROOT
from tools.generate.base import NAMESPACE

from trimtab.autoscaling.machine_autoscalers import RULES as MACHINE_AUTOSCALER_RULES
from trimtab.autoscaling.providers import DIALECTS
from trimtab.autoscaling.scale_up.expanders.priority import CONFIG_MAP
from trimtab.autoscaling.template import record as learned
from trimtab.cli.run import run
from trimtab.cluster.kinds import EVERYTHING, KINDS, TAINTING
from trimtab.kube.objects import NODE_LEASES
from trimtab.kube.resources import (
    CLUSTER_AUTOSCALERS,
    CONFIG_MAPS,
    DESCHEDULER_POLICIES,
    DESCHEDULING_RUNS,
    EVENTS,
    LEASES,
    MACHINE_AUTOSCALERS,
    NODE_METRICS,
    NODES,
    POD_METRICS,
    PODS,
    TAINT_MANAGERS,
    Resource,
)
from trimtab.runtime.settings import Settings
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


def right(resource: Resource, *verbs: str, subresource: str = "") -> set[Right]:
    plural = "/".join(filter(None, (resource.plural, subresource)))
    return {(resource.group, plural, verb) for verb in verbs}


def test_the_operator_may_do_what_the_code_does_and_nothing_else() -> None:
    expected = set().union(*(right(resource, "list", "watch") for resource in KINDS))
    expected |= right(PODS, "get") | right(PODS, "create", subresource="eviction")
    expected |= right(NODE_METRICS, "list") | right(POD_METRICS, "list")
    expected |= right(EVENTS, "create", "patch")
    expected |= right(DESCHEDULER_POLICIES, "list", "watch", "patch")
    expected |= right(DESCHEDULER_POLICIES, "patch", subresource="status")
    expected |= right(DESCHEDULING_RUNS, "list", "watch", "create", "delete")
    expected |= right(DESCHEDULING_RUNS, "patch", subresource="status")
    assert rights(the("ClusterRole", "trimtab-descheduler")) == expected


def test_the_autoscaler_may_do_what_the_code_does_and_nothing_else() -> None:
    expected = set().union(*(right(resource, "list", "watch") for resource in EVERYTHING))
    expected |= right(PODS, "get") | right(PODS, "create", subresource="eviction")
    expected |= right(NODES, "get", "patch")
    expected |= right(EVENTS, "create", "patch")
    expected |= right(CLUSTER_AUTOSCALERS, "list", "watch", "patch")
    expected |= right(CLUSTER_AUTOSCALERS, "patch", subresource="status")
    rules = [*MACHINE_AUTOSCALER_RULES, *learned.rules(), *(rule for each in DIALECTS for rule in each.rules())]
    expected |= rights({"rules": rules})
    assert rights(the("ClusterRole", "trimtab-cluster-autoscaler")) == expected


def test_the_autoscaler_may_touch_no_config_map_but_its_own() -> None:
    role = the("Role", "trimtab-cluster-autoscaler")
    assert rights(role) == right(CONFIG_MAPS, "get", "create", "patch")
    bound = {tuple(rule["verbs"]): rule.get("resourceNames") for rule in role["rules"]}
    assert bound == {("get",): [CONFIG_MAP], ("create",): None, ("get", "patch"): ["cluster-autoscaler-status"]}
    assert role["metadata"]["namespace"] == NAMESPACE


def test_the_taint_manager_may_do_what_the_code_does_and_nothing_else() -> None:
    expected = right(NODES, "list", "watch") | right(PODS, "list", "watch", "get", "delete")
    expected |= right(PODS, "create", subresource="eviction") | right(PODS, "patch", subresource="status")
    expected |= right(NODES, "get", "patch") | right(NODES, "patch", subresource="status")
    expected |= right(EVENTS, "create", "patch")
    expected |= right(TAINT_MANAGERS, "list", "watch", "patch") | right(TAINT_MANAGERS, "patch", subresource="status")
    assert rights(the("ClusterRole", "trimtab-taint-manager")) == expected


def test_the_taint_manager_reads_the_leases_of_nodes_and_no_others() -> None:
    role = the("Role", "trimtab-taint-manager")
    assert rights(role) == set().union(*(right(resource, "get", "list", "watch") for resource in TAINTING))
    assert role["metadata"]["namespace"] == NODE_LEASES
    assert the("RoleBinding", "trimtab-taint-manager")["metadata"]["namespace"] == NODE_LEASES


def test_the_taint_manager_may_touch_no_config_map_but_its_own() -> None:
    role = the("Role", "trimtab-taint-manager-record")
    bound = {tuple(rule["verbs"]): rule.get("resourceNames") for rule in role["rules"]}
    assert rights(role) == right(CONFIG_MAPS, "create", "get", "patch")
    assert bound == {("create",): None, ("get", "patch"): [RECORD]}
    assert role["metadata"]["namespace"] == NAMESPACE


def test_the_operator_may_touch_no_lease_but_its_own() -> None:
    role = the("Role", "trimtab-lease")
    assert rights(role) == right(LEASES, "create", "get", "update")
    bound = [rule for rule in role["rules"] if rule["verbs"] != ["create"]]
    assert [rule["resourceNames"] for rule in bound] == [[Settings().lease_name]]
    assert role["metadata"]["namespace"] == NAMESPACE


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_no_role_has_a_wildcard_or_reads_secrets_or_deletes_more_than_pods_on_tainted_nodes(kind: str) -> None:
    for role in MANIFESTS:
        if role["kind"] != kind:
            continue
        for group, resource, verb in rights(role):
            assert "*" not in (group, resource, verb)
            assert resource not in {"secrets", "pods/exec", "serviceaccounts/token"}
            assert verb not in {"delete", "deletecollection", "escalate", "bind", "impersonate"} or (
                group in {"trimtab.dev", "autoscaling.openshift.io"}
                or (role["metadata"]["name"], resource, verb) == ("trimtab-taint-manager", "pods", "delete")
            )


def test_every_role_of_the_operator_is_bound_to_its_account_and_the_others_to_nobody() -> None:
    account = {"kind": "ServiceAccount", "name": the("ServiceAccount")["metadata"]["name"], "namespace": NAMESPACE}
    bindings = [each for each in MANIFESTS if each["kind"].endswith("RoleBinding")]
    roles = {"trimtab-cluster-autoscaler", "trimtab-descheduler", "trimtab-lease"}
    roles |= {"trimtab-taint-manager", "trimtab-taint-manager-record"}
    assert {each["roleRef"]["name"] for each in bindings} == roles
    assert all(each["subjects"] == [account] for each in bindings)


def test_who_may_view_the_cluster_may_read_policies_but_not_write_them() -> None:
    role = the("ClusterRole", "trimtab-view")
    assert role["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    reading = ("get", "list", "watch")
    kinds = (DESCHEDULER_POLICIES, DESCHEDULING_RUNS, CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS, TAINT_MANAGERS)
    assert rights(role) == set().union(*(right(kind, *reading) for kind in kinds))
    aggregated = [each for each in MANIFESTS if "aggregate-to" in str(each)]
    assert aggregated == [role]


def test_approving_is_a_right_of_its_own_that_neither_the_operator_nor_who_writes_policies_has() -> None:
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


def test_an_argument_that_the_command_does_not_know_would_be_noticed() -> None:
    with pytest.raises(click.NoSuchOption):
        run.make_context("run", ["--lease-names=x"])


def test_probes_and_service_go_to_the_port_that_is_listened_on() -> None:
    [container] = the("Deployment")["spec"]["template"]["spec"]["containers"]
    parsed = run.make_context("run", list(container["args"][1:])).params
    assert container["ports"] == [{"name": "http", "containerPort": parsed["listen"][1]}]
    assert parsed["listen"][0] == "", "all addresses: a cluster may know IPv6 only"
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "http"}
    [port] = the("Service", "trimtab-metrics")["spec"]["ports"]
    assert port["targetPort"] == "http"


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


def test_there_is_time_to_end_in_good_order() -> None:
    from trimtab.descheduling import handlers as descheduling
    from trimtab.kube import daemons
    from trimtab.runtime.kopf_operator import QUICK_END

    posting_events, releasing_the_lease = 5, 5
    grace = the("Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    longest = max(each.LONGEST_STOP + each.LONGEST_CANCEL for each in (descheduling, daemons))
    assert grace > QUICK_END + longest + posting_events + releasing_the_lease

"""Ports, clients and servers in the chart: NetworkPolicy, metrics over TLS, limits."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from tools.generate import CHART
from tools.generate.base import render

EVERYTHING = str(CHART / "ci" / "everything-values.yaml")
AUTH = {"trimtab-metrics-auth", "trimtab-metrics-reader"}


def chart(*values: str, files: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    arguments = [part for file in files for part in ("--values", file)]
    return render(*arguments, *(part for value in values for part in ("--set", value)))


def the(made: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The object of that kind that is not of the admission webhooks."""
    [found] = [each for each in made if each["kind"] == kind and not each["metadata"]["name"].endswith("-admission")]
    return found


def arguments_of(made: list[dict[str, Any]]) -> list[str]:
    [container] = the(made, "Deployment")["spec"]["template"]["spec"]["containers"]
    found: list[str] = container["args"]
    return found


def names(made: list[dict[str, Any]], *kinds: str) -> set[str]:
    return {each["metadata"]["name"] for each in made if each["kind"] in kinds}


def ports(rule: dict[str, Any]) -> list[Any]:
    return [port["port"] for port in rule["ports"]]


# ── NetworkPolicy ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_network_policy_is_enabled_by_default() -> None:
    assert the(chart(), "NetworkPolicy")
    assert not names(chart("networkPolicy.enabled=false"), "NetworkPolicy")


def test_network_policy_without_namespaces_denies_ingress() -> None:
    assert the(chart("networkPolicy.metrics.namespaces=null"), "NetworkPolicy")["spec"]["ingress"] == []


def test_network_policy_allows_ingress_from_namespaces_and_peers() -> None:
    policy = the(chart("networkPolicy.enabled=true", files=(EVERYTHING,)), "NetworkPolicy")["spec"]
    probes, metrics, inspection = policy["ingress"]
    assert (ports(probes), ports(metrics), ports(inspection)) == (["probes"], ["metrics"], ["inspection"])
    assert [*probes["from"][0]] == ["namespaceSelector"]
    assert probes["from"][1] == {"ipBlock": {"cidr": "10.0.0.0/24"}}
    assert metrics["from"][1] == {"namespaceSelector": {"matchLabels": {"team": "platform"}}}


def test_network_policy_allows_egress_to_servers() -> None:
    policy = the(chart("networkPolicy.enabled=true", files=(EVERYTHING,)), "NetworkPolicy")["spec"]
    dns, api_server, kubelets, servers, further = policy["egress"]
    assert set(ports(dns)) == {53}
    assert (ports(api_server), [each["ipBlock"]["cidr"] for each in api_server["to"]]) == (
        [6443],
        ["10.96.0.1/32", "192.0.2.0/28"],
    )
    assert kubelets == {"ports": [{"port": 10255, "protocol": "TCP"}], "to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}
    assert ports(servers) == [9091, 8086, 7000, 10901]
    assert [*servers["to"][0]] == ["namespaceSelector"]
    assert further == {"to": [{"ipBlock": {"cidr": "192.0.2.1/32"}}]}


@pytest.mark.parametrize(
    ("url", "port"),
    [("http://p", 80), ("https://p/x", 443), ("https://p:9091/x", 9091), ("http://[::1]:9090", 9090)],
)
def test_network_policy_uses_the_port_of_the_prometheus_url(url: str, port: int) -> None:
    *_, servers = the(chart(f"prometheus.url={url}"), "NetworkPolicy")["spec"]["egress"]
    assert ports(servers) == [port]


def test_network_policy_selects_every_deployment() -> None:
    made = chart("deployments=PerController")
    selector = the(made, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"]
    deployments = [each["spec"]["template"] for each in made if each["kind"] == "Deployment"]
    assert len(deployments) == 3
    assert all(selector.items() <= each["metadata"]["labels"].items() for each in deployments)


# ── Metrics ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_token_reviews_are_granted_only_for_secure_metrics() -> None:
    assert not names(chart(), "ClusterRole", "ClusterRoleBinding") & AUTH
    made = chart("metrics.secure=true")
    assert names(made, "ClusterRole") >= AUTH
    assert "trimtab-metrics-reader" not in names(made, "ClusterRoleBinding"), "no account reads them by default"
    assert "--metrics-secure" in arguments_of(made)
    rules = {
        (resource, verb)
        for each in made
        if each["metadata"]["name"] == "trimtab-metrics-auth" and each["kind"] == "ClusterRole"
        for rule in each["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert rules == {("tokenreviews", "create"), ("subjectaccessreviews", "create")}


def test_metrics_readers_get_a_role_binding() -> None:
    made = chart("metrics.secure=true", "metrics.readers[0].name=p", "metrics.readers[0].namespace=monitoring")
    [binding] = [
        each
        for each in made
        if each["kind"] == "ClusterRoleBinding" and each["metadata"]["name"] == "trimtab-metrics-reader"
    ]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "p", "namespace": "monitoring"}]


def test_metrics_certificate_is_mounted_at_the_path_of_the_flags() -> None:
    made = chart("metrics.tls.secretName=s")
    spec = the(made, "Deployment")["spec"]["template"]["spec"]
    [container] = spec["containers"]
    [mount] = [each for each in container["volumeMounts"] if each["name"] == "metrics-tls"]
    assert {"name": "metrics-tls", "secret": {"secretName": "s"}} in spec["volumes"]
    assert f"--metrics-tls-cert-file={mount['mountPath']}/tls.crt" in container["args"]
    assert f"--metrics-tls-key-file={mount['mountPath']}/tls.key" in container["args"]


def monitored(*values: str) -> dict[str, Any]:
    [endpoint] = the(chart("metrics.serviceMonitor.enabled=true", *values), "ServiceMonitor")["spec"]["endpoints"]
    del endpoint["interval"]
    return dict(endpoint)


def test_service_monitor_uses_the_scheme_of_the_metrics_server() -> None:
    token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    assert monitored() == {"port": "metrics"}
    secure = {"port": "metrics", "scheme": "https", "tlsConfig": {"insecureSkipVerify": True}, "bearerTokenFile": token}
    assert monitored("metrics.secure=true") == secure
    named = "metrics.serviceMonitor.tlsConfig.serverName=x"
    assert monitored("metrics.secure=true", named)["tlsConfig"] == {"serverName": "x"}
    assert "bearerTokenFile" not in monitored("metrics.tls.secretName=s"), "a token is shown only where it is asked for"
    given = "metrics.serviceMonitor.authorization.credentials.name=c"
    assert monitored("metrics.secure=true", given)["authorization"] == {"credentials": {"name": "c"}}


@pytest.mark.parametrize(
    "value",
    [
        "networkPolicy.from[0].x=y",
        "networkPolicy.metrics.namespaces[0]=Not_A_Name",
        "networkPolicy.apiServer.cidrs[0]=10.0.0.1",
        "networkPolicy.apiServer.ports=null,networkPolicy.apiServer.ports[0]=0",
        "http.maxConnections=0",
        "http.maxRequestsPerSecond=0",
        "http.timeout=soon",
        "metrics.secure=maybe",
        "metrics.readers[0].name=p",
        "metrics.serviceMonitor.authorization.type=Bearer",
        "extraArgs[0]=--metrics-listen=:1",
        "extraArgs[0]=--no-metrics-secure",
        "extraArgs[0]=--http-max-connections-per-client=1",
    ],
)
def test_contradictory_values_are_rejected(value: str) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        chart(value)

"""``trimtab run``: where metrics are served and what clients can use."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from trimtab.cli.main import cli
from trimtab.cli.run import run
from trimtab.runtime import logs
from trimtab.runtime.http.server import Limits
from trimtab.runtime.metrics.server import MetricsSettings
from trimtab.runtime.settings import Settings


def settings(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Settings:
    made: list[Settings] = []
    monkeypatch.setattr("trimtab.runtime.supervisor.run", made.append)
    monkeypatch.setattr(logs, "configure_logging", lambda **_: None)
    result = CliRunner().invoke(run, list(arguments))
    assert result.exit_code == 0, result.output
    return made[0]


def test_by_default_metrics_are_served_with_the_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = settings(monkeypatch)
    assert found.metrics is None
    assert found.http_limits == Limits()


def test_all_serving_options(monkeypatch: pytest.MonkeyPatch) -> None:
    found = settings(
        monkeypatch,
        "--metrics-listen=[::]:9090",
        "--metrics-secure",
        "--metrics-tls-cert-file=/tls/tls.crt",
        "--metrics-tls-key-file=/tls/tls.key",
        "--http-max-connections=8",
        "--http-max-connections-per-client=2",
        "--http-max-requests-per-second=0.5",
        "--http-timeout=3s",
    )
    limits = Limits(
        connections=8,
        connections_per_client=2,
        requests_per_second=0.5,
        requests_per_second_in_all=2.5,
        timeout=3.0,
    )
    assert found.http_limits == limits
    assert found.metrics == MetricsSettings(
        host="::", port=9090, secure=True, cert_file="/tls/tls.crt", key_file="/tls/tls.key", limits=limits
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--max-inactivity=0s"],
        ["--max-failing-time=0s"],
        ["--shutdown-timeout=0s"],
        ["--metrics-secure"],
        ["--metrics-tls-cert-file=/c", "--metrics-tls-key-file=/k"],
        ["--metrics-listen=:1", "--metrics-tls-cert-file=/c"],
        ["--metrics-listen=:1", "--metrics-tls-key-file=/k"],
        ["--metrics-listen=nowhere"],
        ["--http-max-connections=0"],
        ["--http-max-requests-per-second=0"],
        ["--http-timeout=0"],
        ["--http-timeout=soon"],
    ],
    ids=" ".join,
)
def test_invalid_serving_options_are_rejected(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab.runtime.supervisor.run", lambda _settings: None)  # else no cluster is an error, too
    monkeypatch.setattr(logs, "configure_logging", lambda **_: None)
    assert CliRunner().invoke(run, arguments).exit_code == 2


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"]], ids=" ".join)
def test_overview_names_all_controllers(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, arguments)
    overview = " ".join(result.output.partition("Options:")[0].lower().split())
    for name in ("descheduler", "cluster autoscaler", "taint manager", "scheduler"):
        assert re.search(rf"\b{name}\b", overview), name


def test_role_admission_has_its_own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--role=admission", "--webhook-listen=[::1]:9000", "--webhook-url=https://hooks.example.com"]
    found = settings(monkeypatch, *arguments, "--no-webhook-issue-certificates", "--webhook-shutdown-delay=3s")
    assert found.admission is not None
    assert (found.admission.host, found.admission.port) == ("::1", 9000)
    assert found.admission.url == "https://hooks.example.com"
    assert not found.admission.issue_certificates
    assert found.admission.shutdown_delay == 3.0
    assert not found.leader_elect


@pytest.mark.parametrize(
    "arguments",
    [["--webhook-url=http://x"], ["--webhook-url=https://x?y"], ["--webhook-shutdown-delay=55s"]],
    ids=["http", "query", "longer than the shutdown"],
)
def test_wrong_webhook_options_are_usage_errors(arguments: list[str]) -> None:
    assert CliRunner().invoke(run, ["--role=admission", *arguments]).exit_code == 2

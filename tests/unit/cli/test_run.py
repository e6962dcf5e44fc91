"""``trimtab run``: how it ends when it cannot go on."""

from __future__ import annotations

import json
import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from trimtab.autoscaling.external import ExternalSettings, GrpcEndpoint
from trimtab.cli.run import run
from trimtab.cluster.usage.prometheus import PrometheusSettings
from trimtab.disruption.evictor import Evictor
from trimtab.disruption.limits import EvictionLimits
from trimtab.kube.errors import InputError
from trimtab.kube.wire.limits import DEFAULT_LIMITS, ComplexityLimits
from trimtab.pressure.kubelet_client import KubeletClientSettings
from trimtab.runtime import app, logs, supervisor
from trimtab.runtime.health.watchdog import Watchdog
from trimtab.runtime.settings import Settings


def test_unexpected_error_is_logged_on_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_settings: object) -> None:
        raise ValueError("no luck\nat all")

    monkeypatch.setattr(supervisor, "run", fail)
    monkeypatch.setattr(logs, "configure_logging", lambda **_: None)
    result = CliRunner().invoke(run, [])
    assert result.exit_code == 1
    assert result.output == ""
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    line = logs.JsonFormatter().format(record)
    assert "\n" not in line
    assert "ValueError: no luck" in json.loads(line)["exception"]


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (OSError(98, "Address already in use"), 1, "--listen 127.0.0.1:1: Address already in use"),
        (OSError("no interface"), 1, "--listen 127.0.0.1:1: no interface"),
        (InputError("is not a kubeconfig", source="/kubeconfig"), 2, "/kubeconfig: is not a kubeconfig"),
    ],
)
def test_expected_failure_is_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, message: str
) -> None:
    def fail(_settings: object) -> None:
        raise error

    monkeypatch.setattr(supervisor, "run", fail)
    monkeypatch.setattr(logs, "configure_logging", lambda **_: None)
    result = CliRunner().invoke(run, ["--listen=127.0.0.1:1"])
    assert (result.exit_code, result.stderr) == (status, f"trimtab: {message}\n")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("scheduler,typo,other", "unknown controller other, typo"),
        ("", "no controller given"),
        (" , ", "no controller given"),
    ],
)
def test_unknown_controllers_are_rejected(monkeypatch: pytest.MonkeyPatch, value: str, message: str) -> None:
    monkeypatch.setattr(supervisor, "run", lambda _: pytest.fail("the operator started"))
    refused = CliRunner().invoke(run, [f"--controllers={value}"])
    assert refused.exit_code == 2
    assert message in refused.output


def test_controllers_are_passed_to_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[Settings] = []
    monkeypatch.setattr(supervisor, "run", recorded.append)
    monkeypatch.setattr(logs, "configure_logging", lambda **_: None)
    assert CliRunner().invoke(run, ["--controllers= scheduler, descheduler,"]).exit_code == 0
    assert [set(settings.controllers) for settings in recorded] == [{"scheduler", "descheduler"}]


def test_sigterm_before_the_event_loop_exits_cleanly(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked_to_stop(_settings: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("it goes on")

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(supervisor, "run", asked_to_stop)
    monkeypatch.setattr(logs, "configure_logging", lambda **_: None)
    assert CliRunner().invoke(run, []).exit_code == 0
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("arguments", "scoring"), [([], None), (["--scoring", "MostAllocated"], "MostAllocated")])
def test_scoring_option_is_passed_to_the_operator(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], scoring: str | None
) -> None:
    recorded: list[Settings] = []
    monkeypatch.setattr(supervisor, "run", recorded.append)
    monkeypatch.setattr(logs, "configure_logging", lambda **_: None)
    assert CliRunner().invoke(run, arguments).exit_code == 0
    assert [settings.scoring for settings in recorded] == [scoring]


def test_prometheus_options_are_passed_to_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[Settings] = []
    monkeypatch.setattr(supervisor, "run", recorded.append)
    monkeypatch.setattr(logs, "configure_logging", lambda **_: None)
    arguments = ["--prometheus-url", "https://p", "--prometheus-token-file", "/t", "--prometheus-ca-file", "/c"]
    assert CliRunner().invoke(run, arguments).exit_code == 0
    assert CliRunner().invoke(run, []).exit_code == 0
    assert [settings.prometheus for settings in recorded] == [PrometheusSettings("https://p", "/t", "/c"), None]


@pytest.mark.parametrize("option", ["--prometheus-token-file", "--prometheus-ca-file"])
def test_prometheus_token_without_url_is_rejected(option: str) -> None:
    result = CliRunner().invoke(run, [option, "/t"])
    assert result.exit_code == 2
    assert "need --prometheus-url" in result.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param([], KubeletClientSettings(), id="defaults"),
        pytest.param(["--kubelet-access=Proxy"], KubeletClientSettings(access="Proxy"), id="proxy"),
        pytest.param(
            ["--kubelet-ca-file=/ca", "--kubelet-stats-service-account=reader"],
            KubeletClientSettings(ca_file="/ca", service_account="reader"),
            id="direct",
        ),
        pytest.param(
            ["--kubelet-insecure-skip-tls-verify"], KubeletClientSettings(insecure_skip_tls_verify=True), id="insecure"
        ),
    ],
)
def test_kubelet_options_are_passed_to_the_operator(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: KubeletClientSettings
) -> None:
    recorded: list[Settings] = []
    monkeypatch.setattr(supervisor, "run", recorded.append)
    monkeypatch.setattr(logs, "configure_logging", lambda **_: None)
    assert CliRunner().invoke(run, arguments).exit_code == 0
    assert [settings.kubelets for settings in recorded] == [expected]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--kubelet-ca-file=/ca", "--kubelet-insecure-skip-tls-verify"],
        ["--kubelet-ca-file=/ca", "--kubelet-access=Proxy"],
        ["--kubelet-insecure-skip-tls-verify", "--kubelet-access=Proxy"],
    ],
)
def test_contradicting_kubelet_options_are_rejected(arguments: list[str]) -> None:
    assert CliRunner().invoke(run, arguments).exit_code == 2


GRPC = ("ca-file", "cert-file", "key-file")


def test_grpc_options_are_passed_to_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[Settings] = []
    monkeypatch.setattr(supervisor, "run", recorded.append)
    monkeypatch.setattr(logs, "configure_logging", lambda **_: None)
    files = [f"--cloud-provider-grpc-{name}=/{name}" for name in GRPC]
    arguments = ["--cloud-provider-grpc-address=p:1", *files, "--expander-grpc-address=e:2"]
    assert CliRunner().invoke(run, arguments).exit_code == 0
    assert CliRunner().invoke(run, ["--kwok-templates-namespace=kwok"]).exit_code == 0
    assert CliRunner().invoke(run, []).exit_code == 0
    assert [settings.external for settings in recorded] == [
        ExternalSettings(GrpcEndpoint("p:1", "/ca-file", "/cert-file", "/key-file"), GrpcEndpoint("e:2")),
        ExternalSettings(kwok_namespace="kwok"),
        None,
    ]


@pytest.mark.parametrize("prefix", ["cloud-provider", "expander"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["ca-file=/a", "key-file=/b"],
            "--{0}-grpc-ca-file, --{0}-grpc-key-file needs --{0}-grpc-address",
        ),
        (["address=a:1", "cert-file=/a"], "--{0}-grpc-cert-file and --{0}-grpc-key-file must be given together"),
    ],
    ids=["no address", "no key"],
)
def test_incomplete_grpc_options_are_rejected(prefix: str, options: list[str], message: str) -> None:
    result = CliRunner().invoke(run, [f"--{prefix}-grpc-{option}" for option in options])
    assert result.exit_code == 2
    assert message.format(prefix) in result.output


LIMITS = ["--max-concurrent-evictions=5", "--max-concurrent-evictions-per-namespace=2"]
PACES = ["--evictions-per-minute=60", "--evictions-per-minute-per-namespace=6"]


@pytest.mark.parametrize(
    ("arguments", "limits"),
    [
        (
            [*LIMITS, *PACES],
            EvictionLimits(max_concurrent=5, max_concurrent_per_namespace=2, per_minute=60, per_minute_per_namespace=6),
        ),
        (PACES[1:], EvictionLimits(per_minute_per_namespace=6)),
        (["--max-concurrent-evictions=0"], EvictionLimits()),
        ([], EvictionLimits()),
    ],
    ids=["all", "one", "zero", "none"],
)
def test_eviction_limits_are_passed_to_the_operator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], limits: EvictionLimits
) -> None:
    made: list[Evictor] = []

    class Built(Exception):
        """Ends the operator before it talks to the cluster."""

    def build(**parts: Any) -> Evictor:
        made.append(Evictor(**parts))
        raise Built

    monkeypatch.setattr(app, "Evictor", build)
    monkeypatch.setattr(logs, "configure_logging", lambda **_: None)
    # The timer of a real one would end the process of the tests a minute later.
    monkeypatch.setattr(Watchdog, "_set", lambda *_: None)
    kubeconfig = tmp_path / "kubeconfig"
    cluster, context = {"server": "http://127.0.0.1:1"}, {"cluster": "c", "user": "u"}
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": cluster}],
                "contexts": [{"name": "c", "context": context}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    assert CliRunner().invoke(run, [f"--kubeconfig={kubeconfig}", "--listen=127.0.0.1:0", *arguments]).exit_code == 1
    assert [evictor.limits for evictor in made] == [limits]


def test_complexity_options_have_the_default_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Settings] = []
    monkeypatch.setattr(supervisor, "run", made.append)
    monkeypatch.setattr(logs, "configure_logging", lambda **_: None)
    for arguments in ([], ["--max-pod-labels=7", "--max-namespace-affinity-terms=9"]):
        assert CliRunner().invoke(run, arguments).exit_code == 0
    assert made[0].complexity == DEFAULT_LIMITS
    assert made[1].complexity == ComplexityLimits(labels=7, namespace_terms=9)


@pytest.mark.parametrize(("text", "seconds"), [("", None), ("45s", 45.0), ("1m30s", 90.0)])
def test_plan_deadline_is_an_option(monkeypatch: pytest.MonkeyPatch, text: str, seconds: float | None) -> None:
    made: list[Settings] = []
    monkeypatch.setattr(supervisor, "run", made.append)
    monkeypatch.setattr(logs, "configure_logging", lambda **_: None)
    assert CliRunner().invoke(run, [f"--plan-deadline={text}"]).exit_code == 0
    assert made[0].plan_deadline == seconds


@pytest.mark.parametrize("arguments", [["--plan-deadline=10m"], ["--plan-deadline=6s", "--max-inactivity=5s"]])
def test_plan_deadline_that_reaches_max_inactivity_is_rejected(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "run", lambda _: pytest.fail("the operator started"))
    refused = CliRunner().invoke(run, arguments)
    assert refused.exit_code == 2
    assert "--plan-deadline" in refused.output
    assert "--max-inactivity" in refused.output


@pytest.mark.parametrize("text", ["0s", "-1s", "soon", "5"])
def test_invalid_plan_deadline_is_rejected(text: str) -> None:
    refused = CliRunner().invoke(run, [f"--plan-deadline={text}"])
    assert refused.exit_code == 2
    assert "--plan-deadline" in refused.output

"""``trimtab run``: how it ends when it cannot go on."""

from __future__ import annotations

import json
import logging
import os
import signal

import pytest
from click.testing import CliRunner

from trimtab.autoscaling.external import ExternalSettings, GrpcEndpoint
from trimtab.cli.run import run
from trimtab.cluster.prometheus import PrometheusSettings
from trimtab.runtime import app, logs
from trimtab.runtime.settings import Settings


def test_a_defect_is_told_in_the_log_on_one_line_like_all_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_settings: object) -> None:
        raise ValueError("no luck\nat all")

    monkeypatch.setattr(app, "run", fail)
    monkeypatch.setattr(logs, "set_up", lambda **_: None)
    result = CliRunner().invoke(run, [])
    assert result.exit_code == 1
    assert result.output == ""
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    line = logs.JsonFormatter().format(record)
    assert "\n" not in line
    assert "ValueError: no luck" in json.loads(line)["exception"]


def test_a_stop_that_comes_before_the_loop_runs_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked_to_stop(_settings: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("it goes on")

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(app, "run", asked_to_stop)
    monkeypatch.setattr(logs, "set_up", lambda **_: None)
    assert CliRunner().invoke(run, []).exit_code == 0
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("arguments", "scoring"), [([], None), (["--scoring", "MostAllocated"], "MostAllocated")])
def test_what_is_said_of_the_scheduler_reaches_the_operator(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], scoring: str | None
) -> None:
    told: list[Settings] = []
    monkeypatch.setattr(app, "run", told.append)
    monkeypatch.setattr(logs, "set_up", lambda **_: None)
    assert CliRunner().invoke(run, arguments).exit_code == 0
    assert [settings.scoring for settings in told] == [scoring]


def test_where_prometheus_is_reaches_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Settings] = []
    monkeypatch.setattr(app, "run", told.append)
    monkeypatch.setattr(logs, "set_up", lambda **_: None)
    arguments = ["--prometheus-url", "https://p", "--prometheus-token-file", "/t", "--prometheus-ca-file", "/c"]
    assert CliRunner().invoke(run, arguments).exit_code == 0
    assert CliRunner().invoke(run, []).exit_code == 0
    assert [settings.prometheus for settings in told] == [PrometheusSettings("https://p", "/t", "/c"), None]


@pytest.mark.parametrize("option", ["--prometheus-token-file", "--prometheus-ca-file"])
def test_a_token_for_nobody_is_refused(option: str) -> None:
    result = CliRunner().invoke(run, [option, "/t"])
    assert result.exit_code == 2
    assert "need --prometheus-url" in result.output


GRPC = ("ca-file", "cert-file", "key-file")


def test_who_makes_nodes_and_who_chooses_among_groups_reaches_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Settings] = []
    monkeypatch.setattr(app, "run", told.append)
    monkeypatch.setattr(logs, "set_up", lambda **_: None)
    files = [f"--cloud-provider-grpc-{name}=/{name}" for name in GRPC]
    arguments = ["--cloud-provider-grpc-address=p:1", *files, "--expander-grpc-address=e:2"]
    assert CliRunner().invoke(run, arguments).exit_code == 0
    assert CliRunner().invoke(run, ["--kwok-templates-namespace=kwok"]).exit_code == 0
    assert CliRunner().invoke(run, []).exit_code == 0
    assert [settings.external for settings in told] == [
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
            "--{0}-grpc-ca-file, --{0}-grpc-key-file: of no use without --{0}-grpc-address",
        ),
        (["address=a:1", "cert-file=/a"], "--{0}-grpc-cert-file and --{0}-grpc-key-file belong together"),
    ],
    ids=["no address", "no key"],
)
def test_half_of_a_grpc_connection_is_refused(prefix: str, options: list[str], message: str) -> None:
    result = CliRunner().invoke(run, [f"--{prefix}-grpc-{option}" for option in options])
    assert result.exit_code == 2
    assert message.format(prefix) in result.output

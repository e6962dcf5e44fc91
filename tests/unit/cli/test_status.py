"""``trimtab status``."""

from __future__ import annotations

import msgspec

DEGRADED = """\
apiVersion: trimtab.dev/v1alpha1
kind: DeschedulerPolicy
metadata: {name: nightly, generation: 1}
spec: {strategies: {RemoveDuplicates: {}}, mode: Act}
status:
  observedGeneration: 1
  conditions:
  - {type: Ready, status: "True", reason: CycleCompleted, message: m, lastTransitionTime: "2026-11-20T11:00:00Z"}
  - {type: Degraded, status: "True", reason: EvictionsFailed, message: 403, lastTransitionTime: "2026-11-20T11:00:00Z"}
"""
IDLE = DEGRADED.replace("nightly", "idle").replace('type: Degraded, status: "True"', 'type: Degraded, status: "False"')
DEGRADED = DEGRADED.replace("403", "'403'")
IDLE = IDLE.replace("403", "'403'")


def test_first_line_names_what_is_wrong(run, policy) -> None:
    result = run("status", "--cluster", policy(IDLE, DEGRADED))

    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert "DeschedulerPolicy nightly" in lines[0]
    rows = [line.split()[:3] for line in lines if line.startswith("DeschedulerPolicy")]
    assert rows == [["DeschedulerPolicy", "nightly", "Degraded"], ["DeschedulerPolicy", "idle", "Idle"]]


def test_exit_code_is_one_only_on_request(run, policy) -> None:
    path = policy(DEGRADED)
    assert run("status", "--cluster", path, "--exit-code").exit_code == 1
    assert run("status", "--cluster", policy(IDLE), "--exit-code").exit_code == 0


def test_json_contains_every_resource(run, policy) -> None:
    document = msgspec.json.decode(run("status", "--cluster", policy(IDLE, DEGRADED), "-o", "json").stdout)

    assert document["degraded"] is True
    assert document["operator"] is None
    assert [(each["name"], each["state"]) for each in document["resources"]] == [
        ("nightly", "Degraded"),
        ("idle", "Idle"),
    ]


def test_watch_needs_a_live_cluster(run, policy) -> None:
    assert run("status", "--watch", "--cluster", policy(IDLE)).exit_code == 2


def test_invalid_resource_is_a_problem(run, policy) -> None:
    wrong = IDLE.replace("mode: Act", "mode: Ask")
    result = run("status", "--cluster", policy(wrong, name="wrong.yaml"), "-o", "json")

    document = msgspec.json.decode(result.stdout)
    assert document["degraded"] is True
    assert "DeschedulerPolicy/idle: spec.mode" in document["invalid"][0]


def test_status_is_that_at_the_given_time(run, policy) -> None:
    windows = IDLE.replace("mode: Act", 'mode: Act, windows: [{schedule: "0 20 * * *", duration: 1h}]')
    path = policy(windows)
    for now, is_open in (("2026-11-20T20:30:00Z", True), ("2026-11-20T12:00:00Z", False)):
        document = msgspec.json.decode(run("status", "--cluster", path, "--now", now, "-o", "json").stdout)
        assert (document["time"], document["resources"][0]["window"]["open"]) == (now, is_open)
    assert run("status", "--watch", "--now", "2026-11-20T12:00:00Z").exit_code == 2

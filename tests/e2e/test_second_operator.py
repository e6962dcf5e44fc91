"""Two operators without a common lease: both report each other, and both continue."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Stage, Start
from tests.fixtures.waiting import never, wait_for
from trimtab.api.conditions import CONTENDED
from trimtab.api.reasons import ANOTHER_OPERATOR_ACTIVE
from trimtab_local.install import NAMESPACE, OperatorProcess

SECONDS = 45.0
"""Three looks of each, and what the start takes."""


def others(operator: OperatorProcess) -> float:
    text = operator.get("/metrics") or ""
    found = [line for line in text.splitlines() if line.startswith("trimtab_other_operators ")]
    return float(found[0].split()[1]) if found else -1.0


def reported(operator: OperatorProcess) -> int:
    return operator.log.read_text().count(f"({ANOTHER_OPERATOR_ACTIVE}):")


def events(stage: Stage) -> set[str]:
    """The processes that posted the event."""
    found: list[dict[str, Any]] = stage.events("Lease")
    return {each["reportingInstance"] for each in found if each["reason"] == ANOTHER_OPERATOR_ACTIVE}


@pytest.mark.parametrize("first", ["--no-leader-elect", "--leader-elect"])
def test_two_leaders_report_each_other(stage: Stage, start: Start, first: str) -> None:
    stage.write_policy("spread", mode="Act")
    one = start(first, f"--identity=one{first}")
    wait_for(lambda: stage.condition("spread", "Ready").get("status") == "True", "the first to act")
    assert others(one) == 0.0

    two = start("--no-leader-elect", f"--identity=two{first}")
    wait_for(lambda: others(one) == others(two) == 1.0, "both to notice", timeout=SECONDS)
    assert reported(one) == reported(two) == 1
    wait_for(lambda: events(stage) >= {f"one{first}", f"two{first}"}, "both events")
    wait_for(lambda: stage.condition("spread", CONTENDED).get("status") == "True", "the condition")
    contended = stage.condition("spread", CONTENDED)
    assert contended["reason"] == ANOTHER_OPERATOR_ACTIVE
    assert all(f"{name}{first} (Lease {NAMESPACE}/trimtab-acting)" in contended["message"] for name in ("one", "two"))

    stage.deploy_on("web", 3, on="a")
    wait_for(lambda: stage.spread("web", 3), "the policy to be carried out", timeout=120)
    assert one.running()
    assert two.running()

    two.stop()
    wait_for(lambda: others(one) == 0.0, "the first to notice the end", timeout=60)
    wait_for(lambda: stage.condition("spread", CONTENDED).get("status") == "False", "the condition to be cleared")
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/trimtab-acting"
    assert stage.client.request("GET", lease)["spec"]["holderIdentity"] == f"one{first}"


def test_follower_and_takeover_are_not_reported_as_second_operator(stage: Stage, start: Start) -> None:
    one, two = start("--identity=leader"), start("--identity=standby")
    wait_for(lambda: others(one) == 0.0, "the leader to look")
    one.stop()
    wait_for(lambda: "trimtab_leader 1.0" in (two.get("/metrics") or ""), "the standby to lead")
    never(lambda: others(two) > 0.0, "the former leader is reported", seconds=25)
    assert reported(one) == reported(two) == 0

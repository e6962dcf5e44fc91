"""What the descheduler logs about a plan."""

from __future__ import annotations

import logging

import pytest

from tests.policies import manifest
from trimtab.api.decode import decode_policy
from trimtab.api.plan import Plan
from trimtab.descheduling.report.status import log_plan


def test_size_of_a_plan_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    log_plan(
        decode_policy(manifest({"strategies": {"RemoveDuplicates": {}}}, name="nightly")),
        Plan(now=0.0, actions=(), kept=()),
    )

    [record] = caplog.records
    assert record.args == (0, "nightly", 0)
    assert "nightly" in record.getMessage()

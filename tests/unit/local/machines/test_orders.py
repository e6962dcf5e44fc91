from __future__ import annotations

import pytest

from trimtab_local.machines.orders import PREFIX, NextMachines, Orders, read_orders


def read(**texts: str) -> Orders:
    return read_orders({PREFIX + key.replace("_", "-"): text for key, text in texts.items()})


@pytest.mark.parametrize(
    ("texts", "orders"),
    [
        ({}, Orders()),
        ({"boot_time": "1m30s"}, Orders(boot_seconds=90.0)),
        ({"fail": "CreateError"}, Orders(fail=NextMachines(None), fail_reason="CreateError")),
        ({"fail": "InsufficientResources:2"}, Orders(fail=NextMachines(2), fail_reason="InsufficientResources")),
        ({"never_join": "true"}, Orders(never_join=NextMachines(None))),
        ({"never_join": "3"}, Orders(never_join=NextMachines(3))),
        ({"never_join": "false"}, Orders()),
        ({"quota": "0"}, Orders(quota=0)),
        ({"hold": "true", "ignore_marks": "true"}, Orders(hold=True, ignore_marks=True)),
        ({"mark_lag": "10s", "size_lag": "1m"}, Orders(mark_lag=10.0, size_lag=60.0)),
        ({"status_replicas": "7"}, Orders(status_replicas=7)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_annotations_are_orders(texts: dict[str, str], orders: Orders) -> None:
    assert read(**texts) == orders


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ({"boot_time": "soon"}, "annotation local.trimtab.dev/boot-time must be a duration that is not negative"),
        ({"mark_lag": "-1s"}, "annotation local.trimtab.dev/mark-lag must be a duration that is not negative"),
        ({"fail": "not so:1"}, "annotation local.trimtab.dev/fail must be a reason, or a reason and how often"),
        ({"never_join": "yes"}, "annotation local.trimtab.dev/never-join must be true, false or a whole number"),
        ({"quota": "-1"}, "annotation local.trimtab.dev/quota must be a whole number from 0 on; not '-1'"),
        ({"hold": "1"}, "annotation local.trimtab.dev/hold must be true or false; not '1'"),
        (
            {"quotas": "1"},
            "annotation local.trimtab.dev/quotas is no order; after local.trimtab.dev/ there may be boot",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_invalid_annotation_is_reported_and_ignored(texts: dict[str, str], problem: str) -> None:
    orders = read(**texts)

    [recorded] = orders.problems
    assert recorded.startswith(problem)
    assert orders == Orders(problems=orders.problems)

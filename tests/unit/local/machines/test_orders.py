from __future__ import annotations

import pytest

from trimtab.local.machines.orders import PREFIX, Orders, Some, read_orders


def read(**texts: str) -> Orders:
    return read_orders({PREFIX + key.replace("_", "-"): text for key, text in texts.items()})


@pytest.mark.parametrize(
    ("texts", "orders"),
    [
        ({}, Orders()),
        ({"boot_time": "1m30s"}, Orders(boot_seconds=90.0)),
        ({"fail": "CreateError"}, Orders(fail=Some(None), fail_reason="CreateError")),
        ({"fail": "InsufficientResources:2"}, Orders(fail=Some(2), fail_reason="InsufficientResources")),
        ({"never_join": "true"}, Orders(never_join=Some(None))),
        ({"never_join": "3"}, Orders(never_join=Some(3))),
        ({"never_join": "false"}, Orders()),
        ({"quota": "0"}, Orders(quota=0)),
        ({"hold": "true", "ignore_marks": "true"}, Orders(hold=True, ignore_marks=True)),
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
def test_what_cannot_be_read_is_told_and_does_not_count(texts: dict[str, str], problem: str) -> None:
    orders = read(**texts)

    [told] = orders.problems
    assert told.startswith(problem)
    assert orders == Orders(problems=orders.problems)

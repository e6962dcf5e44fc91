"""``trimtab explain nodegroup``."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import cluster_machine_set
from tests.fixtures.golden import Golden
from tests.unit.autoscaling.scale_up_helpers import group, pending_pods

AUTOSCALER = """\
apiVersion: autoscaling.openshift.io/v1
kind: ClusterAutoscaler
metadata: {name: default}
"""
ID = "MachineSet/openshift-machine-api/small"


def objects() -> list[Any]:
    return [group("large", cpu="8"), group("small", cpu="2", memory="8Gi"), *pending_pods(4)]


@pytest.mark.parametrize(
    "arguments",
    [
        ("nodegroup", "small"),
        ("ng/openshift-machine-api/small",),
        ("nodegroup", ID),
        ("ng", "small", "-n", "openshift-machine-api"),
    ],
)
def test_one_group_by_any_form_of_its_name(run, write, policy, arguments) -> None:
    options = ("--cluster", write("c.json", *objects()), "--policy", policy(AUTOSCALER))
    result = run("explain", *arguments, *options, "-o", "json")

    assert (result.exit_code, result.stderr) == (0, "")
    document = msgspec.json.decode(result.stdout)
    assert (document["id"], document["scaleUp"]["to"]) == (ID, 2)
    assert run("explain", *arguments, *options).stdout.startswith("openshift-machine-api/small ")


def test_all_groups(run, write, policy, golden: Golden) -> None:
    options = ("--cluster", write("c.json", *objects()), "--policy", policy(AUTOSCALER))
    document = msgspec.json.decode(run("explain", "nodegroups", *options, "-o", "json").stdout)

    assert [each["nodeGroup"].rpartition("/")[2] for each in document["nodeGroups"]] == ["large", "small"]
    golden(run("explain", "ng", *options).stdout)


def test_unknown_and_ambiguous_names_are_errors(run, write) -> None:
    cluster = write("c.json", *objects(), cluster_machine_set("small", "openshift-machine-api").limits(0, 3))
    wrong = run("explain", "nodegroup", "smal", "--cluster", cluster)
    assert wrong.exit_code == 2
    assert "did you mean" in wrong.stderr
    several = run("explain", "nodegroup", "small", "--cluster", cluster)
    assert several.exit_code == 2
    assert ID in several.stderr

"""Names of objects on the command line."""

from __future__ import annotations

import pytest

from trimtab.cli.names import (
    NODE,
    NODE_GROUP,
    PDB,
    POD,
    POLICY,
    ObjectName,
    ObjectType,
    object_not_found,
    parse_object_name,
    split_type,
)
from trimtab.kube.errors import InputError


@pytest.mark.parametrize(
    ("type_", "text", "namespace", "expected"),
    [
        (POD, "web-1", None, ObjectName("web-1", "dev")),
        (POD, "web-1", "shop", ObjectName("web-1", "shop")),
        (POD, "shop/web-1", None, ObjectName("web-1", "shop")),
        (POD, "shop/web-1", "shop", ObjectName("web-1", "shop")),
        (PDB, "web", None, ObjectName("web", "dev")),
        (NODE, "n1", None, ObjectName("n1")),
        (NODE_GROUP, "workers-a", None, ObjectName("workers-a")),
        (NODE_GROUP, "workers-a", "machines", ObjectName("workers-a", "machines")),
        (NODE_GROUP, "machines/workers-a", None, ObjectName("workers-a", "machines")),
        (POLICY, "default", None, ObjectName("default")),
        (POLICY, "DeschedulerPolicy/default", None, ObjectName("default", kind="deschedulerpolicy")),
    ],
)
def test_valid_names(type_: ObjectType, text: str, namespace: str | None, expected: ObjectName) -> None:
    assert parse_object_name(text, type_, namespace=namespace, default_namespace="dev") == expected


@pytest.mark.parametrize(
    ("type_", "text", "namespace", "named"),
    [
        (POD, "", None, "NAMESPACE/NAME"),
        (POD, "shop/", None, "'shop/'"),
        (POD, "/web", None, "'/web'"),
        (POD, "a/b/c", None, "'a/b/c'"),
        (POD, "shop/web", "billing", "namespace billing"),
        (NODE, "shop/n1", None, "'shop/n1'"),
        (NODE, "n1", "shop", "--namespace shop"),
        (POLICY, "default", "shop", "--namespace shop"),
    ],
)
def test_invalid_names(type_: ObjectType, text: str, namespace: str | None, named: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_object_name(text, type_, namespace=namespace)
    assert named in str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pod/web", ("pod", "web")),
        ("po/shop/web", ("pod", "shop/web")),
        ("PodDisruptionBudget/web", ("pdb", "web")),
        ("ng/workers-a", ("nodegroup", "workers-a")),
        ("no/n1", ("node", "n1")),
        ("pod", None),
        ("service/web", None),
        ("shop/web", None),
    ],
)
def test_type_before_the_name(text: str, expected: tuple[str, str] | None) -> None:
    assert split_type(text) == expected


@pytest.mark.parametrize(
    ("type_", "wanted", "keys", "hint"),
    [
        (NODE, ObjectName("n33"), ["n3", "x"], "did you mean n3?"),
        (NODE, ObjectName("zzz"), ["n3"], "node not found"),
        (NODE_GROUP, ObjectName("worker-a"), ["machines/workers-a"], "did you mean workers-a?"),
        (NODE_GROUP, ObjectName("zzz"), ["machines/workers-a"], "the 1 nodegroups include workers-a"),
        (NODE_GROUP, ObjectName("workers-a", "other"), ["machines/workers-a"], "did you mean machines/workers-a?"),
        (NODE_GROUP, ObjectName("workers-a"), [], "the cluster has no nodegroups"),
    ],
)
def test_missing_object_has_a_hint(type_: ObjectType, wanted: ObjectName, keys: list[str], hint: str) -> None:
    error = object_not_found(wanted, keys, type_=type_, source="cluster.json")

    assert str(error).startswith(f"cluster.json: {type_.kind}/{wanted.key}: ")
    assert str(error).endswith(hint)

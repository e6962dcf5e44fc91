"""A real API server accepts what `trimtab convert` writes, with strict field validation and without changes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.crds import client as client
from tests.fixtures.crds import create
from tests.foreign_policies import NEW, OLD, OPENSHIFT
from trimtab.api.decode import decode_policy
from trimtab.descheduling.imports import FORMATS
from trimtab_local.client import Client


@pytest.mark.parametrize(
    "foreign",
    [pytest.param(OLD, id="v1alpha1"), pytest.param(NEW, id="v1alpha2"), pytest.param(OPENSHIFT, id="openshift")],
)
def test_api_server_accepts_converted_policies(client: Client, foreign: dict[str, Any]) -> None:
    imported = FORMATS[foreign["kind"], foreign["apiVersion"]](foreign)

    for policy, document in zip(imported.policies, imported.documents, strict=True):
        assert decode_policy(create(client, document)).spec == policy.spec

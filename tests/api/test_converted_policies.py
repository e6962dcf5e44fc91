"""What `trimtab convert` writes is taken by the real API server, strictly and without a change."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.test_crd import client as client
from tests.foreign_policies import NEW, OLD, OPENSHIFT
from trimtab.api.decode import decode_policy
from trimtab.descheduling.imports.formats import FORMATS
from trimtab.kube.resources import DESCHEDULER_POLICIES as POLICIES
from trimtab.local.client import Client


@pytest.mark.parametrize(
    "foreign",
    [pytest.param(OLD, id="v1alpha1"), pytest.param(NEW, id="v1alpha2"), pytest.param(OPENSHIFT, id="openshift")],
)
def test_the_api_server_takes_what_was_converted(client: Client, foreign: dict[str, Any]) -> None:
    imported = FORMATS[foreign["kind"], foreign["apiVersion"]](foreign)

    for policy, document in zip(imported.policies, imported.documents, strict=True):
        params = {"fieldValidation": "Strict", "dryRun": "All"}
        stored = client.request("POST", POLICIES.path(), document, params=params)
        assert decode_policy(stored).spec == policy.spec

"""A ClusterAutoscaler status of maximum size on a real API server: accepted, unchanged, and far from its limits."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from tests import autoscalers
from tests.fixtures.crds import MERGE, create
from tests.fixtures.crds import client as client
from tests.unit.autoscaling.iteration_reports import WORDS, full_size
from trimtab.api.base import status_patch
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.decode import decode_cluster_autoscaler
from trimtab.autoscaling.report import build_status
from trimtab.kube.resources import CLUSTER_AUTOSCALERS
from trimtab_local.client import Client

pytestmark = pytest.mark.live

PATH = CLUSTER_AUTOSCALERS.path("default")
MOST = 1_200_000
"""Bytes of the whole object with what the API server keeps of who wrote it; etcd takes 1,572,864."""


@pytest.fixture
def default(client: Client) -> Iterator[None]:
    """A ClusterAutoscaler in the API server."""
    create(client, autoscalers.cluster_autoscaler("{}"), dry_run=False)
    yield
    client.request("DELETE", PATH)


@pytest.mark.usefixtures("default")
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(WORDS * 12, id="long stories"),
        pytest.param("<&>" * 2000, id="signs that are written as six bytes"),
        pytest.param("漢字" * 2000, id="letters of three bytes"),
        pytest.param('"\\\n\t' * 2000, id="what has to be escaped"),
    ],
)
def test_status_of_maximum_size_round_trips(client: Client, words: str) -> None:
    status = build_status(full_size(words=words), ClusterAutoscalerStatus())
    for _ in range(2):  # the second time over itself
        client.request("PATCH", f"{PATH}/status", {"status": status_patch(status)}, content_type=MERGE)

    stored = client.request("GET", PATH)
    assert decode_cluster_autoscaler(stored).status == status
    text = msgspec.json.encode(stored)
    assert len(text) + 5 * sum(text.count(sign) for sign in (b"<", b">", b"&")) < MOST
    assert len(msgspec.json.encode(stored["metadata"]["managedFields"])) < 5_000

"""The autoscaler's status at full size on the real API server: taken, read back as it was, and far from limits."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import pytest

from tests import autoscalers
from tests.api.test_crd import client as client
from tests.unit.autoscaling.reporting import WORDS, full_size
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.decode import decode_cluster_autoscaler
from trimtab.api.descheduler_status import status_patch
from trimtab.autoscaling.report import build_status
from trimtab.kube.api import NotFound
from trimtab.kube.resources import CLUSTER_AUTOSCALERS
from trimtab.local.client import Client

MERGE = "application/merge-patch+json"
PATH = CLUSTER_AUTOSCALERS.path("default")
MOST = 1_200_000
"""Bytes of the whole object with what the API server keeps of who wrote it; etcd takes 1,572,864."""


@pytest.fixture
def default(client: Client) -> Iterator[None]:
    """The ClusterAutoscaler, once its kind is served; gone afterwards."""
    deadline = time.monotonic() + 30
    while True:
        try:
            client.request("POST", CLUSTER_AUTOSCALERS.path(), autoscalers.cluster_autoscaler("{}"))
            break
        except NotFound:
            assert time.monotonic() < deadline
            time.sleep(0.1)
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
def test_a_status_of_full_size_is_taken_and_read_back(client: Client, words: str) -> None:
    status = build_status(full_size(words=words), ClusterAutoscalerStatus())
    for _ in range(2):  # the second time over itself
        client.request("PATCH", f"{PATH}/status", {"status": status_patch(status)}, content_type=MERGE)

    stored = client.request("GET", PATH)
    assert decode_cluster_autoscaler(stored).status == status
    text = msgspec.json.encode(stored)
    assert len(text) + 5 * sum(text.count(sign) for sign in (b"<", b">", b"&")) < MOST
    assert len(msgspec.json.encode(stored["metadata"]["managedFields"])) < 5_000

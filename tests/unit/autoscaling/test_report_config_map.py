"""Upstream's status ConfigMap: fields, values, transition times and number of requests."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.fakes.api import FakeApi
from tests.fixtures.golden import Golden
from tests.unit.autoscaling.iteration_reports import (
    NOW,
    full_size,
    group,
    id_of,
    in_trouble,
    opened,
    report,
)
from trimtab.autoscaling.cluster_state.readiness import ClusterHealth, Readiness
from trimtab.autoscaling.cluster_state.state import AutoscalerState, GroupRecord
from trimtab.autoscaling.report.iteration_report import IterationReport
from trimtab.autoscaling.report.status_config_map import (
    KEY,
    LAST_UPDATED,
    MOST_BYTES,
    NAME,
    StatusConfigMap,
    decode_status,
    encode_status,
    materially_equal,
    upstream_status,
)
from trimtab.kube.api import Forbidden

NAMESPACE = "trimtab-system"
PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}"


def document(made: IterationReport) -> Any:
    """The document as a reader of the ConfigMap sees it."""
    return msgspec.yaml.decode(encode_status(upstream_status(made, None)))


class TestDocument:
    def test_document_has_upstreams_fields_and_values(self) -> None:
        made = report(
            group("a"),
            readiness={"a-0": Readiness.READY, "a-1": Readiness.UNREADY},
            state=AutoscalerState(unneeded={"a-0": NOW}),
        )
        times = {"lastProbeTime": "2026-11-20T12:00:00Z", "lastTransitionTime": "2026-11-20T12:00:00Z"}
        counts = {
            "registered": {
                "total": 2,
                "ready": 1,
                "notStarted": 0,
                "beingDeleted": 0,
                "unready": {"total": 1, "resourceUnready": 0},
            },
            "longUnregistered": 0,
            "unregistered": 0,
        }
        up = {"status": "NoActivity", **times}
        down = {"status": "CandidatesPresent", "candidates": 1, **times}
        assert document(made) == {
            "time": "2026-11-20 12:00:00 +0000 UTC",
            "autoscalerStatus": "Running",
            "message": "",
            "clusterWide": {
                "health": {"status": "Healthy", "nodeCounts": counts, **times},
                "scaleUp": up,
                "scaleDown": down,
            },
            "nodeGroups": [
                {
                    "name": id_of("a"),
                    "health": {
                        "status": "Healthy",
                        "nodeCounts": counts,
                        "cloudProviderTarget": 2,
                        "minSize": 0,
                        "maxSize": 9,
                        **times,
                    },
                    "scaleUp": up,
                    "scaleDown": down,
                }
            ],
        }

    def test_group_in_backoff_has_the_error(self, golden: Golden) -> None:
        made = report(
            group("a"),
            state=AutoscalerState(groups={id_of("a"): in_trouble()}, scale_ups={id_of("a"): opened()}),
            health=ClusterHealth("7 of 9 nodes are unready", {id_of("a"): "2 of 2 nodes are unready"}),
        )
        found = document(made)
        golden(found["message"])
        assert found["clusterWide"]["health"]["status"] == "Unhealthy"
        assert found["clusterWide"]["scaleUp"]["status"] == "InProgress"
        (of,) = found["nodeGroups"]
        assert of["health"]["status"] == "Unhealthy"
        assert of["scaleUp"]["status"] == "Backoff"
        assert of["scaleUp"]["backoffInfo"] == {
            "errorCode": "InsufficientResources",
            "errorMessage": "no capacity",
        }

    def test_upcoming_and_unregistered_nodes_are_counted(self) -> None:
        made = report(group("a", target=5), state=AutoscalerState(groups={id_of("a"): GroupRecord(given_up=1)}))
        counts = document(made)["clusterWide"]["health"]["nodeCounts"]
        assert (counts["unregistered"], counts["longUnregistered"]) == (3, 1)

    def test_failed_iteration_keeps_the_document_with_its_error(self) -> None:
        first = upstream_status(report(group("a")), None)
        second = upstream_status(report(started=NOW + 10, error="KeyError: 'x'"), first)
        assert second.message == "KeyError: 'x'"
        assert second.node_groups == first.node_groups
        assert second.time != first.time
        assert decode_status(encode_status(upstream_status(report(error="boom"), None))) is not None

    def test_parts_keep_their_transition_time(self) -> None:
        first = upstream_status(report(group("a")), None)
        later = report(group("a"), started=NOW + 60, state=AutoscalerState(scale_ups={id_of("a"): opened()}))
        (of,) = upstream_status(later, first).node_groups
        assert (of.health.last_probe_time, of.health.last_transition_time) == (
            "2026-11-20T12:01:00Z",
            "2026-11-20T12:00:00Z",
        )
        assert of.scale_up.last_transition_time == "2026-11-20T12:01:00Z"

    def test_document_round_trips(self) -> None:
        made = upstream_status(full_size(number=3), None)
        assert decode_status(encode_status(made)) == made

    @pytest.mark.parametrize("text", ["", "nonsense", "time: [", "time: 2026-11-20T12:00:00Z", "{}"])
    def test_other_documents_are_ignored(self, text: str) -> None:
        assert decode_status(text) is None

    @pytest.mark.parametrize(
        "words",
        [
            pytest.param("no capacity", id="plain", marks=pytest.mark.live),
            pytest.param("<" * 5000, id="escaped", marks=pytest.mark.live),
            pytest.param("漢" * 3000, id="multibyte"),
        ],
    )
    def test_document_of_maximum_size_fits(self, words: str) -> None:
        text = encode_status(upstream_status(full_size(words=words), None))
        assert len(text.encode()) <= MOST_BYTES
        assert msgspec.yaml.decode(text)["message"] == ""

    def test_omitted_groups_are_counted(self) -> None:
        found = msgspec.yaml.decode(encode_status(upstream_status(full_size(number=1500, each=1), None)))
        omitted = int(found["message"].split()[0])
        assert len(found["nodeGroups"]) + omitted == 1500
        assert found["message"] == f"{omitted} node groups omitted"

    @pytest.mark.parametrize(
        ("more", "same"),
        [
            ({"started": NOW + 10}, True),
            ({"readiness": {"a-0": Readiness.UNREADY}}, False),
            ({"state": AutoscalerState(unneeded={"a-0": NOW})}, False),
        ],
        ids=["time", "node", "candidate"],
    )
    def test_probe_times_are_no_material_change(self, more: dict[str, Any], same: bool) -> None:
        first = upstream_status(report(group("a")), None)
        assert materially_equal(first, upstream_status(report(group("a"), **more), first)) is same


class TestWriting:
    async def test_config_map_is_created_once_then_patched(self) -> None:
        api = FakeApi()
        writer = StatusConfigMap(api, namespace=NAMESPACE)
        assert await writer.write(report(group("a")))
        assert [call.method for call in api.calls] == ["GET", "PATCH", "POST"]
        stored = api.objects[PATH]
        assert stored["metadata"]["annotations"] == {LAST_UPDATED: "2026-11-20 12:00:00 +0000 UTC"}
        assert msgspec.yaml.decode(stored["data"][KEY])["autoscalerStatus"] == "Running"

        api.calls.clear()
        assert await writer.write(report(group("a", target=3), started=NOW + 10, finished=NOW + 10))
        assert [call.method for call in api.calls] == ["PATCH"]

    async def test_unchanged_document_is_written_once_a_minute(self) -> None:
        api = FakeApi()
        writer = StatusConfigMap(api, namespace=NAMESPACE)
        await writer.write(report(group("a"), finished=NOW))
        api.calls.clear()
        sent = []
        for later in (10, 50, 60, 70):
            assert await writer.write(report(group("a"), started=NOW + later, finished=NOW + later))
            sent.append(len(api.calls))
        assert sent == [0, 0, 1, 1]

    async def test_new_process_keeps_transition_times(self) -> None:
        api = FakeApi()
        await StatusConfigMap(api, namespace=NAMESPACE).write(report(group("a")))
        await StatusConfigMap(api, namespace=NAMESPACE).write(report(group("a"), started=NOW + 30, finished=NOW + 30))
        health = msgspec.yaml.decode(api.objects[PATH]["data"][KEY])["clusterWide"]["health"]
        assert health["lastTransitionTime"] == "2026-11-20T12:00:00Z"
        assert health["lastProbeTime"] == "2026-11-20T12:00:30Z"

    async def test_other_keys_and_annotations_are_kept(self) -> None:
        api = FakeApi()
        api.put(PATH, {"metadata": {"annotations": {"x": "y"}}, "data": {"other": "z"}})
        await StatusConfigMap(api, namespace=NAMESPACE).write(report(group("a")))
        stored = api.objects[PATH]
        assert (stored["data"]["other"], stored["metadata"]["annotations"]["x"]) == ("z", "y")

    async def test_failed_write_is_logged_and_retried(self, caplog: pytest.LogCaptureFixture, golden: Golden) -> None:
        api = FakeApi()
        api.fail(Forbidden("no", status=403, reason="Forbidden"), method="PATCH")
        writer = StatusConfigMap(api, namespace=NAMESPACE)
        assert not await writer.write(report(group("a")))
        [record] = caplog.records
        golden(f"{record.levelname} {record.getMessage()}")
        assert await writer.write(report(group("a")))

    async def test_outage_does_not_raise(self) -> None:
        assert not await StatusConfigMap(FakeApi(down=True), namespace=NAMESPACE).write(report(group("a")))

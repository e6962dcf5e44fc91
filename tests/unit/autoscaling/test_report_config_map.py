"""Upstream's status ConfigMap: its words and fields, since when, and no more requests than it takes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.fakes.api import FakeApi
from tests.unit.autoscaling.reporting import (
    NOW,
    full_size,
    group,
    id_of,
    in_trouble,
    opened,
    report,
)
from trimtab.autoscaling.memory.health import Health
from trimtab.autoscaling.memory.readiness import Readiness
from trimtab.autoscaling.memory.state import GroupRecord, State
from trimtab.autoscaling.report.config_map import KEY, LAST_UPDATED, NAME, StatusConfigMap
from trimtab.autoscaling.report.pass_report import PassReport
from trimtab.autoscaling.report.upstream_status import MOST_BYTES, read, same_story, text_of, upstream_status
from trimtab.kube.api import Forbidden

NAMESPACE = "trimtab-system"
PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}"


def document(made: PassReport) -> Any:
    """As who reads the ConfigMap sees it."""
    return yaml.safe_load(text_of(upstream_status(made, None)))


class TestDocument:
    def test_it_has_upstreams_fields_and_words(self) -> None:
        made = report(
            group("a"),
            readiness={"a-0": Readiness.READY, "a-1": Readiness.UNREADY},
            memory=State(unneeded={"a-0": NOW}),
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

    def test_a_group_in_trouble_says_why(self) -> None:
        made = report(
            group("a"),
            memory=State(groups={id_of("a"): in_trouble()}, scale_ups={id_of("a"): opened()}),
            health=Health("7 of 9 nodes are unready", {id_of("a"): "2 of 2 nodes are unready"}),
        )
        found = document(made)
        assert found["message"] == "7 of 9 nodes are unready"
        assert found["clusterWide"]["health"]["status"] == "Unhealthy"
        assert found["clusterWide"]["scaleUp"]["status"] == "InProgress"
        (of,) = found["nodeGroups"]
        assert of["health"]["status"] == "Unhealthy"
        assert of["scaleUp"]["status"] == "Backoff"
        assert of["scaleUp"]["backoffInfo"] == {
            "errorCode": "InsufficientResources",
            "errorMessage": "no capacity",
        }

    def test_what_is_on_its_way_and_what_never_came_is_counted(self) -> None:
        made = report(group("a", target=5), memory=State(groups={id_of("a"): GroupRecord(given_up=1)}))
        counts = document(made)["clusterWide"]["health"]["nodeCounts"]
        assert (counts["unregistered"], counts["longUnregistered"]) == (3, 1)

    def test_a_pass_that_failed_leaves_what_was_seen_and_says_so(self) -> None:
        first = upstream_status(report(group("a")), None)
        second = upstream_status(report(started=NOW + 10, error="KeyError: 'x'"), first)
        assert second.message == "KeyError: 'x'"
        assert second.node_groups == first.node_groups
        assert second.time != first.time
        assert read(text_of(upstream_status(report(error="boom"), None))) is not None

    def test_a_part_says_since_when_it_is_as_it_is(self) -> None:
        first = upstream_status(report(group("a")), None)
        later = report(group("a"), started=NOW + 60, memory=State(scale_ups={id_of("a"): opened()}))
        (of,) = upstream_status(later, first).node_groups
        assert (of.health.last_probe_time, of.health.last_transition_time) == (
            "2026-11-20T12:01:00Z",
            "2026-11-20T12:00:00Z",
        )
        assert of.scale_up.last_transition_time == "2026-11-20T12:01:00Z"

    def test_it_is_read_back_as_it_was_written(self) -> None:
        made = upstream_status(full_size(number=3), None)
        assert read(text_of(made)) == made

    @pytest.mark.parametrize("text", ["", "nonsense", "time: [", "time: 2026-11-20T12:00:00Z", "{}"])
    def test_what_is_no_such_document_is_not_read(self, text: str) -> None:
        assert read(text) is None

    @pytest.mark.parametrize("words", ["no capacity", "<" * 5000, "漢" * 3000], ids=["plain", "signs", "wide"])
    def test_a_document_of_full_size_fits(self, words: str) -> None:
        text = text_of(upstream_status(full_size(words=words), None))
        assert len(text.encode()) <= MOST_BYTES
        assert yaml.safe_load(text)["message"] == ""

    def test_groups_for_which_there_is_no_room_are_counted(self) -> None:
        found = yaml.safe_load(text_of(upstream_status(full_size(number=1500, each=1), None)))
        omitted = int(found["message"].split()[0])
        assert len(found["nodeGroups"]) + omitted == 1500
        assert found["message"] == f"{omitted} node groups omitted"

    @pytest.mark.parametrize(
        ("more", "same"),
        [
            ({"started": NOW + 10}, True),
            ({"readiness": {"a-0": Readiness.UNREADY}}, False),
            ({"memory": State(unneeded={"a-0": NOW})}, False),
        ],
        ids=["the time", "a node", "a candidate"],
    )
    def test_only_times_change_no_story(self, more: dict[str, Any], same: bool) -> None:
        first = upstream_status(report(group("a")), None)
        assert same_story(first, upstream_status(report(group("a"), **more), first)) is same


class TestWriting:
    async def test_it_is_made_once_and_patched_with_one_request_each(self) -> None:
        api = FakeApi()
        writer = StatusConfigMap(api, namespace=NAMESPACE)
        assert await writer.write(report(group("a")))
        assert [call.method for call in api.calls] == ["GET", "PATCH", "POST"]
        stored = api.objects[PATH]
        assert stored["metadata"]["annotations"] == {LAST_UPDATED: "2026-11-20 12:00:00 +0000 UTC"}
        assert yaml.safe_load(stored["data"][KEY])["autoscalerStatus"] == "Running"

        api.calls.clear()
        assert await writer.write(report(group("a", target=3), started=NOW + 10, finished=NOW + 10))
        assert [call.method for call in api.calls] == ["PATCH"]

    async def test_it_is_left_alone_where_nothing_is_new_for_a_minute(self) -> None:
        api = FakeApi()
        writer = StatusConfigMap(api, namespace=NAMESPACE)
        await writer.write(report(group("a"), finished=NOW))
        api.calls.clear()
        written = [
            await writer.write(report(group("a"), started=NOW + later, finished=NOW + later))
            for later in (10, 50, 60, 70)
        ]
        assert written == [False, False, True, False]
        assert len(api.calls) == 1

    async def test_a_new_process_goes_on_where_the_last_one_ended(self) -> None:
        api = FakeApi()
        await StatusConfigMap(api, namespace=NAMESPACE).write(report(group("a")))
        await StatusConfigMap(api, namespace=NAMESPACE).write(report(group("a"), started=NOW + 30, finished=NOW + 30))
        health = yaml.safe_load(api.objects[PATH]["data"][KEY])["clusterWide"]["health"]
        assert health["lastTransitionTime"] == "2026-11-20T12:00:00Z"
        assert health["lastProbeTime"] == "2026-11-20T12:00:30Z"

    async def test_other_keys_and_annotations_of_the_config_map_stay(self) -> None:
        api = FakeApi()
        api.put(PATH, {"metadata": {"annotations": {"x": "y"}}, "data": {"other": "z"}})
        await StatusConfigMap(api, namespace=NAMESPACE).write(report(group("a")))
        stored = api.objects[PATH]
        assert (stored["data"]["other"], stored["metadata"]["annotations"]["x"]) == ("z", "y")

    async def test_a_failure_is_logged_and_the_next_pass_tries_again(self, caplog: pytest.LogCaptureFixture) -> None:
        api = FakeApi()
        api.fail(Forbidden("no", status=403, reason="Forbidden"), method="PATCH")
        writer = StatusConfigMap(api, namespace=NAMESPACE)
        assert not await writer.write(report(group("a")))
        assert "not written" in caplog.text
        assert await writer.write(report(group("a")))

    async def test_an_outage_raises_nothing(self) -> None:
        assert not await StatusConfigMap(FakeApi(down=True), namespace=NAMESPACE).write(report(group("a")))

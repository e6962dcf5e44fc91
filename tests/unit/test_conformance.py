"""The runner of Kubernetes' e2e specs: its reading of reports, its table and its exit status."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from tools.conformance import __main__ as command
from tools.conformance import runs
from tools.conformance.results import (
    GROUPS,
    KUBERNETES,
    TRIMTAB,
    Result,
    Results,
    read_report,
    read_results,
    regressions,
    summary,
    tables,
    write_results,
)
from tools.conformance.runs import OBJECTS, REPLACED, run_group, system_pods

from tests.fixtures.golden import Golden
from trimtab_local import LocalError
from trimtab_local.progress import Progress
from trimtab_local.versions import SCHEDULER

PASS, FAIL = Result(state="pass", seconds=1.0), Result(state="fail", seconds=2.0, reason="timed out")
SKIP = Result(state="skip", seconds=0.0, reason="Requires at least 9 nodes (not 4)")


def spec(text: str, state: str, *containers: str, message: str = "", **more: Any) -> dict[str, Any]:
    failure = {"Failure": {"Message": message}} if message else {}
    report = {"ContainerHierarchyTexts": list(containers), "LeafNodeType": "It", "LeafNodeText": text, "State": state}
    return report | {"RunTime": 12_340_000_000, "NumAttempts": 1} | failure | more


PREDICATES = "[sig-scheduling] SchedulerPredicates [Serial]"


def report(*specs: dict[str, Any]) -> bytes:
    return msgspec.json.encode([{"SuitePath": "/x", "SuiteSucceeded": False, "SpecReports": list(specs)}])


@pytest.mark.parametrize(
    ("ginkgo", "message", "state", "reason"),
    [
        ("passed", "", "pass", ""),
        ("skipped", "Requires at least 9 nodes (not 4)", "skip", "Requires at least 9 nodes (not 4)"),
        ("failed", "expected\n    <int>: 3", "fail", "expected <int>: 3"),
        ("timedout", "", "fail", "timedout"),
        ("panicked", "runtime error", "fail", "runtime error"),
        ("interrupted", "", "fail", "interrupted"),
        ("aborted", "", "fail", "aborted"),
    ],
)
def test_states_of_specs(ginkgo: str, message: str, state: str, reason: str) -> None:
    found = read_report(report(spec("validates x", ginkgo, PREDICATES, message=message)), "SchedulerPredicates")
    assert found == {"validates x": Result(state=state, seconds=12.3, reason=reason)}


def test_names_have_the_inner_containers_and_no_tags() -> None:
    content = report(
        spec("validates 4 pods with MaxSkew=1", "passed", PREDICATES, "PodTopologySpread Filtering"),
        spec("validates resource limits [Conformance]", "passed", PREDICATES),
    )
    assert read_report(content, "SchedulerPredicates") == {
        "PodTopologySpread Filtering: validates 4 pods with MaxSkew=1": Result(state="pass", seconds=12.3),
        "validates resource limits": Result(state="pass", seconds=12.3, conformance=True),
    }


def test_containers_that_begin_with_the_group_belong_to_it() -> None:
    container = "[sig-node] NoExecuteTaintManager Single Pod [Serial]"
    found = read_report(report(spec("evicts pods from tainted nodes", "passed", container)), "NoExecuteTaintManager")
    assert list(found) == ["Single Pod: evicts pods from tainted nodes"]


def test_what_the_focus_left_out_and_other_nodes_are_no_results() -> None:
    content = report(
        spec("validates x", "skipped", PREDICATES),
        spec("evicts", "passed", "[sig-node] NoExecuteTaintManager Single Pod [Serial]"),
        spec("", "passed", LeafNodeType="ReportAfterSuite"),
        spec("a spec without containers", "passed"),
    )
    assert read_report(content, "SchedulerPredicates") == {}
    assert read_report(b'[{"SpecReports": null}]', "SchedulerPredicates") == {}


def test_another_file_is_not_taken_for_a_report() -> None:
    with pytest.raises(msgspec.DecodeError):
        read_report(b'{"items": []}', "SchedulerPredicates")


def results(theirs: dict[str, Result], ours: dict[str, Result], group: str = "LimitRange") -> Results:
    return {KUBERNETES: {group: theirs}, TRIMTAB: {group: ours}}


@pytest.mark.parametrize(
    ("theirs", "ours", "found"),
    [
        ({"a": PASS}, {"a": PASS}, []),
        ({"a": PASS}, {"a": FAIL}, ["a"]),
        ({"a": PASS}, {"a": SKIP}, ["a"]),
        ({"a": PASS, "b": PASS}, {"b": PASS}, ["a"]),
        ({"a": FAIL, "b": SKIP}, {"a": FAIL, "b": FAIL, "c": FAIL}, []),
    ],
    ids=["passes", "fails", "is skipped", "did not run", "no reference"],
)
def test_regressions_are_specs_that_pass_with_kubernetes_alone(theirs, ours, found: list[str]) -> None:
    assert regressions(results(theirs, ours)) == [("LimitRange", name) for name in found]


def test_only_the_groups_asked_for_are_compared() -> None:
    assert regressions(results({"a": PASS}, {}), ["SchedulerPredicates"]) == []


def test_results_are_stored_and_read_again(tmp_path: Path) -> None:
    stored = results({"a": PASS, "b": SKIP}, {"a": FAIL})
    write_results(tmp_path / "new" / "results.json", stored)
    assert read_results(tmp_path / "new" / "results.json") == stored
    assert read_results(tmp_path / "none.json") == {}


def test_table_has_a_row_per_spec_and_the_reasons(golden: Golden) -> None:
    long = Result(state="fail", seconds=1.0, reason="expected <v1.Pod>: " + "x" * 500)
    conformance = msgspec.structs.replace(PASS, conformance=True)
    text = tables(results({"a | b": SKIP, "c": conformance, "d": PASS}, {"a | b": SKIP, "c": conformance, "d": long}))
    rows = text.splitlines()
    assert len(rows[6]) < 220
    golden(text)
    assert "SchedulerPredicates" not in text


def test_table_names_what_did_not_run_and_the_component_of_the_group(golden: Golden) -> None:
    golden(tables(results({"a": PASS}, {}, "NoExecuteTaintManager")))


def test_summary_counts_the_states() -> None:
    lines = summary(results({"a": PASS, "b": SKIP}, {"a": FAIL, "b": PASS})).splitlines()
    assert lines == [
        "kubernetes: 2 specs: 1 passed, 1 skipped, 0 failed",
        "trimtab: 2 specs: 1 passed, 0 skipped, 1 failed",
    ]


def test_failed_run_ends_the_others_with_its_message(tmp_path: Path, monkeypatch) -> None:
    fake = Runs(monkeypatch, {})

    error = LocalError("it ended without a report")

    def fail(*_: Any, **__: Any) -> dict[str, Result]:
        raise error

    monkeypatch.setattr(command, "run_group", fail)
    result = CliRunner().invoke(command.main, ["--results", str(tmp_path)])
    assert (result.exit_code, fake.asked) == (1, [])
    assert result.stderr.splitlines()[-1] == f"trimtab: {error}"


class Runs:
    """In place of clusters and the e2e binary: returns prepared results and records what was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: dict[str, dict[str, Result]]) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self._answers = answers
        monkeypatch.setattr(command, "binary", lambda _progress: Path("/e2e"))
        monkeypatch.setattr(command, "cluster_of", self.cluster_of)
        monkeypatch.setattr(command, "run_group", self.run_group)

    @staticmethod
    def cluster_of(side: str, _group: str, _directory: Path, _progress: Progress) -> Any:
        class Cluster:
            def __enter__(self) -> str:
                return side

            def __exit__(self, *_error: object) -> None:
                pass

        return Cluster()

    def run_group(self, _executable: Path, cluster: str, group: str, *, focus: str, **_: Any) -> dict[str, Result]:
        self.asked.append((cluster, group, focus))
        return self._answers[cluster]


def test_exit_status_is_0_if_all_pass_that_pass_with_kubernetes(tmp_path: Path, monkeypatch) -> None:
    fake = Runs(monkeypatch, {KUBERNETES: {"a": PASS, "b": FAIL}, TRIMTAB: {"a": PASS, "b": FAIL}})
    result = CliRunner().invoke(command.main, ["--results", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert sorted(fake.asked) == sorted((side, group, "") for side in (KUBERNETES, TRIMTAB) for group in GROUPS)
    assert "kubernetes: 12 specs: 6 passed, 0 skipped, 6 failed" in result.stdout


def test_exit_status_is_1_if_a_spec_passes_with_kubernetes_alone(tmp_path: Path, monkeypatch, golden: Golden) -> None:
    Runs(monkeypatch, {KUBERNETES: {"a": PASS}, TRIMTAB: {"a": FAIL}})
    result = CliRunner().invoke(command.main, ["--results", str(tmp_path), "--group", "LimitRange"])
    assert result.exit_code == 1
    golden(result.stderr.splitlines()[-1])


def test_sides_and_groups_are_run_one_by_one_and_compared_with_earlier_results(tmp_path: Path, monkeypatch) -> None:
    fake = Runs(monkeypatch, {KUBERNETES: {"a": PASS, "b": PASS}, TRIMTAB: {"a": PASS, "b": FAIL}})
    words = ["--results", str(tmp_path), "--group", "LimitRange", "--side"]
    assert CliRunner().invoke(command.main, [*words, KUBERNETES]).exit_code == 0, "nothing to compare yet"
    assert CliRunner().invoke(command.main, [*words, TRIMTAB]).exit_code == 1
    fake._answers[TRIMTAB] = {"b": PASS}
    assert CliRunner().invoke(command.main, [*words, TRIMTAB, "--focus", "b"]).exit_code == 0, "a's result is kept"
    assert CliRunner().invoke(command.main, [*words, TRIMTAB]).exit_code == 1, "a full run replaces all results"
    assert fake.asked[-2:] == [(TRIMTAB, "LimitRange", "b"), (TRIMTAB, "LimitRange", "")]


def test_stored_results_are_compared_and_written_to_the_page_without_a_run(tmp_path: Path, monkeypatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("# T\n\n<!-- results: made by `make conformance` -->\n\nold\n\n<!-- end of results -->\nrest\n")
    monkeypatch.setattr(command, "PAGE", page)
    monkeypatch.setattr(command, "run", lambda *_: pytest.fail("nothing runs"))
    write_results(tmp_path / "results.json", results({"a": PASS}, {"a": PASS}))
    result = CliRunner().invoke(command.main, ["--results", str(tmp_path), "--no-run", "--write-page"])
    assert result.exit_code == 0, result.output
    assert "| a | pass | pass |  |" in page.read_text()
    assert "old" not in page.read_text()


def e2e(path: Path, content: bytes | None, status: int = 0) -> Path:
    """A program in place of the e2e binary, which writes that report."""
    path.write_text(
        f"#!{sys.executable}\nimport pathlib, sys\n"
        "flags = dict(word.partition('=')[::2] for word in sys.argv[1:])\n"
        "print(' '.join(sys.argv[1:]))\n"
        + (f"pathlib.Path(flags['--ginkgo.json-report']).write_bytes({content!r})\n" if content is not None else "")
        + f"sys.exit({status})\n"
    )
    path.chmod(0o755)
    return path


def run_with(executable: Path, directory: Path, focus: str = "") -> dict[str, Result]:
    cluster: Any = SimpleNamespace(kubeconfig=Path("/kubeconfig"))
    return run_group(executable, cluster, "SchedulerPredicates", focus=focus, directory=directory, progress=Progress())


def test_failed_specs_are_results(tmp_path: Path) -> None:
    content = report(spec("validates x", "failed", PREDICATES, message="timed out"))
    found = run_with(e2e(tmp_path / "e2e", content, status=1), tmp_path / "logs", "hostPort")
    assert found == {"validates x": Result(state="fail", seconds=12.3, reason="timed out")}
    flags = (tmp_path / "logs" / "SchedulerPredicates.log").read_text().split(" --")
    assert "kubeconfig=/kubeconfig" in flags[0]
    assert r"ginkgo.focus=\[sig-[a-z]+\] SchedulerPredicates.*hostPort" in flags


def test_binary_that_ends_without_a_report_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "SchedulerPredicates.json").write_bytes(report())
    with pytest.raises(LocalError, match=r"status 7 and no report.*SchedulerPredicates\.log"):
        run_with(e2e(tmp_path / "e2e", None, status=7), tmp_path / "logs")


def test_our_side_has_no_kube_scheduler_and_no_controllers_of_taints() -> None:
    assert SCHEDULER not in REPLACED.components
    assert not REPLACED.untaints_nodes
    assert {manifest["kind"] for _, manifest in OBJECTS} == {"SchedulerPolicy", "TaintManager"}


def test_system_pods_have_the_names_that_specs_wait_for() -> None:
    """Source: ``requiredPerNodePods`` of test/e2e/framework/node/wait.go."""
    manifest = system_pods()
    for required in ("kube-proxy", "fluentd-elasticsearch", "node-problem-detector"):
        assert required in manifest["metadata"]["name"]
    assert "resources" not in manifest["spec"]["template"]["spec"]["containers"][0], "specs fill nodes exactly"


def test_module_has_the_version_of_the_control_plane() -> None:
    module = Path(runs.__file__).parent / "module" / "go.mod"
    assert f"k8s.io/kubernetes {runs._BUILD.version}\n" in module.read_text()

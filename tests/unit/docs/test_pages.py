"""Checks of the documentation: links, sample objects, commands, metrics and reason codes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from tools.generate import ROOT
from tools.generate.reference import commands, metrics, reason_codes

from tests.node_pressure_policies import node_pressure_policy
from tests.placement_admissions import placement_admission
from trimtab.api import reasons
from trimtab.api.decode import (
    decode_cluster_autoscaler,
    decode_machine_autoscaler,
    decode_node_pressure_policy,
    decode_placement_admission,
    decode_policy,
    decode_scheduler_policy,
    decode_taint_manager,
)
from trimtab.api.node_pressure_policy import NodePressurePolicySpec
from trimtab.api.placement_admission import PlacementAdmissionSpec
from trimtab.autoscaling.actuation import node_markers
from trimtab.autoscaling.groups import annotations
from trimtab.autoscaling.machine_autoscalers.annotations import COPIES
from trimtab.autoscaling.template.node_template import STARTUP_PREFIXES
from trimtab.cluster.disruption_signals import UNNEEDED_SINCE
from trimtab.descheduling.imports import FORMATS
from trimtab.kube.objects.machine import MACHINE_API
from trimtab.runtime.health.probes import MAX_SILENCE

PAGES = sorted(
    path for where in ("*", "docs/**/*", "examples/**/*", "manifests/**/*") for path in ROOT.glob(f"{where}.md")
)
OURS = "https://github.com/trimtab-dev/trimtab/blob/main/"
FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
COMMANDS = {path: command for path, command, _ in commands()}
CODES = {reason.code for reason in reason_codes()}
EVENTS_ONLY = {"Simulated"}
"""Reasons of events that are no reason codes."""


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    """The page without code blocks."""
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def blocks(language: str) -> Iterator[tuple[Path, str]]:
    for path in PAGES:
        for found in FENCE.finditer(path.read_text(encoding="utf-8")):
            if found["language"] == language:
                yield path, found["body"]


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub generates for the headings."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(path: Path) -> Iterator[str]:
    for found in LINK.finditer(prose(path)):
        target = found["target"]
        root = ROOT if target.startswith(OURS) else path.parent
        place, _, anchor = target.removeprefix(OURS).partition("#")
        if "://" in place or place.startswith("mailto:"):
            continue
        file = (root / place) if place else path
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            yield target


def offenders(find: Callable[[Path], Iterable[str]]) -> dict[str, list[str]]:
    """Findings of a check by page, without pages that have none."""
    assert len(PAGES) > 20
    return {relative(path): found for path in PAGES if (found := list(find(path)))}


def test_every_link_has_a_target() -> None:
    assert offenders(broken) == {}


def missing_files(path: Path) -> Iterator[str]:
    roots = (ROOT, ROOT / "operator/trimtab")
    for name in re.findall(
        r"`((?:operator|tests|api|cli|cluster|descheduling|disruption|kube|local|placement|runtime)/[\w./-]+)`",
        prose(path),
    ):
        # A page explains why operator/__init__.py must not exist.
        if name != "operator/__init__.py" and not any((root / name).exists() for root in roots):
            yield name


def test_every_source_file_on_a_page_exists() -> None:
    assert offenders(missing_files) == {}


def test_every_page_is_linked_from_the_index() -> None:
    docs = ROOT / "docs"
    observed, waiting = set(), [docs / "index.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in observed or not page.exists() or not page.is_relative_to(docs):
            continue
        observed.add(page)
        targets = [found["target"].partition("#")[0] for found in LINK.finditer(prose(page))]
        waiting += [page.parent / target for target in targets if target.endswith(".md") and "://" not in target]
    assert {page for page in PAGES if page.is_relative_to(docs)} == observed


def test_site_navigation_lists_every_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"([\w/-]+\.md)$", navigation, re.MULTILINE)
    pages = [str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")]
    assert sorted(listed) == sorted(pages)


POLICIES: list[Any] = [
    pytest.param(document, id=f"{relative(path)}: {document.get('metadata', document).get('name', 'no name')}")
    for path, text in blocks("yaml")
    for document in yaml.safe_load_all(text)
    if isinstance(document, dict) and document.get("kind") == "DeschedulerPolicy"
]


@pytest.mark.parametrize("document", POLICIES)
def test_sample_policies_are_valid(document: Any) -> None:
    importer = FORMATS.get((document["kind"], document["apiVersion"]))
    assert importer(document).policies if importer else decode_policy(document).name


AUTOSCALERS: dict[str, Callable[[Any], object]] = {
    "ClusterAutoscaler": decode_cluster_autoscaler,
    "MachineAutoscaler": decode_machine_autoscaler,
    "TaintManager": decode_taint_manager,
    "SchedulerPolicy": decode_scheduler_policy,
    "NodePressurePolicy": decode_node_pressure_policy,
}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(document, id=f"{relative(path)}: {document['metadata']['name']}")
        for path, text in blocks("yaml")
        for document in yaml.safe_load_all(text)
        if isinstance(document, dict) and document.get("kind") in AUTOSCALERS
    ],
)
def test_sample_autoscalers_taint_managers_and_scheduler_policies_are_valid(document: Any) -> None:
    assert AUTOSCALERS[document["kind"]](document)


def test_migration_page_shows_the_converted_policy() -> None:
    page = ROOT / "docs/tasks/migrate-from-descheduler-v1alpha2.md"
    foreign, ours = (yaml.safe_load(text) for path, text in blocks("yaml") if path == page)
    (document,) = FORMATS[foreign["kind"], foreign["apiVersion"]](foreign).documents
    assert document == ours


def test_names_of_differences_are_unique() -> None:
    page = prose(ROOT / "docs/compatibility.md")
    names = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert len(names) == len(set(names)) > 30


def test_pages_contain_sample_policies() -> None:
    assert len(POLICIES) >= 4


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(yaml.safe_load(text)["spec"], id=relative(path))
        for path, text in blocks("yaml")
        if set(yaml.safe_load(text) or ()) == {"spec"}
    ],
)
def test_sample_specs_are_valid(spec: Any) -> None:
    if set(spec) & set(PlacementAdmissionSpec.__struct_encode_fields__) - {"mode"}:
        decode_placement_admission(placement_admission(spec))
        return
    if set(spec) & set(NodePressurePolicySpec.__struct_encode_fields__) - {"mode", "nodeSelector"}:
        decode_node_pressure_policy(node_pressure_policy(spec))
        return
    whole = {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "DeschedulerPolicy",
        "metadata": {"name": "shown"},
        "spec": {"strategies": {"RemoveDuplicates": {}}, **spec},
    }
    assert decode_policy(whole).name == "shown"


def test_sample_admissions_are_valid() -> None:
    found = [document for _, text in blocks("yaml") if (document := yaml.safe_load(text) or {})]
    admissions = [each for each in found if each.get("kind") == "PlacementAdmission"]
    assert len(admissions) >= 4
    for each in admissions:
        decode_placement_admission(each)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param(*found, id=f"{found[0]}: {found[1]}")
        for found in re.findall(
            r"`(namespaces|(?:namespace|pod|node)Selector|priorityThreshold|protections|limits): (\{.+?\})`",
            (ROOT / "docs/tasks/limit-evictions.md").read_text(encoding="utf-8")
            + (ROOT / "docs/tasks/migrate-from-descheduler-v1alpha1.md").read_text(encoding="utf-8"),
        )
    ],
)
def test_inline_fields_are_valid(field: str, value: str) -> None:
    spec = {"strategies": {"RemoveDuplicates": {}}, field: yaml.safe_load(value)}
    decode_policy(
        {"apiVersion": "trimtab.dev/v1alpha1", "kind": "DeschedulerPolicy", "metadata": {"name": "x"}, "spec": spec}
    )


def shown_commands() -> Iterator[tuple[str, str]]:
    """The page and the trimtab commands in its console blocks; continuation lines are joined."""
    for path, text in blocks("console"):
        for line in text.replace("\\\n", " ").splitlines():
            for part in re.split(r"\s(?:&&|\||>|\$\()\s?", line.removeprefix("$ ") if line.startswith("$ ") else ""):
                if part.startswith("trimtab "):
                    yield relative(path), part


def is_valid(line: str) -> bool:
    """Whether the command and its options exist; a group without a command takes none."""
    words = shlex.split(line.rstrip(")"))
    command, name = COMMANDS["trimtab"], "trimtab"
    rest = words[1:]
    while rest and f"{name} {rest[0]}" in COMMANDS:
        name = f"{name} {rest.pop(0)}"
        command = COMMANDS[name]
    known = {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
    used = {word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"}
    general = {"--help", "--version"}
    return used <= (general if isinstance(command, click.Group) else known | general)


def test_every_command_on_a_page_exists_with_its_options() -> None:
    commands = list(shown_commands())
    assert len(commands) > 30
    assert [(page, line) for page, line in commands if not is_valid(line)] == []


def test_every_metric_on_a_page_exists() -> None:
    known = {metric.name for metric in metrics()}

    def unknown(path: Path) -> Iterator[str]:
        for name in re.findall(r"\btrimtab_[a-z_]+", path.read_text(encoding="utf-8")):
            if re.sub(r"_(bucket|sum|count)$", "", name) not in known:
                yield name

    assert offenders(unknown) == {}


def test_reference_lists_every_reason_once() -> None:
    page = (ROOT / "docs/reference/reasons.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    defined = {value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str)}
    assert sorted(listed) == sorted(defined)
    assert defined == CODES


@pytest.mark.parametrize("name", ["troubleshooting.md", "reference/events.md", "tasks/read-status-and-events.md"])
def test_tables_and_headings_name_existing_reasons(name: str) -> None:
    """In the first column of tables and in headings, every word in CamelCase is a reason code."""
    text = prose(ROOT / "docs" / name)
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    headings = set(re.findall(r"^### (\w+)$", text, re.MULTILINE))
    named = {code for cell in cells for code in re.findall(r"`([A-Z][a-z]+(?:[A-Z]+[a-z]*)+)`", cell)} | headings
    assert named - CODES - EVENTS_ONLY - {"Ready", "Progressing", "Degraded", "OOMKilled", "Planned"} == set()


def test_troubleshooting_has_a_section_for_every_degrading_reason() -> None:
    degrading = [reason.code for reason in reason_codes() if re.search(r"\bdegraded:", reason.meaning, re.IGNORECASE)]
    assert {"InvalidPolicy", "ClusterUnreachable", "CycleFailed", "EvictionsFailed"} <= set(degrading)
    headings = re.findall(r"^### (\w+)$", prose(ROOT / "docs/troubleshooting.md"), re.MULTILINE)
    assert set(degrading) <= set(headings)


def test_documented_numbers_equal_the_code() -> None:
    from trimtab.api.descheduler_status import MAX_COUNTS, MAX_EVICTIONS, MAX_KEPT
    from trimtab.api.descheduling_run import MAX_ACTIONS, MAX_KEPT_PODS
    from trimtab.descheduling.cycle import LONGEST_ACTING, SHORTEST_ACTING
    from trimtab.descheduling.cycle_schedule import RETRY_DELAY, STARTING_DEADLINE
    from trimtab.descheduling.runs.lifecycle import APPROVED_RUN_RETENTION
    from trimtab.disruption.executor import ExecutorSettings
    from trimtab.disruption.protections import START_GRACE
    from trimtab.kube.events.recorder import RecorderLimits
    from trimtab.runtime.leader_election.elector import ElectionTimings

    assert (LONGEST_ACTING, SHORTEST_ACTING, STARTING_DEADLINE, RETRY_DELAY) == (300, 30, 60, 30)
    assert (START_GRACE, ExecutorSettings().recovery_timeout, MAX_SILENCE) == (300, 120, 30)
    assert (MAX_KEPT, MAX_EVICTIONS, MAX_COUNTS) == (50, 20, 256)
    assert (MAX_ACTIONS, MAX_KEPT_PODS, APPROVED_RUN_RETENTION) == (500, 200, 600)
    assert (ElectionTimings().lease_duration, ElectionTimings().renew_deadline) == (15, 10)
    limits = RecorderLimits()
    assert (limits.window, limits.object_burst, limits.object_rate, limits.burst, limits.rate) == (360, 200, 1, 500, 50)


def test_reference_lists_every_annotation_of_the_autoscaler() -> None:
    keys = [
        *(f"{annotations.OPTIONS}{option}" for option in annotations.GROUP_OPTIONS),
        *(
            annotations.OWNER,
            annotations.PAUSED,
            annotations.CAPACITY,
            annotations.PRICE,
            annotations.RESERVED,
            annotations.LEARNED_NODE,
            annotations.REMOVAL_BACKOFF,
            annotations.REMOVAL_IN_PROGRESS,
            COPIES,
        ),
        *(
            MACHINE_API + "/delete-machine",
            UNNEEDED_SINCE,
            node_markers.REMOVING,
            node_markers.CORDONED_BY,
            node_markers.DELAY_DELETION,
        ),
        *STARTUP_PREFIXES[:1],
    ]
    page = (ROOT / "docs/reference/annotations.md").read_text(encoding="utf-8")
    # A row of several annotations with a common prefix abbreviates the last ones.
    text = page.replace(", `…-", f", `{annotations.OPTIONS}")
    assert [key for key in keys if key not in text] == []


def test_files_of_each_decision_exist_and_are_at_most_six() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = page.partition("## Follow one decision through the code\n")[2].partition("\n## ")[0]
    rows = [re.findall(r"`(\S+\.py)`", line) for line in section.splitlines() if line.startswith("| ")][2:]
    assert rows
    for files in rows:
        assert 0 < len(files) <= 6
        assert [each for each in files if not (ROOT / "operator/trimtab" / each).is_file()] == []

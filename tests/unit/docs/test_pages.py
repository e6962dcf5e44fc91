"""The documentation says what is so: its links lead somewhere, its policies decode, its commands and names exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from tools.generate import ROOT
from tools.generate.reference import commands, metrics, reason_codes

from trimtab.api import reasons
from trimtab.api.decode import (
    decode_cluster_autoscaler,
    decode_machine_autoscaler,
    decode_policy,
    decode_taint_manager,
)
from trimtab.autoscaling.actuation import signs
from trimtab.autoscaling.groups import annotations, keys
from trimtab.autoscaling.machine_autoscalers.capacity import COPIES
from trimtab.autoscaling.scale_down.records import UNNEEDED_SINCE
from trimtab.autoscaling.template.taints import STARTUP_PREFIXES
from trimtab.descheduling.imports.formats import FORMATS
from trimtab.kube.objects.machine import MACHINE_API
from trimtab.runtime.probes import LONGEST_SILENCE

PAGES = sorted(
    path for where in ("*", "docs/**/*", "examples/**/*", "manifests/**/*") for path in ROOT.glob(f"{where}.md")
)
OURS = "https://github.com/trimtab-dev/trimtab/blob/main/"
FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^]]*\]\((?P<target>[^)\s]+)\)")
COMMANDS = {path: command for path, command, _ in commands()}
CODES = {reason.code for reason in reason_codes()}
TOLD = {"Simulated"}
"""Events' reasons that are not reasons of a decision."""


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    """The page without its blocks of code."""
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def blocks(language: str) -> Iterator[tuple[Path, str]]:
    for path in PAGES:
        for found in FENCE.finditer(path.read_text(encoding="utf-8")):
            if found["language"] == language:
                yield path, found["body"]


def anchors(path: Path) -> set[str]:
    """What GitHub makes of the headings."""
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


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_every_link_leads_somewhere(path: Path) -> None:
    assert list(broken(path)) == []


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_every_file_of_the_code_that_is_named_is_there(path: Path) -> None:
    named = re.findall(
        r"`((?:operator|tests|api|cli|cluster|descheduling|disruption|kube|local|placement|runtime)/[\w./-]+)`",
        prose(path),
    )
    roots = (ROOT, ROOT / "operator/trimtab")
    there = {name for name in named if any((root / name).exists() for root in roots)}
    assert set(named) - there - {"operator/__init__.py"} == set()  # which must never be there


def test_every_page_can_be_reached_from_the_first_one() -> None:
    docs = ROOT / "docs"
    seen, waiting = set(), [docs / "index.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in seen or not page.exists() or not page.is_relative_to(docs):
            continue
        seen.add(page)
        targets = [found["target"].partition("#")[0] for found in LINK.finditer(prose(page))]
        waiting += [page.parent / target for target in targets if target.endswith(".md") and "://" not in target]
    assert {page for page in PAGES if page.is_relative_to(docs)} == seen


POLICIES: list[Any] = [
    pytest.param(document, id=f"{relative(path)}: {document.get('metadata', document).get('name', 'no name')}")
    for path, text in blocks("yaml")
    for document in yaml.safe_load_all(text)
    if isinstance(document, dict) and document.get("kind") == "DeschedulerPolicy"
]


@pytest.mark.parametrize("document", POLICIES)
def test_every_policy_that_is_shown_is_good(document: Any) -> None:
    importer = FORMATS.get((document["kind"], document["apiVersion"]))
    assert importer(document).policies if importer else decode_policy(document).name


AUTOSCALERS: dict[str, Callable[[Any], object]] = {
    "ClusterAutoscaler": decode_cluster_autoscaler,
    "MachineAutoscaler": decode_machine_autoscaler,
    "TaintManager": decode_taint_manager,
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
def test_every_autoscaler_and_taint_manager_that_is_shown_is_good(document: Any) -> None:
    assert AUTOSCALERS[document["kind"]](document)


def test_what_a_page_says_a_policy_becomes_is_what_it_becomes() -> None:
    page = ROOT / "docs/how-to/migrate-from-v1alpha2.md"
    foreign, ours = (yaml.safe_load(text) for path, text in blocks("yaml") if path == page)
    (document,) = FORMATS[foreign["kind"], foreign["apiVersion"]](foreign).documents
    assert document == ours


def test_every_difference_that_is_named_has_a_name_of_its_own() -> None:
    page = prose(ROOT / "docs/compatibility.md")
    names = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert len(names) == len(set(names)) > 30


def test_policies_are_shown_at_all() -> None:
    assert len(POLICIES) >= 4


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(yaml.safe_load(text)["spec"], id=relative(path))
        for path, text in blocks("yaml")
        if set(yaml.safe_load(text) or ()) == {"spec"}
    ],
)
def test_every_part_of_a_policy_that_is_shown_is_good(spec: Any) -> None:
    whole = {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "DeschedulerPolicy",
        "metadata": {"name": "shown"},
        "spec": {"strategies": {"RemoveDuplicates": {}}, **spec},
    }
    assert decode_policy(whole).name == "shown"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param(*found, id=f"{found[0]}: {found[1]}")
        for found in re.findall(
            r"`(namespaces|(?:namespace|pod|node)Selector|priorityThreshold|protections|limits): (\{.+?\})`",
            (ROOT / "docs/how-to/limit-and-protect.md").read_text(encoding="utf-8")
            + (ROOT / "docs/how-to/migrate-from-v1alpha1.md").read_text(encoding="utf-8"),
        )
    ],
)
def test_every_field_that_is_shown_in_a_line_is_good(field: str, value: str) -> None:
    spec = {"strategies": {"RemoveDuplicates": {}}, field: yaml.safe_load(value)}
    decode_policy(
        {"apiVersion": "trimtab.dev/v1alpha1", "kind": "DeschedulerPolicy", "metadata": {"name": "x"}, "spec": spec}
    )


def typed() -> Iterator[Any]:
    """What is typed in blocks of shell, lines joined that end with a backslash."""
    for path, text in blocks("console"):
        for line in text.replace("\\\n", " ").splitlines():
            for part in re.split(r"\s(?:&&|\||>|\$\()\s?", line.removeprefix("$ ") if line.startswith("$ ") else ""):
                if part.startswith("trimtab "):
                    yield pytest.param(part, id=f"{relative(path)}: {part}")


@pytest.mark.parametrize("line", list(typed()))
def test_every_command_that_is_shown_exists_with_its_options(line: str) -> None:
    words = shlex.split(line.rstrip(")"))
    command, name = COMMANDS["trimtab"], "trimtab"
    rest = words[1:]
    while rest and f"{name} {rest[0]}" in COMMANDS:
        name = f"{name} {rest.pop(0)}"
        command = COMMANDS[name]
    known = {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
    used = {word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"}
    assert used <= known | {"--help", "--version"}
    assert not isinstance(command, click.Group) or used <= {"--help", "--version"}, f"{name} needs a command"


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_every_metric_that_is_named_exists(path: Path) -> None:
    known = {metric.name for metric in metrics()}
    named = set(re.findall(r"\btrimtab_[a-z_]+", path.read_text(encoding="utf-8")))
    assert {name for name in named if re.sub(r"_(bucket|sum|count)$", "", name) not in known} == set()


def test_every_reason_is_in_the_reference_once() -> None:
    page = (ROOT / "docs/reference/reasons.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    defined = {value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str)}
    assert sorted(listed) == sorted(defined)
    assert defined == CODES


@pytest.mark.parametrize("name", ["runbook.md", "reference/events.md", "how-to/read-status-and-events.md"])
def test_the_pages_on_reasons_name_only_those_that_exist(name: str) -> None:
    """In a table's first column, or a heading: there nothing else is in CamelCase."""
    text = prose(ROOT / "docs" / name)
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    headings = set(re.findall(r"^### (\w+)$", text, re.MULTILINE))
    named = {code for cell in cells for code in re.findall(r"`([A-Z][a-z]+(?:[A-Z]+[a-z]*)+)`", cell)} | headings
    assert named - CODES - TOLD - {"Ready", "Progressing", "Degraded", "OOMKilled", "Planned"} == set()


def test_the_runbook_has_a_section_for_everything_that_degrades_a_policy() -> None:
    degrading = [reason.code for reason in reason_codes() if re.search(r"\bdegraded:", reason.meaning, re.IGNORECASE)]
    assert {"InvalidPolicy", "ClusterUnreachable", "CycleFailed", "EvictionsFailed"} <= set(degrading)
    headings = re.findall(r"^### (\w+)$", prose(ROOT / "docs/runbook.md"), re.MULTILINE)
    assert set(degrading) <= set(headings)


def test_the_numbers_that_the_pages_name_are_those_of_the_code() -> None:
    from trimtab.api.descheduler_status import MAX_COUNTS, MAX_EVICTIONS, MAX_KEPT
    from trimtab.api.descheduling_run import MAX_ACTIONS, MAX_KEPT_PODS
    from trimtab.descheduling.cycle import LONGEST_ACTING, SHORTEST_ACTING
    from trimtab.descheduling.runs.lifecycle import READING_TIME
    from trimtab.descheduling.timetable import AFTER_FAILURE, LATEST_START
    from trimtab.disruption.protections.starting_pod import START_GRACE
    from trimtab.disruption.settings import ExecutorSettings
    from trimtab.kube.events.event_series import RecorderLimits
    from trimtab.runtime.leader_election import Timings

    assert (LONGEST_ACTING, SHORTEST_ACTING, LATEST_START, AFTER_FAILURE) == (300, 30, 60, 30)
    assert (START_GRACE, ExecutorSettings().settle, LONGEST_SILENCE) == (300, 120, 30)
    assert (MAX_KEPT, MAX_EVICTIONS, MAX_COUNTS) == (50, 20, 256)
    assert (MAX_ACTIONS, MAX_KEPT_PODS, READING_TIME) == (500, 200, 600)
    assert (Timings().lease_duration, Timings().renew_deadline) == (15, 10)
    limits = RecorderLimits()
    assert (limits.window, limits.object_burst, limits.object_rate, limits.burst, limits.rate) == (360, 200, 1, 500, 50)


@pytest.mark.parametrize(
    "key",
    [
        *(f"{keys.OPTIONS}{option}" for option in annotations.GROUP_OPTIONS),
        *(keys.OWNER, keys.PAUSED, keys.CAPACITY, keys.PRICE, keys.RESERVED, keys.LEARNED_NODE, COPIES),
        *(MACHINE_API + "/delete-machine", UNNEEDED_SINCE, signs.REMOVING, signs.CORDONED_BY, signs.DELAY_DELETION),
        *STARTUP_PREFIXES[:1],
    ],
)
def test_annotations_that_the_autoscaler_heeds_or_writes_are_on_their_page(key: str) -> None:
    page = (ROOT / "docs/reference/annotations.md").read_text(encoding="utf-8")
    family = page.replace(", `…-", f", `{keys.OPTIONS}")  # the last of several with one beginning
    assert key in family

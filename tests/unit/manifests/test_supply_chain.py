"""What is built and published comes from sources that are pinned, and only jobs that must may sign or publish."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PRIVILEGES = {"packages", "id-token", "attestations", "contents", "security-events"}


def jobs(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    return found


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit(path: Path) -> None:
    used = re.findall(r"uses: (\S+)(.*)", path.read_text())
    assert used
    for action, comment in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+(\.\d+)*", comment), action


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_may_only_read_by_default(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in workflow[True]  # YAML 1.1 reads the key `on` as true
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_images_are_pinned_by_digest() -> None:
    text = (ROOT / "Dockerfile").read_text()
    images = re.findall(r"^(?:FROM|# syntax=)\s*(\S+)", text, re.MULTILINE)
    assert images
    assert all(re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", image) for image in images)
    for command in re.findall(r"pip install[^&\n\\]*(?:\\\n[^&\n\\]*)*", text):
        assert "--require-hashes" in command or "--no-deps dist/" in command, command
    assert "--no-build-isolation" in text, "what builds the package comes from the lock too"


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_locks_have_hashes(path: Path) -> None:
    requirements = re.split(r"\n(?=[a-zA-Z0-9])", path.read_text())
    pinned = [each for each in requirements if "==" in each.split("\n")[0]]
    assert pinned
    assert all("--hash=sha256:" in each for each in pinned)


def test_the_build_backend_is_locked() -> None:
    import tomllib

    lock = (ROOT / "requirements" / "build.txt").read_text()
    for project in (ROOT / "pyproject.toml", ROOT / "local" / "pyproject.toml"):
        for requirement in tomllib.loads(project.read_text())["build-system"]["requires"]:
            name = re.split(r"[<>=~ ]", requirement)[0]
            assert f"\n{name}==" in lock


def test_publishing_jobs_run_no_packages_of_an_index() -> None:
    for name, job in jobs(ROOT / ".github" / "workflows" / "release.yaml").items():
        granted = {key for key, value in job.get("permissions", {}).items() if value == "write"}
        if not granted & {"packages", "id-token", "attestations"}:
            continue
        assert job["environment"] == "release", name
        commands = "\n".join(step.get("run", "") for step in job["steps"])
        assert not re.search(r"\b(make|pip|uv|npm|go)\b", commands), name


@pytest.mark.parametrize("job", ["image", "chart"])
def test_image_and_chart_are_signed_by_digest(job: str) -> None:
    commands = [step for step in jobs(ROOT / ".github" / "workflows" / "release.yaml")[job]["steps"] if "run" in step]
    [signing] = [step for step in commands if "cosign sign" in step["run"]]
    [reference] = signing["env"].values()
    assert "@${{ steps.push.outputs.digest }}" in reference


@pytest.mark.parametrize("job", ["image", "chart", "package"])
def test_everything_that_is_published_has_provenance(job: str) -> None:
    steps = jobs(ROOT / ".github" / "workflows" / "release.yaml")[job]["steps"]
    [attested] = [step for step in steps if step.get("uses", "").startswith("actions/attest-build-provenance@")]
    if job == "package":
        assert attested["with"]["subject-path"] == "dist/*"
    else:
        assert attested["with"]["subject-digest"] == "${{ steps.push.outputs.digest }}"
        assert attested["with"]["push-to-registry"] is True


def test_image_has_an_sbom() -> None:
    steps = jobs(ROOT / ".github" / "workflows" / "release.yaml")["image"]["steps"]
    [pushed] = [step["with"] for step in steps if step.get("uses", "").startswith("docker/build-push-action@")]
    assert pushed["sbom"] is True
    assert pushed["provenance"] == "mode=max"


def test_commands_that_verify_a_release_name_the_workflow_that_signs() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    [identity] = re.findall(r"'\^https://github\.com/trimtab-dev/trimtab/(\S+)@refs/tags/v'", page)
    assert "cosign sign" in (ROOT / identity).read_text(encoding="utf-8")


def test_every_go_module_is_kept_up_to_date() -> None:
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    listed = [path for each in updates if each["package-ecosystem"] == "gomod" for path in each["directories"]]
    modules = [path.parent for part in ("local", "tests", "tools") for path in (ROOT / part).glob("**/go.mod")]
    released = [path for path in modules if path.name.startswith("kubernetes-")]  # these stay at their releases
    assert sorted(listed) == sorted(f"/{path.relative_to(ROOT)}" for path in modules if path not in released)

"""What is built and published comes from sources that are pinned, and only jobs that must may sign or publish."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tools import sbom

ROOT = Path(__file__).resolve().parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
RELEASE = ROOT / ".github" / "workflows" / "release.yaml"
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PUBLISHING_ACTIONS: Final = {
    "actions/attest",
    "actions/attest-build-provenance",
    "actions/checkout",
    "actions/download-artifact",
    "azure/setup-helm",
    "docker/login-action",
    "pypa/gh-action-pypi-publish",
    "sigstore/cosign-installer",
}
"""What a job may use that may publish or sign: actions that build nothing."""
SBOM_OF_THE_CHART: Final = 'python3 -m tools.sbom chart "$VERSION" "$DIGEST" > chart.cdx.json'


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


def granted(job: dict[str, Any]) -> set[str]:
    """The permissions of a job to write."""
    return {key for key, value in job.get("permissions", {}).items() if value == "write"}


def test_publishing_jobs_build_nothing_and_run_no_packages_of_an_index() -> None:
    """A build, also that of an image, runs what an index provides. BuildKit is an action, not a command."""
    publishing = {name: job for name, job in jobs(RELEASE).items() if granted(job)}
    assert set(publishing) == {"image", "chart", "package", "notes"}
    for name, job in publishing.items():
        assert granted(job) == {"contents"} or job["environment"] == "release", name
        used = {step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step}
        assert used <= PUBLISHING_ACTIONS, name
        commands = "\n".join(step.get("run", "") for step in job["steps"])
        assert not re.search(r"\b(make|pip|uv|npm|go|docker|buildah|buildctl) ", commands), name
        assert set(re.findall(r"\bpython3? .*", commands)) <= {SBOM_OF_THE_CHART}, name


def test_bill_of_materials_needs_only_the_standard_library() -> None:
    tree = ast.parse((ROOT / "tools" / "sbom.py").read_text())
    imported = {each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {each.partition(".")[0] for each in imported} <= sys.stdlib_module_names


def test_jobs_without_permissions_build_what_is_published() -> None:
    """What a publishing job downloads was uploaded by a job without permissions, and its digest stays the same."""
    made = {
        step["with"]["name"]: name
        for name, job in jobs(RELEASE).items()
        for step in job["steps"]
        if step.get("uses", "").startswith("actions/upload-artifact@")
    }
    assert made == {"dist": "build", "sbom": "build", "image": "build-image"}
    for name in made.values():
        assert not jobs(RELEASE)[name].get("permissions")
        assert "environment" not in jobs(RELEASE)[name]
    [push] = [step["run"] for step in jobs(RELEASE)["image"]["steps"] if step.get("id") == "push"]
    assert "skopeo copy --all --preserve-digests --digestfile digest oci-archive:image.tar " in push


@pytest.mark.parametrize(
    ("job", "digest", "compared"),
    [
        (
            "image",
            "${{ needs.build-image.outputs.digest }}",
            "found=$(skopeo inspect --raw oci-archive:image.tar | sha256sum ",
        ),
        ("package", "${{ needs.build.outputs.digests }}", "diff <(sha256sum dist/* package.cdx.json) "),
    ],
)
def test_replaced_artifact_is_neither_published_nor_signed(job: str, digest: str, compared: str) -> None:
    """Every job of a run can replace an artifact, but not the outputs of the job that built it."""
    built, output = re.fullmatch(r"\${{ needs\.(\S+)\.outputs\.(\S+) }}", digest).groups()  # type: ignore[union-attr]
    assert jobs(RELEASE)[built]["outputs"] == {output: f"${{{{ steps.build.outputs.{output} }}}}"}
    assert "build" in [step.get("id") for step in jobs(RELEASE)[built]["steps"]]
    assert built in jobs(RELEASE)[job]["needs"]

    steps = jobs(RELEASE)[job]["steps"]
    [comparing] = [step for step in steps if digest in step.get("env", {}).values()]
    assert comparing["run"].startswith(compared)
    before = steps[: steps.index(comparing)]
    assert {step["uses"].partition("@")[0] for step in before} == {"actions/download-artifact"}
    downloads = [step for step in steps if "download-artifact@" in step.get("uses", "")]
    assert all(each in before for each in downloads)


def test_comparison_detects_replaced_added_and_missing_files(tmp_path: Path) -> None:
    [make] = [step["run"] for step in jobs(RELEASE)["build"]["steps"] if step.get("id") == "build"]
    [compare] = [step["run"] for step in jobs(RELEASE)["package"]["steps"] if step.get("env", {}).get("DIGESTS")]
    names = ("dist/a.whl", "dist/a.tar.gz", "package.cdx.json")
    (tmp_path / "dist").mkdir()
    for name in names:
        (tmp_path / name).write_text(name)
    output = tmp_path / "output"
    run(make.splitlines()[-1], tmp_path, GITHUB_OUTPUT=str(output))
    [digests] = re.findall(r"^digests<<END\n(.*)\nEND\n$", output.read_text(), re.DOTALL)

    assert run(compare, tmp_path, DIGESTS=digests) == 0
    for name in names:
        (tmp_path / name).write_text("other")
        assert run(compare, tmp_path, DIGESTS=digests) != 0
        (tmp_path / name).unlink()
        assert run(compare, tmp_path, DIGESTS=digests) != 0
        (tmp_path / name).write_text(name)
    (tmp_path / "dist" / "b.whl").write_text("added")
    assert run(compare, tmp_path, DIGESTS=digests) != 0


def run(script: str, folder: Path, **env: str) -> int:
    """Run a script as a step of a workflow does."""
    command = ["bash", "-e", "-o", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env={**os.environ, **env}, capture_output=True, check=False).returncode


@pytest.mark.parametrize("job", ["image", "chart"])
def test_image_and_chart_are_signed_by_digest(job: str) -> None:
    commands = [step for step in jobs(RELEASE)[job]["steps"] if "run" in step]
    [signing] = [step for step in commands if "cosign sign" in step["run"]]
    [reference] = signing["env"].values()
    assert "@${{ steps.push.outputs.digest }}" in reference


@pytest.mark.parametrize("job", ["image", "chart", "package"])
def test_everything_that_is_published_has_provenance(job: str) -> None:
    steps = jobs(RELEASE)[job]["steps"]
    [attested] = [step for step in steps if step.get("uses", "").startswith("actions/attest-build-provenance@")]
    if job == "package":
        assert attested["with"]["subject-path"] == "dist/*"
    else:
        assert attested["with"]["subject-digest"] == "${{ steps.push.outputs.digest }}"
        assert attested["with"]["push-to-registry"] is True


def test_image_has_an_sbom() -> None:
    steps = jobs(RELEASE)["build-image"]["steps"]
    [built] = [step["with"] for step in steps if step.get("uses", "").startswith("docker/build-push-action@")]
    assert built["sbom"] is True
    assert built["provenance"] == "mode=max"
    assert built["outputs"] == "type=oci,dest=image.tar"
    assert "push" not in built


@pytest.mark.parametrize(
    ("job", "subject", "written"),
    [
        ("chart", "${{ steps.push.outputs.digest }}", SBOM_OF_THE_CHART),
        ("package", "dist/*", 'python -m tools.sbom package "$VERSION" > package.cdx.json'),
    ],
)
def test_chart_and_package_have_an_sbom(job: str, subject: str, written: str) -> None:
    attested = [
        step["with"] for step in jobs(RELEASE)[job]["steps"] if step.get("uses", "").startswith("actions/attest@")
    ]
    assert [each["sbom-path"] for each in attested] == [f"{job}.cdx.json"]
    assert subject in attested[0].values()
    assert written in RELEASE.read_text()


def test_bill_of_the_package_lists_what_the_lock_pins(capsys: pytest.CaptureFixture[str]) -> None:
    assert sbom.main(["package", "1.2.3"]) == 0
    made = json.loads(capsys.readouterr().out)
    pinned = re.findall(r"^(\S+)==(\S+)", (ROOT / "requirements" / "image.txt").read_text(), re.MULTILINE)
    assert [(each["name"], each["version"]) for each in made["components"]] == pinned
    assert made["metadata"]["component"]["purl"] == "pkg:pypi/trimtab@1.2.3"
    assert made["dependencies"][0]["dependsOn"] == [f"pkg:pypi/{name}@{version}" for name, version in pinned]
    assert {"bomFormat", "serialNumber", "specVersion"} <= set(made), "actions/attest knows the format by these"


def test_bill_of_the_chart_lists_the_image_by_digest(capsys: pytest.CaptureFixture[str]) -> None:
    assert sbom.main(["chart", "1.2.3", "sha256:0123"]) == 0
    [image] = json.loads(capsys.readouterr().out)["components"]
    assert image["type"] == "container"
    assert image["purl"].startswith("pkg:oci/trimtab@sha256%3A0123?")


def test_known_vulnerabilities_are_looked_up_for_all_locks_and_modules() -> None:
    steps = jobs(ROOT / ".github" / "workflows" / "security.yaml")["dependencies"]["steps"]
    [scan] = [step["with"]["scan-args"].split() for step in steps if "osv-scanner-action@" in step.get("uses", "")]
    locks = [each.rpartition(":")[2] for each in scan if each.startswith("--lockfile=")]
    assert sorted(locks) == [f"requirements/{path.name}" for path in LOCKS]
    assert sorted(each for each in scan if not each.startswith("-")) == go_modules()


def test_commands_that_verify_a_release_name_the_workflow_that_signs() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    [identity] = re.findall(r"'\^https://github\.com/trimtab-dev/trimtab/(\S+)@refs/tags/v'", page)
    assert "cosign sign" in (ROOT / identity).read_text(encoding="utf-8")


def go_modules() -> list[str]:
    """The directories of the Go modules, sorted; those named ``kubernetes-*`` stay at old releases on purpose."""
    modules = [path.parent for part in ("local", "tests", "tools") for path in (ROOT / part).glob("**/go.mod")]
    return sorted(str(each.relative_to(ROOT)) for each in modules if not each.name.startswith("kubernetes-"))


def test_every_go_module_is_kept_up_to_date() -> None:
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    listed = [path for each in updates if each["package-ecosystem"] == "gomod" for path in each["directories"]]
    assert sorted(listed) == [f"/{each}" for each in go_modules()]

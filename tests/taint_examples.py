"""What examples/dedicated-nodes and examples/special-hardware hold, for tests of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from trimtab.kube.wire.files.strict_yaml import load_all

ROOT: Final = Path(__file__).parents[1] / "examples"
DEDICATED: Final = ROOT / "dedicated-nodes"
HARDWARE: Final = ROOT / "special-hardware"


def documents(*paths: Path) -> list[dict[str, Any]]:
    """The objects of files, or of all files of a folder, in the order in which kubectl reads them."""
    files = [each for path in paths for each in (sorted(path.glob("*.yaml")) if path.is_dir() else [path])]
    return [found for path in files for found in load_all(path.read_bytes())]


def of_kind(kind: str, *paths: Path) -> dict[str, dict[str, Any]]:
    """The objects of one kind by name."""
    return {each["metadata"]["name"]: each for each in documents(*paths) if each["kind"] == kind}


def pods_of(deployment: dict[str, Any], number: int | None = None) -> Iterator[dict[str, Any]]:
    """The Deployment's pods as they wait for nodes."""
    spec, metadata = deployment["spec"], deployment["metadata"]
    for each in range(spec["replicas"] if number is None else number):
        name = f"{metadata['name']}-{each}"
        template = spec["template"]
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **template["metadata"],
                "name": name,
                "namespace": metadata["namespace"],
                "uid": f"uid-{name}",
            },
            "spec": template["spec"],
            "status": {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
            },
        }

"""Prints a software bill of materials in CycloneDX's JSON format.

``python -m tools.sbom package VERSION`` lists the locked dependencies of the Python package.
``python -m tools.sbom chart VERSION DIGEST`` lists the image that the Helm chart installs.

The module uses only the standard library, because jobs that may sign a release run nothing from a package index.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
LOCK: Final = ROOT / "requirements" / "image.txt"
IMAGE: Final = "ghcr.io/trimtab-dev/trimtab"

_PINNED: Final = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)

Component = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    """Print the bill; returns the exit status."""
    match arguments:
        case ["package", version]:
            made = bill(component("library", "trimtab", version, f"pkg:pypi/trimtab@{version}"), dependencies())
        case ["chart", version, digest]:
            image = f"pkg:oci/trimtab@{digest.replace(':', '%3A')}?repository_url={IMAGE}&tag={version}"
            chart = component("application", "trimtab-chart", version, f"pkg:generic/trimtab-chart@{version}")
            made = bill(chart, [component("container", "trimtab", version, image)])
        case _:
            print("usage: python -m tools.sbom package VERSION | chart VERSION DIGEST", file=sys.stderr)
            return 2
    print(json.dumps(made, indent=2))
    return 0


def bill(subject: Component, components: Sequence[Component]) -> dict[str, Any]:
    """Return the bill of a component that depends on others. The same content has the same serial number."""
    content = {
        "metadata": {"component": subject},
        "components": list(components),
        "dependencies": [{"ref": subject["bom-ref"], "dependsOn": [each["bom-ref"] for each in components]}],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return {**head, **content}


def component(kind: str, name: str, version: str, purl: str) -> Component:
    """Return a component with its package URL, which is also its reference in the bill."""
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}


def dependencies() -> list[Component]:
    """Return the dependencies that the lock of the image pins, which are those of the package."""
    found = _PINNED.findall(LOCK.read_text())
    return [component("library", name, version, f"pkg:pypi/{name}@{version}") for name, version in found]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

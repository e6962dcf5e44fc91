"""Builds the documentation site into site/: ``python -m tools.site``, or ``make docs``.

The theme loads Mermaid, which draws the diagrams, from a content delivery network. The site must not load anything from
other servers, so the build fetches Mermaid's npm package, verifies it, and adds the script to the site.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SCRIPT: Final = ROOT / "docs/javascripts/mermaid.min.js"
"""Where the build stores the script. Git ignores the file."""

PACKAGE: Final = "mermaid@12.3.0"
PACKAGE_SHA512: Final = "4113TdXeLAsMruJ79OpFL5O8+LTFXhQqZ260rF3tgUmiNAtRm4Uume04I+65PRN6yZ69J4f8rVYWW8zRk65UYw=="
"""SHA-512 of the package in Base64, as in ``npm view mermaid dist.integrity``."""
SCRIPT_SHA256: Final = "336df803d87a38b70a01e736e666c8f7601d2ce42f5e47c8fafe5d721074b9a3"


def fetch_mermaid() -> None:
    """Store Mermaid's script at :data:`SCRIPT`, unless it is there.

    Raises:
        subprocess.CalledProcessError: npm failed.
        ValueError: the package has another digest.
    """
    if SCRIPT.exists() and hashlib.sha256(SCRIPT.read_bytes()).hexdigest() == SCRIPT_SHA256:
        return
    with tempfile.TemporaryDirectory() as directory:
        packed = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", directory, PACKAGE]
        subprocess.run(packed, check=True, stdout=subprocess.DEVNULL)
        [package] = Path(directory).iterdir()
        digest = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
        if digest != PACKAGE_SHA512:
            raise ValueError(f"{PACKAGE} has SHA-512 {digest}, not {PACKAGE_SHA512}")
        with tarfile.open(package) as archive:
            script = archive.extractfile("package/dist/mermaid.min.js")
            assert script is not None
            SCRIPT.parent.mkdir(exist_ok=True)
            SCRIPT.write_bytes(script.read())


def main() -> int:
    """Fetch Mermaid, then build the site. A broken link or anchor is an error."""
    fetch_mermaid()
    return subprocess.run(["zensical", "build", "--strict", "--config-file", "mkdocs.yml"], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())

"""Builds a kube-apiserver whose metric of webhook durations has finer buckets, for ``benchmarks/admission.py``.

    python benchmarks/finer_buckets.py DIRECTORY
    KUBEBUILDER_ASSETS=DIRECTORY python benchmarks/admission.py

The buckets of ``apiserver_admission_webhook_admission_duration_seconds`` end at 5, 25 and 100 ms, so a quantile between
5 and 25 ms is interpolated. The program is built from the same modules as that of ``trimtab local``; only the bounds of
this histogram differ.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "operator"), str(ROOT / "local")]

from trimtab_local.binaries import find_go  # noqa: E402
from trimtab_local.progress import Progress, for_terminal  # noqa: E402
from trimtab_local.versions import APISERVER, DEFAULT_VERSION, release  # noqa: E402

MODULE: Final = "k8s.io/apiserver"
METRICS: Final = "pkg/admission/metrics/metrics.go"
BOUNDS: Final = "{0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10, 25}"
"""The bounds in the source, in seconds."""
FINER: Final = (
    "{0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.007, 0.008, 0.009, 0.01, 0.0125, 0.015, 0.02, 0.025, 0.05, 0.1, 0.5, "
    "1.0, 2.5, 10, 25}"
)


def build(target: Path, progress: Progress) -> None:
    """Build the program into a directory.

    Raises:
        LocalError: Go is missing.
        subprocess.CalledProcessError: the build failed.
        ValueError: the source has other bounds.
    """
    go, wanted = find_go(progress), release(DEFAULT_VERSION).builds[APISERVER]
    environment = os.environ | {"GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-mod=readonly"}
    with tempfile.TemporaryDirectory(prefix="trimtab-finer-") as made:
        module, changed = Path(made) / "module", Path(made) / "apiserver"
        shutil.copytree(ROOT / "local" / "trimtab_local" / "modules" / wanted.module, module)

        def run(*arguments: str | Path) -> str:
            command = [go, *arguments]
            return subprocess.run(
                command, cwd=module, env=environment, check=True, text=True, stdout=subprocess.PIPE
            ).stdout

        run("mod", "download", MODULE)
        shutil.copytree(run("list", "-m", "-f", "{{.Dir}}", MODULE).strip(), changed)
        metrics = changed / METRICS
        source = metrics.read_text()
        if source.count(BOUNDS) != 1:
            raise ValueError(f"{METRICS} of {MODULE} does not contain the bounds {BOUNDS} once")
        for path in (metrics.parent, metrics):
            path.chmod(0o755)  # files in the cache of modules are read-only
        metrics.write_text(source.replace(BOUNDS, FINER))
        run("mod", "edit", f"-replace={MODULE}={changed}")
        with progress.task(f"building {APISERVER} {wanted.version} with finer buckets"):
            run("build", "-trimpath", "-ldflags", wanted.ldflags, "-o", target.absolute() / APISERVER, wanted.package)


def main() -> None:
    """Parse the directory and build the program into it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the program is written")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    build(options.directory, for_terminal())


if __name__ == "__main__":
    main()

"""``python -m trimtab_local.guard NAME DIRECTORY``: stops a cluster when the process that started it has ended.

The parent holds the write end of the guard's standard input. When the parent ends for any reason, including SIGKILL,
the kernel closes that end. The guard reads the end of file and does the same as ``down``. ``PR_SET_PDEATHSIG`` would be
shorter, but it depends on the *thread* that started a child, requires code between fork and exec, and does not stop the
components in order.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trimtab_local.processes import Process, start


def launch(name: str, directory: Path, *, log: Path) -> tuple[Process, int]:
    """Start the guard of the cluster ``name`` in ``directory``.

    Returns:
        The guard, and the file descriptor that must stay open while the cluster is needed.
    """
    reading, writing = os.pipe()
    try:
        argv = [sys.executable, "-m", "trimtab_local.guard", name, str(directory)]
        environment = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        return start(argv, log=log, environment=environment, stdin=reading), writing
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)


def main() -> None:
    """Wait for the end of standard input, then stop the cluster."""
    name, directory = sys.argv[1:]
    while os.read(0, 4096):
        pass
    from trimtab_local.cluster import LocalCluster

    LocalCluster(name, directory=Path(directory)).down()


if __name__ == "__main__":
    main()

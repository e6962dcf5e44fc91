"""``python -m trimtab.local.guard NAME DIRECTORY``: stops a cluster when the process that started it is gone.

The parent holds the other end of our standard input. When it ends in whatever way, also by SIGKILL, the system closes
that end, we read the end of file, and do what ``down`` does. ``PR_SET_PDEATHSIG`` would be shorter, but it is bound to
the *thread* that started a child, needs code between fork and exec, and kills without an order.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trimtab.local.processes import Process, start


def launch(name: str, directory: Path, *, log: Path) -> tuple[Process, int]:
    """Start the guard of cluster ``name`` in ``directory``.

    Returns:
        The guard, and the descriptor to keep open as long as the cluster is wanted.
    """
    reading, writing = os.pipe()
    try:
        argv = [sys.executable, "-m", "trimtab.local.guard", name, str(directory)]
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
    from trimtab.local.cluster import LocalCluster

    LocalCluster(name, directory=Path(directory)).down()


if __name__ == "__main__":
    main()

"""The Go program at both ends of the webhooks that ``benchmarks/admission.py`` measures.

It sends the requests, and it is the webhook that decides nothing. It is built as the local control plane's components
are.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from trimtab_local.binaries import Builder
from trimtab_local.progress import PlainProgress
from trimtab_local.versions import Build

NAME: Final = "admission-probe"

_BUILD: Final = Build(module="module", package=".", version="v1")


class Quantiles(Struct, frozen=True):
    """Quantiles of the durations of a step in milliseconds, as the program measured them."""

    p50: float = 0.0
    p99: float = 0.0
    max: float = 0.0


class Load(Struct, frozen=True):
    """What the program sent.

    Attributes:
        completed: number of sequences whose requests succeeded.
        errors: number of failed requests by message.
        late: number of sequences that began more than 20 ms after their time.
        seconds: duration of the load.
        cpu: CPU seconds that the program used.
        quantiles: the durations of each step.
    """

    completed: int
    errors: dict[str, int]
    late: int
    seconds: float
    cpu: float
    quantiles: tuple[Quantiles, ...]


def build() -> Path:
    """Return the program. If it is not cached, it is built, which takes a minute.

    Raises:
        LocalError: it cannot be built.
    """
    builder = Builder(progress=PlainProgress(sys.stderr), builds={NAME: _BUILD}, modules=Path(__file__).parent)
    return builder.ensure([NAME])[NAME]


def webhook_command(probe: Path, port: int, keys: Path, *, patches: Path, record: Path | None = None) -> list[str]:
    """Return the command of the webhook that decides nothing.

    Args:
        probe: the program.
        port: the port to listen on.
        keys: the directory with ``serving.crt`` and ``serving.key``.
        patches: the JSON file with the patches of the responses, in base64, by webhook and template, for example
            ``mutate-fail.t7``. The template is the second part of a pod's name: ``LOAD-TEMPLATE-NUMBER``.
        record: the directory to write the first request of each webhook and template to, as ``WEBHOOK.TEMPLATE.json``.
    """
    command = [str(probe), "webhook", f"-listen=127.0.0.1:{port}"]
    command += [f"-cert={keys / 'serving.crt'}", f"-key={keys / 'serving.key'}"]
    command += [f"-patches={patches}"]
    return [*command, f"-record={record}"] if record else command


async def send(
    probe: Path,
    steps: Sequence[tuple[str, Sequence[Any]]],
    *,
    ca: Path,
    rate: float,
    seconds: float,
    most: int,
    headers: Mapping[str, str],
    nice: int = 0,
) -> Load:
    """Send sequences of POST requests at a constant rate, whether earlier ones have been answered or not.

    Args:
        probe: the program.
        steps: URL and bodies of each request of a sequence. Sequences use the bodies by turns. ``@n`` in a body is
            replaced by the number of the sequence.
        ca: the file with the certificate authority of the servers.
        rate: sequences per second.
        seconds: duration.
        most: maximum number of sequences at the same time.
        headers: header fields of each request.
        nice: niceness of the program.
    """
    plan = {
        "steps": [{"url": url, "bodies": bodies} for url, bodies in steps],
        "headers": headers,
        "ca": str(ca),
        "rate": rate,
        "seconds": seconds,
        "most": most,
    }
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(("nice", "-n", str(nice)) if nice else ()), probe, "load", stdin=pipe, stdout=pipe
    )
    output, _ = await process.communicate(msgspec.json.encode(plan))
    if process.returncode:
        raise RuntimeError(f"{NAME} load failed with exit code {process.returncode}")
    return msgspec.json.decode(output, type=Load)

"""The command line of benchmarks that run the operator live."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

Result = dict[str, Any]
Benchmark = Callable[[argparse.Namespace], Result]


def parser(doc: str | None, benchmarks: Mapping[str, Benchmark]) -> argparse.ArgumentParser:
    """What all of them can be told; the caller adds its own.

    Args:
        doc: the module's; its first paragraph says what it is about.
        benchmarks: by name.
    """
    made = argparse.ArgumentParser(description=(doc or "").split("\n\n")[0])
    made.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(benchmarks)}; all without one")
    made.add_argument("--json", action="store_true", help="one JSON object a line")
    return made


def measure(made: argparse.ArgumentParser, benchmarks: Mapping[str, Benchmark]) -> None:
    """Measure those that were asked for, and print."""
    options = made.parse_args()
    unknown = sorted(set(options.names) - set(benchmarks))
    if unknown:
        made.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(benchmarks)}")
    for name in options.names or benchmarks:
        result = {"name": name, **benchmarks[name](options)}
        print(json.dumps(result) if options.json else _told(result), flush=True)


def _told(result: Result) -> str:
    lines = [
        f"{result['name']}: {result['seconds']} s, operator {result['peak_rss_mb']} MB; load {os.getloadavg()[0]:.1f}"
    ]
    return "\n".join([*lines, *(f"  {key}: {value}" for key, value in result["params"].items())])

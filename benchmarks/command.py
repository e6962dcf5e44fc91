"""The command line of benchmarks that run the operator on a live cluster."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

Result = dict[str, Any]
Benchmark = Callable[[argparse.Namespace], Result]


def parser(doc: str | None, benchmarks: Mapping[str, Benchmark]) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have. The caller adds its own.

    Args:
        doc: the docstring of the module. Its first paragraph is the description.
        benchmarks: the benchmarks by name.
    """
    made = argparse.ArgumentParser(description=(doc or "").split("\n\n")[0])
    made.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(benchmarks)}; all without one")
    made.add_argument("--json", action="store_true", help="one JSON object a line")
    return made


def measure(made: argparse.ArgumentParser, benchmarks: Mapping[str, Benchmark]) -> None:
    """Run the selected benchmarks and print their results."""
    options = made.parse_args()
    unknown = sorted(set(options.names) - set(benchmarks))
    if unknown:
        made.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(benchmarks)}")
    for name in options.names or benchmarks:
        result = {"name": name, **benchmarks[name](options)}
        print(json.dumps(result) if options.json else _format_result(result), flush=True)


def _format_result(result: Result) -> str:
    lines = [
        f"{result['name']}: {result['seconds']} s, operator {result['peak_rss_mb']} MB; load {os.getloadavg()[0]:.1f}"
    ]
    return "\n".join([*lines, *(f"  {key}: {value}" for key, value in result["params"].items())])

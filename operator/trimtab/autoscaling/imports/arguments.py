"""Reads the command line of cluster-autoscaler from workloads, as Go's flag packages do.

For example::

    containers:
      - image: registry.k8s.io/autoscaling/cluster-autoscaler:v1.33.0
        command: [./cluster-autoscaler, --cloud-provider=clusterapi, --scale-down-unneeded-time=5m]
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api.differences import HIGH, MEDIUM, Difference
from trimtab.autoscaling.imports.flags import CURRENT, FLAGS, REMOVED
from trimtab.kube.errors import InputError

BINARY: Final = "cluster-autoscaler"
_ARCHITECTURES: Final = ("amd64", "arm64", "arm", "s390x", "ppc64le")
_VERSION: Final = re.compile(r"v?(1)\.([0-9]{1,3})(?:[.+-].*)?")
_REFERENCE: Final = re.compile(r"\$\(([^()$]+)\)")
_SHORTHAND: Final = re.compile(r"-v([0-9]+)")
_SHELL_END: Final = re.compile(r"[0-9]*>.*|[|;&]+")


NOT_RUNNING: Final = "is 0, so cluster-autoscaler does not run at present"


class CommandLine(Struct, frozen=True):
    """The command line of cluster-autoscaler in a document.

    Attributes:
        values: the values of each flag, in order. A flag that is not repeatable may have several; the last one counts.
        version: major and minor version of the release; ``None`` if it is unknown.
        namespace: the namespace that cluster-autoscaler runs in.
        notes: arguments that were not understood.
        architecture: the environment variable CAPI_SCALE_ZERO_DEFAULT_ARCH; empty if it is not set.
    """

    values: Mapping[str, tuple[str, ...]]
    version: tuple[int, int] | None = None
    namespace: str = ""
    notes: tuple[Difference, ...] = ()
    architecture: str = ""

    def last(self, name: str) -> str | None:
        """Return the value that counts, or ``None`` if the flag is not given."""
        values = self.values.get(name)
        return values[-1] if values else None


def read_workload(manifest: Mapping[str, Any]) -> CommandLine | None:
    """Return the command line in a Pod or in a workload with a pod template; ``None`` if none runs cluster-autoscaler.

    Raises:
        InputError: several containers run cluster-autoscaler.
    """
    found = [container for container in _containers(manifest) if is_autoscaler(container)]
    if not found:
        return None
    if len(found) > 1:
        raise InputError(f"{len(found)} containers run {BINARY}", object=_label(manifest))
    container = found[0]
    metadata = manifest.get("metadata")
    namespace = metadata.get("namespace") if isinstance(metadata, Mapping) else None
    arguments = [*_strings(container.get("command")), *_strings(container.get("args"))]
    notes: list[Difference] = []
    spec = manifest.get("spec")
    if isinstance(spec, Mapping) and spec.get("replicas") == 0:
        notes.append(Difference("spec.replicas", NOT_RUNNING, MEDIUM))
    resolved = [_resolve(text, container, notes) for text in arguments]
    line = parse_arguments(
        _without_shell(resolved), version=image_version(container.get("image")), namespace=namespace or "", notes=notes
    )
    return replace(line, architecture=_environment(container).get("CAPI_SCALE_ZERO_DEFAULT_ARCH", ""))


def parse_arguments(
    arguments: Sequence[str],
    *,
    version: tuple[int, int] | None = None,
    namespace: str = "",
    notes: Sequence[Difference] = (),
) -> CommandLine:
    """Parse arguments. Unknown flags and other arguments are reported in ``notes``.

    Args:
        arguments: the arguments, with or without the name of the binary.
        version: the release.
        namespace: the namespace that cluster-autoscaler runs in.
        notes: arguments that were not understood before.

    Raises:
        InputError: a flag has no value.
    """
    values: dict[str, list[str]] = {}
    noted = list(notes)
    rest = iter(arguments)
    for number, text in enumerate(rest):
        if not text.startswith("-") or text == "-":
            if number or text.rpartition("/")[2] != BINARY:
                noted.append(Difference(text or "''", "is not a flag; ignored", MEDIUM))
            continue
        if text == "--":
            break
        shorthand = _SHORTHAND.fullmatch(text)
        name, equals, value = ("v", "=", shorthand[1]) if shorthand else text.lstrip("-").partition("=")
        name = name.replace("_", "-")
        flag = FLAGS.get(name) or REMOVED.get(name)
        if flag is None:
            noted.append(Difference(f"--{name}", "is not a flag of cluster-autoscaler from 1.20 on; ignored", HIGH))
            continue
        if not equals:
            value = "true" if flag.type == "bool" else next(rest, "")
            if not value:
                raise InputError("has no value", field=f"--{name}")
        values.setdefault(name, []).append(value)
    return CommandLine({name: tuple(each) for name, each in values.items()}, version, namespace, tuple(noted))


def image_version(image: object) -> tuple[int, int] | None:
    """Return major and minor version of the release in an image's tag; ``None`` if the tag has none."""
    tag = str(image or "").partition("@")[0].rpartition("/")[2].partition(":")[2]
    found = _VERSION.fullmatch(tag)
    return (int(found[1]), int(found[2])) if found else None


def assumed_version(line: CommandLine) -> tuple[int, int]:
    """Return the release whose defaults apply: the current one if the release is unknown or newer."""
    return min(line.version or CURRENT, CURRENT)


def is_autoscaler(container: Mapping[str, Any]) -> bool:
    """Return whether a container runs cluster-autoscaler, by its command or its image."""
    command = _strings(container.get("command"))
    if any(word.rpartition("/")[2] == BINARY for text in command for word in text.split()):
        return True
    image = str(container.get("image") or "").partition("@")[0].rpartition("/")[2].partition(":")[0]
    return not command and image in (BINARY, *(f"{BINARY}-{each}" for each in _ARCHITECTURES))


def _containers(manifest: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    spec = manifest.get("spec")
    template = spec.get("template") if isinstance(spec, Mapping) else None
    pod = template.get("spec") if isinstance(template, Mapping) else spec
    containers = pod.get("containers") if isinstance(pod, Mapping) else None
    for each in containers if isinstance(containers, Sequence) and not isinstance(containers, str) else ():
        if isinstance(each, Mapping):
            yield each


def _strings(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list | tuple) else []


def _resolve(text: str, container: Mapping[str, Any], notes: list[Difference]) -> str:
    """Replace references to environment variables, as the kubelet does."""
    known = _environment(container)
    unknown = (name for name in _REFERENCE.findall(text) if name not in known)
    flag = text.partition("=")[0]
    notes += [Difference(flag, f"refers to {name}, whose value is not in the document", HIGH) for name in unknown]
    return _REFERENCE.sub(lambda match: known.get(match[1], match[0]), text)


def _environment(container: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables whose values are in the document."""
    env = container.get("env")
    return {
        str(each.get("name")): str(each["value"])
        for each in (env if isinstance(env, list) else ())
        if isinstance(each, Mapping) and each.get("value") is not None
    }


def _without_shell(arguments: list[str]) -> list[str]:
    """Return the arguments of cluster-autoscaler if a shell starts it: ``sh -c "cluster-autoscaler --v=4 2>&1"``."""
    script = next((text for text in arguments if " --" in text and BINARY in text.split(" --")[0]), None)
    if script is None:
        return arguments
    try:
        words = shlex.split(script)
    except ValueError as error:
        raise InputError(f"the shell command cannot be read: {error}", field="command") from None
    start = next((at for at, word in enumerate(words) if word.rpartition("/")[2] == BINARY), 0)
    found = []
    for word in words[start:]:
        if _SHELL_END.fullmatch(word):
            break
        found.append(word)
    return found


def _label(manifest: Mapping[str, Any]) -> str:
    metadata = manifest.get("metadata")
    named = metadata if isinstance(metadata, Mapping) else {}
    return "/".join(str(each) for each in (manifest.get("kind"), named.get("namespace"), named.get("name")) if each)

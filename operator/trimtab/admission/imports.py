"""Converts the admission configuration of OpenShift 3.11 and of kube-apiserver to a PlacementAdmission.

    admissionConfig:                      # master-config.yaml, also below kubernetesMasterConfig
      pluginConfig:
        PodNodeConstraints:
          configuration: {apiVersion: v1, kind: PodNodeConstraintsConfig, nodeSelectorLabelBlacklist: [region]}

    apiVersion: apiserver.config.k8s.io/v1
    kind: AdmissionConfiguration
    plugins: [{name: PodNodeSelector, path: podnodeselector.yaml}]

Files to which a configuration refers are documents as well, so they can be converted together with it. Mistakes in the
published examples are corrected, with a warning for each. Unknown keys of a placement plugin are errors, because a
misspelt key would otherwise be a missing restriction. Plugins that do not concern placement are reported and ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from trimtab.api.placement_admission import parse_node_selector
from trimtab.api.schema import FieldError
from trimtab.kube.errors import InputError

MASTER: Final = ("MasterConfig", "v1")
API_SERVER: Final = ("AdmissionConfiguration", "apiserver.config.k8s.io/v1")
TOLERATION_RESTRICTION: Final = ("Configuration", "podtolerationrestriction.admission.k8s.io/v1alpha1")
KINDS: Final = (MASTER, API_SERVER, TOLERATION_RESTRICTION)

_ADMISSION: Final = "admissionConfig"
_KUBERNETES: Final = "kubernetesMasterConfig"
_PROJECTS: Final = "projectConfig"
_SELECTORS: Final = "podNodeSelectorPluginConfig"
_DEFAULT_SELECTOR: Final = "clusterDefaultNodeSelector"
_MASTER_KEYS: Final = (_ADMISSION, _KUBERNETES, _PROJECTS)

_DISABLED: Final = "disable is true, so the plugin does not run; ignored"

Block = dict[str, Any]


class ImportedAdmission(Struct, frozen=True):
    """What one document configures.

    Attributes:
        blocks: the fields of the spec of a PlacementAdmission, by name.
        warnings: a message for each setting that was corrected or ignored.
    """

    blocks: Mapping[str, Block]
    warnings: tuple[FieldError, ...] = ()


def read_admission(manifest: Mapping[str, Any], *, source: str = "") -> ImportedAdmission | None:
    """Read an admission configuration; return ``None`` if the document is something else.

    Raises:
        InputError: the configuration is invalid. The message names the field.
    """
    reader = _Reader(str(manifest.get("kind") or _ADMISSION), source)
    kind = (manifest.get("kind"), manifest.get("apiVersion"))
    if kind == API_SERVER:
        reader.read_api_server(manifest)
    elif kind == TOLERATION_RESTRICTION:
        reader.toleration_restriction(manifest, "")
    elif kind == MASTER or (manifest.get("kind") is None and any(key in manifest for key in _MASTER_KEYS)):
        reader.read_master(manifest)
    elif manifest.get("kind") is None and _SELECTORS in manifest:
        reader.node_selector(manifest, "")
    else:
        return None
    return ImportedAdmission(reader.blocks, tuple(reader.warnings))


def merge_blocks(first: Mapping[str, Block], second: Mapping[str, Block]) -> dict[str, Block]:
    """Return the blocks of two documents together.

    Raises:
        InputError: both documents set a field to different values.
    """
    merged = {name: dict(block) for name, block in first.items()}
    for name, block in second.items():
        known = merged.setdefault(name, {})
        for key, value in block.items():
            if known.get(key, value) != value:
                raise InputError("is set to different values in two documents", field=f"spec.{name}.{key}")
            known[key] = value
    return merged


class _Reader:
    """Reads one document, and collects the blocks of the spec and the warnings."""

    def __init__(self, kind: str, source: str) -> None:
        self.blocks: dict[str, Block] = {}
        self.warnings: list[FieldError] = []
        self._kind = kind
        self._source = source
        self._plugins: Mapping[str, Callable[[Mapping[str, Any], str], None]] = {
            "PodNodeConstraints": self._node_constraints,
            "PodNodeSelector": self.node_selector,
            "DefaultTolerationSeconds": self._without_settings("defaultTolerationSeconds"),
            "PodTolerationRestriction": self.toleration_restriction,
            "ExtendedResourceToleration": self._without_settings("extendedResourceToleration"),
            "OriginPodNodeEnvironment": self._without_settings("podNodeSelector"),
        }

    # ── The documents ───────────────────────────────────────────────────────────────────────────────────────────────

    def read_master(self, manifest: Mapping[str, Any]) -> None:
        """Read OpenShift's master-config.yaml, or a part of it. Other sections do not concern admission."""
        off: set[str] = set()
        self._master_plugins(manifest.get(_ADMISSION), _ADMISSION, off)
        kubernetes = self._mapping(manifest.get(_KUBERNETES), _KUBERNETES)
        self._master_plugins(kubernetes.get(_ADMISSION), f"{_KUBERNETES}.{_ADMISSION}", off)
        self._api_server_arguments(kubernetes.get("apiServerArguments"))
        projects = self._mapping(manifest.get(_PROJECTS), _PROJECTS)
        self._project_selector(projects.get("defaultNodeSelector"), complete=manifest.get("kind") is not None, off=off)

    def _master_plugins(self, config: Any, place: str, off: set[str]) -> None:
        config = self._known(config, place, ("pluginConfig", "pluginOrderOverride"))
        if config.get("pluginOrderOverride"):
            self._warn(f"{place}.pluginOrderOverride", "is ignored: the rules have a fixed order")
        plugins = self._mapping(config.get("pluginConfig"), f"{place}.pluginConfig")
        for name, plugin in plugins.items():
            at = f"{place}.pluginConfig.{name}"
            if not self._concerns_placement(name, at):
                continue
            plugin = self._known(plugin, at, ("configuration", "location"))
            if self._plugin(str(name), plugin.get("configuration"), plugin.get("location"), at, "location"):
                off.add(str(name))

    def _project_selector(self, text: Any, *, complete: bool, off: set[str]) -> None:
        """Add the default node selector of projects, which the plugin OriginPodNodeEnvironment of OpenShift applies."""
        place = f"{_PROJECTS}.defaultNodeSelector"
        if "OriginPodNodeEnvironment" in off:
            if text:
                self._warn(place, "is ignored, because OriginPodNodeEnvironment is disabled")
            return
        if text:
            pairs = self._selector(text, place)
            known = self.blocks.get("podNodeSelector", {}).get(_DEFAULT_SELECTOR, "")
            for key, value in parse_node_selector(known).items():
                if pairs.setdefault(key, value) != value:
                    raise self._error(place, f"conflicts with {_DEFAULT_SELECTOR} of PodNodeSelector: {key}={value}")
            joined = ",".join(f"{key}={value}" for key, value in pairs.items())
            self._add("podNodeSelector", {_DEFAULT_SELECTOR: joined})
        elif complete and "podNodeSelector" not in self.blocks:
            message = "OpenShift applies the annotation openshift.io/node-selector of projects by default"
            self._warn("OriginPodNodeEnvironment", f"{message}; podNodeSelector does so as well")
            self._add("podNodeSelector", {})

    def _api_server_arguments(self, arguments: Any) -> None:
        place = f"{_KUBERNETES}.apiServerArguments"
        for flag, field in _SECONDS.items():
            values = self._mapping(arguments, place).get(flag)
            if values is None:
                continue
            text = values[-1] if isinstance(values, list) and values else values
            if not str(text).isdecimal():
                raise self._error(f"{place}.{flag}", "must be a number of seconds")
            self._add("defaultTolerationSeconds", {field: int(text)})

    def read_api_server(self, manifest: Mapping[str, Any]) -> None:
        """Read kube-apiserver's AdmissionConfiguration."""
        self._known(manifest, "", ("apiVersion", "kind", "metadata", "plugins"))
        plugins = manifest.get("plugins", [])
        if not isinstance(plugins, list):
            raise self._error("plugins", "must be a list")
        for number, plugin in enumerate(plugins):
            at = f"plugins[{number}]"
            plugin = self._known(plugin, at, ("name", "path", "configuration"))
            name = str(plugin.get("name"))
            if self._concerns_placement(name, f"{at} ({name})"):
                self._plugin(name, plugin.get("configuration"), plugin.get("path"), at, "path")

    def _concerns_placement(self, name: object, place: str) -> bool:
        if name in self._plugins:
            return True
        self._warn(place, "does not concern the placement of pods and is ignored")
        return False

    def _plugin(self, name: str, configuration: Any, path: Any, place: str, reference: str) -> bool:
        """Read a plugin, and return whether it is disabled."""
        if path:
            message = f"is not read; convert the file together with this one to include {name}"
            self._warn(f"{place}.{reference}", f"{path} {message}")
            return False
        at = f"{place}.configuration"
        config = self._spelt(self._mapping(configuration, at), at)
        if not config:
            self._warn(place, "has no configuration, so the plugin does not run; ignored")
            return False
        if config.get("kind") == "DefaultAdmissionConfig":
            self._known(config, at, ("apiVersion", "kind", "disable"))
            if not isinstance(config.get("disable", False), bool):
                raise self._error(f"{at}.disable", "must be true or false")
            if config.get("disable"):
                self._warn(place, _DISABLED)
                return True
            config = {}
        self._plugins[name](config, at)
        return False

    # ── The plugins ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _node_constraints(self, config: Mapping[str, Any], place: str) -> None:
        field = "nodeSelectorLabelBlacklist"
        self._check_kind(config, place, "PodNodeConstraintsConfig")
        self._known(config, place, ("apiVersion", "kind", field))
        labels = config.get(field) or []
        if not (isinstance(labels, list) and all(isinstance(each, str) for each in labels)):
            raise self._error(f"{place}.{field}", "must be a list of label keys")
        kept = []
        for number, label in enumerate(labels):
            if label.startswith("<") and label.endswith(">"):
                self._warn(f"{place}.{field}[{number}]", f"{label} is a placeholder and is ignored")
            else:
                kept.append(label)
        self._add("podNodeConstraints", {field: kept} if kept else {})

    def node_selector(self, config: Mapping[str, Any], place: str) -> None:
        """Read the configuration of PodNodeSelector."""
        self._known(config, place, ("apiVersion", "kind", _SELECTORS))
        at = f"{place}.{_SELECTORS}".lstrip(".")
        selectors = self._mapping(config.get(_SELECTORS), at)
        block: Block = {}
        for namespace, text in selectors.items():
            self._selector(text, f"{at}.{namespace}")
            if namespace == _DEFAULT_SELECTOR:
                block[_DEFAULT_SELECTOR] = text
            else:
                block.setdefault("namespaceWhitelists", {})[str(namespace)] = text
        self._add("podNodeSelector", block)

    def toleration_restriction(self, config: Mapping[str, Any], place: str) -> None:
        """Read the configuration of PodTolerationRestriction."""
        self._check_kind(config, place, TOLERATION_RESTRICTION[0])
        self._known(config, place, ("apiVersion", "kind", "default", "whitelist"))
        block: Block = {}
        for key, field in (("default", "defaultTolerations"), ("whitelist", "tolerationsWhitelist")):
            if not config.get(key):
                continue
            if not isinstance(config[key], list):
                raise self._error(f"{place}.{key}".lstrip("."), "must be a list of tolerations")
            block[field] = config[key]
        self._add("podTolerationRestriction", block)

    def _without_settings(self, block: str) -> Callable[[Mapping[str, Any], str], None]:
        def read(config: Mapping[str, Any], place: str) -> None:
            self._known(config, place, ("apiVersion", "kind"))
            self._add(block, {})

        return read

    # ── Helpers ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _add(self, name: str, block: Block) -> None:
        self.blocks.setdefault(name, {}).update(block)

    def _selector(self, text: object, place: str) -> dict[str, str]:
        if not isinstance(text, str):
            raise self._error(place, "must be a node selector, e.g. region=west,env=test")
        try:
            return parse_node_selector(text)
        except ValueError as error:
            raise self._error(place, str(error)) from None

    def _spelt(self, config: Mapping[str, Any], place: str) -> Mapping[str, Any]:
        """Return the mapping with ``apiVersion`` in its correct spelling."""
        found = {}
        for key, value in config.items():
            if str(key).lower() == "apiversion" and key != "apiVersion":
                self._warn(f"{place}.{key}", "is read as apiVersion")
                key = "apiVersion"
            found[key] = value
        return found

    def _check_kind(self, config: Mapping[str, Any], place: str, expected: str) -> None:
        kind = config.get("kind")
        if kind not in (None, expected):
            raise self._error(f"{place}.kind".lstrip("."), f"must be {expected}; not {kind}")

    def _mapping(self, value: Any, place: str) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self._error(place, "must be a mapping")
        return value

    def _known(self, value: Any, place: str, keys: Sequence[str]) -> Mapping[str, Any]:
        """Return the value, which must be a mapping with these keys only.

        Raises:
            InputError: it has another key, or is not a mapping.
        """
        found = self._mapping(value, place)
        for key in found:
            if key not in keys:
                allowed = ", ".join(keys)
                raise self._error(f"{place}.{key}".lstrip("."), f"is unknown; allowed are {allowed}")
        return found

    def _warn(self, place: str, message: str) -> None:
        self.warnings.append(FieldError(place, message))

    def _error(self, place: str, message: str) -> InputError:
        return InputError(message, source=self._source, object=self._kind, field=place)


_SECONDS: Final = {
    "default-not-ready-toleration-seconds": "notReadyTolerationSeconds",
    "default-unreachable-toleration-seconds": "unreachableTolerationSeconds",
}


# ── Text ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_IS_ADMISSION: Final = re.compile(rf"(?m)^[ \u00a0]*(?:{_ADMISSION}|{_SELECTORS}|{_PROJECTS}|{_KUBERNETES}):")
_ENTRY: Final = re.compile(r"""(?P<indent> *)(?P<key>[^\s#:][^:]*):(?P<value>.*)$""")
_CALLOUT: Final = re.compile(r"[ \t]+\d+[ \t]*$")


def repair_admission_text(text: str) -> tuple[str, tuple[str, ...]]:
    """Correct an admission configuration as printed in OpenShift's documentation; return the text and the changes.

    Text that contains no admission configuration is returned unchanged.
    """
    if not _IS_ADMISSION.search(text):
        return text, ()
    changes: list[str] = []
    if "\u00a0" in text:
        text = text.replace("\u00a0", " ")
        changes.append("non-breaking spaces are read as spaces")
    lines = text.splitlines()
    kept = [line for line in lines if line.strip() != "..."]
    if len(kept) < len(lines):
        changes.append("'...' is ignored: only the settings that are written are used")
    repaired = list(_selector_lines(kept, changes))
    return ("\n".join(repaired) + "\n", tuple(dict.fromkeys(changes))) if changes else (text, ())


def _selector_lines(lines: Sequence[str], changes: list[str]) -> Iterator[str]:
    """Yield the lines, with footnote numbers and indentation below ``podNodeSelectorPluginConfig`` corrected."""
    outer: int | None = None
    inner: int | None = None
    for line in lines:
        entry = _ENTRY.match(line)
        if entry is None:
            yield line
            continue
        indent = len(entry["indent"])
        if entry["key"] == _SELECTORS:
            outer, inner = indent, None
        elif outer is not None and indent > outer:
            inner = indent if inner is None else inner
            if indent != inner:
                changes.append(f"entries of {_SELECTORS} with different indentation are read as one mapping")
                line = " " * inner + line.lstrip()
        else:
            outer = None
        if outer is not None and _CALLOUT.search(entry["value"]):
            changes.append("numbers that refer to footnotes are ignored")
            line = _CALLOUT.sub("", line)
        yield line

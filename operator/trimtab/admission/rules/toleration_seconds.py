"""DefaultTolerationSeconds: adds tolerations of not-ready and unreachable nodes to pods that have none.

Source: k8s.io/kubernetes v1.36, ``plugin/pkg/admission/defaulttolerationseconds``.

The in-tree plugin adds its defaults before the API server calls webhooks, and again after a webhook changed the pod. It
would therefore restore a default that a webhook removes, so the rule changes tolerationSeconds in place.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from trimtab.admission.requests import Attributes, PodSpec, Toleration
from trimtab.admission.rules import RuleDefaults
from trimtab.admission.tolerations import EXISTS
from trimtab.api.placement_admission import (
    DEFAULT_TOLERATION_SECONDS,
    DefaultTolerationSeconds,
    FailurePolicy,
    RuleName,
)
from trimtab.kube.rules.taints import NO_EXECUTE, NOT_READY, UNREACHABLE

API_SERVER_DEFAULT_SECONDS: Final = 300
"""The defaults of ``--default-not-ready-toleration-seconds`` and ``--default-unreachable-toleration-seconds``."""


def default_toleration(key: str, seconds: int) -> Toleration:
    """Return the toleration that the plugin adds for the taint ``key:NoExecute``."""
    return Toleration(key=key, operator=EXISTS, effect=NO_EXECUTE, toleration_seconds=seconds)


def api_server_defaults(block: DefaultTolerationSeconds | None) -> frozenset[Toleration]:
    """Return the tolerations that the plugin of kube-apiserver adds: with its defaults, and with its flags of a block.

    They are in nearly every pod, so they do not show what its user has chosen.
    """
    seconds = {API_SERVER_DEFAULT_SECONDS} | ({block.api_server_default_seconds} if block is not None else set())
    return frozenset(default_toleration(key, each) for key in (NOT_READY, UNREACHABLE) for each in seconds)


class DefaultTolerationSecondsRule(RuleDefaults):
    """Adds the tolerations, and adjusts those that kube-apiserver has added."""

    def __init__(self, block: DefaultTolerationSeconds) -> None:
        defaults = {
            NOT_READY: block.not_ready_toleration_seconds,
            UNREACHABLE: block.unreachable_toleration_seconds,
        }
        self._defaults = tuple(default_toleration(key, seconds) for key, seconds in defaults.items())
        self._replacements = (
            {
                default_toleration(default.key, block.api_server_default_seconds): default
                for default in self._defaults
                if default.toleration_seconds != block.api_server_default_seconds
            }
            if block.adjust_api_server_defaults
            else {}
        )
        self.name: RuleName = DEFAULT_TOLERATION_SECONDS
        self.failure_policy: FailurePolicy = block.failure_policy

    def mutate(self, request: Attributes, spec: PodSpec) -> PodSpec:
        """Add and adjust tolerations of pods, in creations and updates. Pod templates are not changed, as in-tree.

        An update adjusts only tolerations that the pod did not have before: a pod that was created with 300 seconds
        keeps them when a user changes its labels.
        """
        if not request.is_pod or request.subresource:
            return spec
        present = spec.tolerations or ()
        adjusted = {each for each in present if each in self._replacements}
        if adjusted and request.old is not None:
            adjusted -= set(request.old.spec.tolerations or ())
        tolerations = tuple(self._replacements[each] if each in adjusted else each for each in present)
        missing = tuple(
            default for default in self._defaults if not any(_replaces_default(each, default) for each in present)
        )
        changed = (*tolerations, *missing)
        return spec if changed == present else replace(spec, tolerations=changed)


def _replaces_default(toleration: Toleration, default: Toleration) -> bool:
    """Return whether a toleration replaces a default. As in the in-tree plugin, operator and value do not matter."""
    return toleration.key in ("", default.key) and toleration.effect in ("", NO_EXECUTE)

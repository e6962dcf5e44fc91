"""The RBAC rules that the controller of MachineAutoscalers needs, except those for watching the targets."""

from __future__ import annotations

from typing import Final

from trimtab.autoscaling.machine_autoscalers.targets import KINDS
from trimtab.kube.resources import MACHINE_AUTOSCALERS

_GROUPS: Final = tuple(dict.fromkeys(resource.group for resource in KINDS))

RULES: Final[tuple[dict[str, list[str]], ...]] = (
    {  # patch is for the finalizer
        "apiGroups": [MACHINE_AUTOSCALERS.group],
        "resources": [MACHINE_AUTOSCALERS.plural],
        "verbs": ["get", "list", "watch", "patch"],
    },
    {
        "apiGroups": [MACHINE_AUTOSCALERS.group],
        "resources": [f"{MACHINE_AUTOSCALERS.plural}/status"],
        "verbs": ["patch"],
    },
    *(
        {  # the annotations
            "apiGroups": [group],
            "resources": sorted(resource.plural for resource in KINDS if resource.group == group),
            "verbs": ["get", "patch"],
        }
        for group in _GROUPS
    ),
)

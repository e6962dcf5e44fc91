"""Well-known labels for the location of nodes (k8s.io/api core/v1)."""

from __future__ import annotations

from typing import Final

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
"""The beta labels of zone and region. If a node also has the GA label, each caller decides which one takes precedence.
"""

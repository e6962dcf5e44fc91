"""trimtab keeps a Kubernetes cluster trimmed to its policies.

The packages are layers, and imports point one way (import-linter holds it): ``kube`` (the API server) and ``api``
(our resources) at the bottom, then ``cluster`` (the picture), ``placement`` (can it run there), ``disruption`` (may it
be moved now), the features, and on top ``runtime`` and ``cli``, which put the parts together.
"""

__version__ = "0.1.0"

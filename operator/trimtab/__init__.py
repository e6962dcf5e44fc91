"""trimtab keeps a Kubernetes cluster trimmed to its policies.

The packages are layers, and imports point one way (import-linter enforces it): ``kube`` (the API server) and ``api``
(our resources) at the bottom, then ``cluster`` (the snapshot), ``placement`` (on which nodes a pod fits),
``disruption`` (which pods may be evicted), the features, and on top ``runtime`` and ``cli``, which compose them.
"""

__version__ = "0.1.0"

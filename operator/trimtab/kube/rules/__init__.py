"""Kubernetes' own rules as pure functions: quantities, selectors, taints, and what a pod requests."""

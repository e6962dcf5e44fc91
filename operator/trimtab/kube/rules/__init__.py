"""Kubernetes' own rules as pure functions: quantities, selectors, taints, and the requests of pods."""

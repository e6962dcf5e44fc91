"""Reads the measured usage of nodes and pods from metrics.k8s.io or from Prometheus, and smooths it over time."""

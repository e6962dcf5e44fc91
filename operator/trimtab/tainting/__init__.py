"""Taints: which pods NoExecute taints end and when, and how nodes that fail are tainted."""

"""The demo: badly placed pods on a real control plane, the operator with the chart's RBAC, and a final check."""

"""The demo: a real control plane, badly placed pods, the operator under the chart's RBAC, and a look at what it did."""

"""A stand-in for the kubelets' stats: serves ``/stats/summary`` of each node, with values that a scenario file defines.

``python -m trimtab_local.kubelets`` runs it. kwok simulates pods and heartbeats, but no resource usage. This process
adds what eviction depends on: usage that grows, kubelets that kill pods at their hard thresholds, and kubelets that
hang, lie or reject requests.
"""

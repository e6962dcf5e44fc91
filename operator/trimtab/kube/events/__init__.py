"""Records events (events.k8s.io/v1).

Identical events are combined into a series, and the number of requests is limited.
"""

"""Workloads: the controllers that own pods, the pods of a Deployment, and the state of a rollout."""

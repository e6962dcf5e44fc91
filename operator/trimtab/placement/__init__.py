"""Scheduling simulation: kube-scheduler's filters and scores of the default profile, and node reservation."""

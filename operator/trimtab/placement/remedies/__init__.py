"""Remedies: changes of the cluster or of a pod that would make an unschedulable pod fit."""

"""Placement admission: webhooks that restrict, complete and refuse the placement of pods and pod templates."""

"""Reports the state of a policy: its status and conditions, events, log lines and metrics."""

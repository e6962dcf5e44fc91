"""Liveness and readiness probes, the watchdog of the main thread, and conditions for overdue plans."""

"""The components that all controllers share: reconcile loops, work queues, timers, status writers, health reports."""

"""The policy scheduler: places pods that name it, binds them, and preempts pods of lower priority."""

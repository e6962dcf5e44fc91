"""May this pod be moved now, and how it is done: protections, budgets, limits, and the executor of plans."""

"""The composition root: here the parts are put together, and nowhere else."""

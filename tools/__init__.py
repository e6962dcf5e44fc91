"""What contributors run beside the package: nothing of it is shipped."""

"""Can this pod run there? The filters of kube-scheduler's default profile, and places that are found and reserved."""

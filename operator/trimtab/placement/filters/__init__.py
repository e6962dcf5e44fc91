"""One rule of kube-scheduler a file, each with its reason texts; :mod:`trimtab.placement.registry` has their order."""

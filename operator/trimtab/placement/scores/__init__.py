"""One score of kube-scheduler a file, each with its weight; :mod:`trimtab.placement.registry` lists them."""

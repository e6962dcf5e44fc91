"""The cluster autoscaler: which node groups grow for pods that find no place, and which nodes are not needed."""

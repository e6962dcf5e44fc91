"""The cluster state that every planner reads: snapshot, node table, affinity index, volumes, usage and workloads."""

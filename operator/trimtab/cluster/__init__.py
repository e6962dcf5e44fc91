"""The picture of the cluster that every planner reads: columns, interned classes, topology counters, fork and undo."""

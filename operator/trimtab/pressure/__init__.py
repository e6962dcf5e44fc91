"""The node-pressure controller: evicts pods from nodes that run low on memory, disk or PIDs."""

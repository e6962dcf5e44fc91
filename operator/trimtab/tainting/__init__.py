"""The taint manager. It evicts pods from nodes with NoExecute taints and adds taints to failed nodes."""

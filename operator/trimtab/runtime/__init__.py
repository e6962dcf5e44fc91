"""The composition root. It builds the operator process from the supervisor, informers, controllers and servers."""

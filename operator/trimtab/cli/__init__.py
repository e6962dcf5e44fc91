"""The command line: each command a module, imported only when it is called, so that ``--help`` stays instant."""

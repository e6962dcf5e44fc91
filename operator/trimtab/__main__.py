"""``python -m trimtab``: the same command line as ``trimtab``."""

from trimtab.cli.main import main

if __name__ == "__main__":
    main()

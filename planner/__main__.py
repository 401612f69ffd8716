"""``python -m planner``: the command line where the command ``planner`` is not on the path."""

from planner.cli.main import main

if __name__ == "__main__":
    main()

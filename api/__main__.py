"""``python -m api``: the service with settings from the environment alone, without the command line's packages."""

import sys

from api.serve import serve
from api.settings import read_settings
from planner.errors import SettingsError

__all__ = ["main"]

_BAD_SETTINGS = 78  # EX_CONFIG of sysexits.h: wrong settings do not mend themselves


def main() -> None:
    try:
        serve(read_settings())
    except SettingsError as error:
        sys.stderr.write(f"{error.message}\n")
        sys.exit(_BAD_SETTINGS)


if __name__ == "__main__":
    main()

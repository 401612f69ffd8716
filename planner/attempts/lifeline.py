"""First thing in a solver child: tie its life to its parent's, then become the module that was asked for.

``python -P -m planner.attempts.lifeline PARENT_PID MODULE ...``. Where the kernel is Linux it kills this process in the
moment in which the thread that started it ends (prctl PR_SET_PDEATHSIG), also while the module is still being loaded.
Elsewhere the end of standard input does the same a little later, which the module watches.
"""

import ctypes
import os
import runpy
import signal
import sys

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h


def main() -> None:
    """Run the module under its own name and with its own arguments."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the line above
            os._exit(0)
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

"""Settings of all tests."""

import signal

from hypothesis import settings

# The same examples in every run, and no verdict by the clock: machines are shared.
settings.register_profile("project", derandomize=True, deadline=None, database=None)
settings.load_profile("project")

# A run started in the background inherits that Ctrl-C is ignored, and so would every command that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

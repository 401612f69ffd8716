"""Settings of all tests."""

from hypothesis import settings

# The same examples in every run, and no verdict by the clock: machines are shared.
settings.register_profile("project", derandomize=True, deadline=None, database=None)
settings.load_profile("project")

"""Apply a plan to a torch model and run its steps."""

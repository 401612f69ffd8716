"""The HTTP service: requests become problems, answers are plans."""

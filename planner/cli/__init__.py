"""The command planner: arguments in, text out."""

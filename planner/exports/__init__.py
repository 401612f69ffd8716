"""Write a plan in another tool's words, naming what that tool cannot express."""

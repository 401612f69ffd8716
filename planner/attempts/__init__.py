"""Start and kill solver children, which are named by their module."""

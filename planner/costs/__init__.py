"""How long one thing takes and how many bytes it needs, on one device kind or link."""

"""Changes of the store's tables, applied when the service starts."""

"""Routes of the service, one resource a file."""

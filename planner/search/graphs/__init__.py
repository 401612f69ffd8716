"""Layer graphs that are no chain, laid over devices so that the fullest device is as empty as can be."""

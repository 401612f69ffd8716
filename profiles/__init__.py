"""Measure layers and links, read and write profiles."""

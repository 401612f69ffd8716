"""The database of profiles, clusters, plans, answers and searches."""

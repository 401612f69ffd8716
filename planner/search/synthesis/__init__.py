"""Schedules made for the true costs of a placement: templates, a list scheduler, polishing, bounds."""

"""Checkpoints: weights, optimizer, position and random state of a run on disk, loadable under any plan."""

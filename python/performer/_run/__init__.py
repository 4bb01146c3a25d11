"""Runs of the program `performer`: their checkpoints, read without it."""

"""Layers that are mixtures of experts: how they are run, and their memories."""

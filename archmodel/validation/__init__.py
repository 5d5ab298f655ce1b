"""Predictions scored against measured times that are in the repository (`data/validation`)."""

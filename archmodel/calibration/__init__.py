"""A user's own measurements become the constants of a chip: `python -m archmodel calibrate`."""

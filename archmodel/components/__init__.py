"""Blocks of a chip: spec + kernel -> costs. One file a block."""

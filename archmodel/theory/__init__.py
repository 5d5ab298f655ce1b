"""Closed forms of attention-FFN disaggregation, queues and floors: what a simulated split is held against.

Every function is one published or textbook formula, in SI units, and says where it comes from and what it leaves out.
"""

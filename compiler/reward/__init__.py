"""Rewards: typed expressions, exact ranges and orderings by intervals over split cases."""

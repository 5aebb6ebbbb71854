"""Calibration: the solution passes, everything else fails."""

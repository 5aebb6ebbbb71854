"""Runs: episodes from sandbox to seal, scoring, locking, and the Hydra application."""

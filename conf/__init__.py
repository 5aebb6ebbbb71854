"""Hydra groups with structured schemas: where and how to run, never what is true."""

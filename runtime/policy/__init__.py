"""Policies that speak in messages: the oracle, idle ones, exploits, scripts, attacks."""

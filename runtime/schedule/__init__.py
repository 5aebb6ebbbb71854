"""Bounded concurrency, retries, the circuit breaker, and stopping on a signal."""

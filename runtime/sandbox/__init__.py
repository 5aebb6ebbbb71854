"""Sandboxes on Podman behind the contract `runtime.contracts.sandbox`."""

from guerdon.runtime.sandbox.provider import PodmanProvider

__all__ = ["PodmanProvider"]

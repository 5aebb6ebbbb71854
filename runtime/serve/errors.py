"""What a client did wrong, or we could not do, in the error format of the Chat Completions protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Refused(Exception):
    """A request that is not answered: the status, a message with the remedy, and which parameter it is about."""

    message: str
    status: int = 400
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, object]:
        """As it goes over the wire."""
        kind = "server_error" if self.status >= 500 else _KINDS.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


_KINDS = {401: "authentication_error", 429: "rate_limit_error"}

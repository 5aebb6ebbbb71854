"""What `policy=openai` is told, checked before anything starts."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from urllib.parse import urlsplit

from guerdon.runtime.contracts.policy import PolicyFault

FORMATS = ("native", "hermes")
INCIDENTAL = frozenset({"api_key_env", "timeout", "retries", "requests_per_minute", "concurrent", "token_budget"})
"""Settings that change how the server is asked and not what: they do not make another run."""


@dataclass(frozen=True, slots=True)
class Served:
    """The settings of `conf.policy.OpenaiConf`, and the key, which is never shown."""

    base_url: str
    model: str
    api_key_env: str = "OPENAI_API_KEY"
    tool_format: str = "native"
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 1024
    logprobs: bool = False
    token_ids: bool = False
    timeout: float = 120.0
    retries: int = 5
    requests_per_minute: int = 0
    concurrent: int = 0
    token_budget: int = 0
    key: str = field(default="", repr=False, compare=False)

    def hide(self, text: str) -> str:
        """`text` without the key, should somebody have put it there."""
        return text.replace(self.key, "[key]") if self.key else text


def read_settings(settings: Mapping[str, object]) -> Served:
    """Settings as they stand in the configuration. Raises PolicyFault naming the one that is wrong."""
    known = {f.name: f for f in fields(Served) if f.name != "key"}
    for name in ("base_url", "model"):
        if not isinstance(settings.get(name), str) or not settings[name]:
            raise PolicyFault(f"policy=openai needs policy.{name}=…: {_WANTED[name]}")
    given = {name: settings[name] for name in known if name in settings}
    variable = str(given.get("api_key_env", "OPENAI_API_KEY"))
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", variable):
        # It may well be the key itself, so it is not repeated here.
        raise PolicyFault("policy.api_key_env must be the NAME of an environment variable, not the key")
    served = Served(**given, key=os.environ.get(variable, "").strip())  # type: ignore[arg-type]
    _check_url(served.base_url)
    _check(served)
    return served


_WANTED = {
    "base_url": "where the server answers, such as http://127.0.0.1:8000/v1",
    "model": "the name under which the server knows the model",
}


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole:
        raise PolicyFault(f"policy.base_url is {url[:200]!r}: it must be such as http://127.0.0.1:8000/v1")
    if parts.username is not None or parts.password is not None or parts.query:
        raise PolicyFault(
            "policy.base_url holds a user, a password or a query, which would be written into the run folder; "
            "put the key into the environment variable that policy.api_key_env names"
        )


def _check(served: Served) -> None:
    for name, fine, wanted in (
        ("tool_format", served.tool_format in FORMATS, " or ".join(FORMATS)),
        ("temperature", 0 <= served.temperature < math.inf, "0 or more"),
        ("top_p", 0 < served.top_p <= 1, "above 0 and at most 1"),
        ("max_tokens", served.max_tokens >= 1, "1 or more"),
        ("timeout", 0 < served.timeout < math.inf, "seconds above 0"),
        ("retries", served.retries >= 0, "0 or more"),
        ("requests_per_minute", served.requests_per_minute >= 0, "0 or more"),
        ("concurrent", served.concurrent >= 0, "0 or more"),
        ("token_budget", served.token_budget >= 0, "0 or more"),
    ):
        if not fine:
            raise PolicyFault(f"policy.{name} is {getattr(served, name)}; it must be {wanted}")
    if not all(0x21 <= ord(c) < 0x7F for c in served.key):
        raise PolicyFault(f"the key in ${served.api_key_env} holds a character that no header can; set it again")

"""One server and how it is asked: paced, tried again, within a budget; what went wrong in one line."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from guerdon.runtime.contracts.policy import PolicyDown, PolicyFault
from guerdon.runtime.policy.openai_settings import Served
from guerdon.runtime.policy.openai_wire import Answer, Unreadable, Usage, read_answer, read_json, read_usage

MOST_BYTES = 32 * 1024 * 1024
"""The longest answer that is read."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 300.0
"""Seconds before the second try (doubled for each further one), and the most that a Retry-After is heeded for."""


class ContextFull(Exception):
    """The conversation is longer than the model's context."""


@dataclass(slots=True)
class _Again(Exception):
    """Worth another try. `after` is how many seconds the server asked for."""

    reason: str
    after: float | None = None
    unreachable: bool = False


class Endpoint:
    """A served model. Make it anywhere; it connects with the first question, in the loop that asks it."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.spent = 0
        """Tokens so far, of prompts and turns."""
        self._client: Any = None
        self._answered = False
        self._pace = _Pace(served.requests_per_minute)
        self._places = asyncio.Semaphore(served.concurrent) if served.concurrent else contextlib.nullcontext()

    async def ask(self, body: Mapping[str, Any]) -> tuple[Answer, Usage]:
        """The answer to one request (keyword arguments of `chat.completions.create`).

        Raises PolicyFault, ContextFull, and PolicyDown where no other episode would fare better.
        """
        tried = 0
        while True:
            self._afford()
            await self._pace.slot()
            try:
                async with self._places:
                    return self._read(await self._once(body))
            except _Again as again:
                if again.unreachable and (not self._answered or tried >= self.served.retries):
                    raise PolicyDown(f"{self._who} {again.reason}; start the server, or mend policy.base_url") from None
                if tried >= self.served.retries:
                    raise PolicyFault(f"{self._who} {again.reason}, in {tried + 1} tries") from None
                wait = FIRST_WAIT * 2**tried if again.after is None else again.after
                self._pace.hold(min(wait, LONGEST_WAIT))
                tried += 1

    @property
    def _who(self) -> str:
        return f"the server at {self.served.base_url}"

    def _afford(self) -> None:
        budget = self.served.token_budget
        if budget and self.spent >= budget:
            raise PolicyDown(
                f"the token budget is spent: {self.spent} of policy.token_budget={budget}; what was sealed is kept, "
                "raise the budget to go on with the rest"
            )

    async def _once(self, body: Mapping[str, Any]) -> bytes:
        openai = _openai()
        try:
            async with asyncio.timeout(self.served.timeout):
                return await self._post(body)
        except (TimeoutError, openai.APITimeoutError):
            raise _Again(f"gave no answer within {self.served.timeout:g} s") from None
        except openai.APIStatusError as wrong:
            raise self._refused(wrong.status_code, wrong.response.headers, wrong.body, wrong) from None
        except openai.APIConnectionError as wrong:
            raise self._unconnected(wrong) from None
        except openai.OpenAIError as wrong:
            raise PolicyFault(f"{self._who} could not be asked: {self._short(wrong)}") from None
        except Exception as wrong:
            # While a body is read, what the client's own HTTP library raises comes through as it is; which library that
            # is (httpx, httpx2) hangs on the client's version.
            if type(wrong).__module__.split(".")[0] not in ("httpx", "httpx2"):
                raise
            raise self._unconnected(wrong) from None

    async def _post(self, body: Mapping[str, Any]) -> bytes:
        if self._client is None:
            # Tries and waits are counted here, not by the client. It must be given some key, or it takes that of
            # another variable.
            self._client = _openai().AsyncOpenAI(
                base_url=self.served.base_url, api_key=self.served.key or "none", max_retries=0,
                timeout=self.served.timeout,
            )
        async with self._client.chat.completions.with_streaming_response.create(**body) as response:
            return await _bounded(response.iter_bytes(), self._who)

    def _read(self, body: bytes) -> tuple[Answer, Usage]:
        try:
            document = read_json(body)
            usage = read_usage(document)
            self.spent += usage.total or 0
            answer = read_answer(document, self.served.hide)
        except Unreadable as wrong:
            raise PolicyFault(f"{self._who} does not speak the protocol: {self._short(wrong)}") from None
        if usage.total is None and self.served.token_budget:
            raise PolicyDown(f"{self._who} does not say what an answer costs (`usage`): policy.token_budget "
                             "cannot be kept; set it to 0")
        self._answered = True
        return answer, usage

    def _refused(self, status: int, headers: Mapping[str, str], body: Any, wrong: Exception) -> Exception:
        """What a status other than success means for the run."""
        said = self._short(_told(body) or wrong)
        code = str(body.get("code") or body.get("type") or "") if isinstance(body, dict) else ""
        if status in (401, 403):
            known = "is set" if self.served.key else "is not set"
            return PolicyDown(f"{self._who} refuses the key ({status}: {said}): ${self.served.api_key_env} {known}; "
                              "set it to a key of this server")
        if status == 404:
            return PolicyDown(f"{self._who} has no model {self.served.model!r}, or no /chat/completions ({status}: "
                              f"{said}); look at policy.model and at the path of policy.base_url")
        if code == "insufficient_quota" or status == 402:
            return PolicyDown(f"the account at {self.served.base_url} has nothing left ({status}: {said}); top it up")
        if status in (408, 409, 425, 429) or status >= 500:
            return _Again(f"answered {status}: {said}", _retry_after(headers))
        if code == "context_length_exceeded" or "maximum context length" in said:
            return ContextFull(said)
        text = f"{self._who} refuses the request ({status}: {said}); look at the settings of policy=openai"
        # Once it has answered, a refusal is about this conversation; before, it is about how it is asked.
        return PolicyFault(text) if self._answered else PolicyDown(text)

    def _unconnected(self, wrong: Exception) -> _Again:
        chain = list(_causes(wrong))
        never = any(type(cause).__name__ in ("ConnectError", "UnsupportedProtocol") for cause in chain)
        reason = next((str(cause) for cause in reversed(chain) if str(cause)), "connection lost")
        if never:
            return _Again(f"cannot be reached ({self._short(reason)})", unreachable=True)
        return _Again(f"broke off ({self._short(reason)})")

    def _short(self, text: object) -> str:
        line = " ".join(self.served.hide(str(text)).split())
        return line if len(line) <= 300 else line[:300] + "…"


class _Pace:
    """Requests at even distances, none before a moment that the server asked for."""

    def __init__(self, per_minute: int) -> None:
        self._distance = 60 / per_minute if per_minute else 0.0
        self._next = 0.0

    async def slot(self) -> None:
        """Wait for one's turn."""
        now = time.monotonic()
        at = max(now, self._next)
        self._next = at + self._distance
        if at > now:
            await asyncio.sleep(at - now)

    def hold(self, seconds: float) -> None:
        """Let nobody's turn come for so long."""
        self._next = max(self._next, time.monotonic() + seconds)


def _openai() -> Any:
    try:
        import openai  # imported on use: it takes a second, and few runs need it
    except ImportError:
        raise PolicyDown("policy=openai needs the client of OpenAI: pip install 'guerdon[openai]'") from None
    return openai


async def _bounded(chunks: AsyncIterator[bytes], who: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > MOST_BYTES:
            raise PolicyFault(f"{who} does not speak the protocol: its answer is longer than {MOST_BYTES} bytes")
        parts.append(chunk)
    return b"".join(parts)


def _told(body: Any) -> str:
    """The message in an error's body, which comes as `{"error": {"message": …}}` or as that inner part."""
    while isinstance(body, dict):
        body = body.get("error", body.get("message", body.get("detail")))
    return body if isinstance(body, str) else ""


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of a Retry-After, which is a number or a date."""
    text = headers.get("retry-after", "")
    try:
        return max(0.0, min(float(text), LONGEST_WAIT))
    except ValueError:
        pass
    try:
        return max(0.0, min(email.utils.parsedate_to_datetime(text).timestamp() - time.time(), LONGEST_WAIT))
    except (ValueError, TypeError, OverflowError):
        return None


def _causes(wrong: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = wrong
    for _ in range(20):
        if seen is None:
            return
        yield seen
        seen = seen.__cause__ or seen.__context__

"""`policy=openai`: a served model as the policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from guerdon.runtime.contracts.policy import Episode, Occasion, PolicyFault
from guerdon.runtime.contracts.renderer import Malformed, ToolText
from guerdon.runtime.contracts.trajectory import Message, Tokens, Turn
from guerdon.runtime.policy.openai_endpoint import ContextFull, Endpoint
from guerdon.runtime.policy.openai_settings import read_settings
from guerdon.runtime.policy.openai_wire import Answer, conversation, conversation_as_text, functions


@dataclass(frozen=True, slots=True)
class OpenAI:
    """Asks a server for each turn. `text` writes and reads calls where the server knows nothing of tools."""

    endpoint: Endpoint
    text: ToolText | None = None
    name: str = "openai"

    def variants(self, occasion: Occasion) -> tuple[str, ...]:
        return (self.name,)

    def start(self, occasion: Occasion, variant: str, seed: int) -> Episode:
        return _Served(self, occasion, seed)


def make_openai(settings: Mapping[str, object], text: ToolText | None) -> OpenAI:
    """The policy of its settings (`conf.policy.OpenaiConf`). Raises PolicyFault."""
    served = read_settings(settings)
    if find_spec("openai") is None:
        raise PolicyFault("policy=openai needs the client of OpenAI: pip install 'guerdon[openai]'")
    if served.tool_format == "hermes" and text is None:
        raise PolicyFault("policy.tool_format=hermes is not to be had here; use policy.tool_format=native")
    return OpenAI(Endpoint(served), text if served.tool_format == "hermes" else None)


class _Served(Episode):
    """One episode: all messages go with each request, so the server needs to keep nothing."""

    def __init__(self, policy: OpenAI, occasion: Occasion, seed: int) -> None:
        self._policy = policy
        self._tools = occasion.tools
        self._seed = seed
        self._ids: tuple[int, ...] | None = ()
        """Ids of the conversation so far; None once the server's own do not go on from them."""

    @property
    def timed(self) -> bool:
        # How busy a server is says nothing of the model: no result shall hang on it.
        return False

    async def act(self, messages: Sequence[Message]) -> Turn | None:
        """The next turn; None where the model's context has no place for one. Raises PolicyFault."""
        try:
            answer, usage = await self._policy.endpoint.ask(self._request(messages))
        except ContextFull as full:
            if len(messages) > 1:
                return None  # what it has done so far is what it could do
            raise PolicyFault(f"the prompt has no place in the model's context: {full}; lower policy.max_tokens, "
                              "or take a model with a longer context") from None
        tokens = self._tokens(answer)
        if self._policy.text is None:
            return Turn(answer.message, tokens=tokens, count=usage.turn)
        read = self._policy.text.read(answer.message.content)
        return Turn(read.message, read.errors if isinstance(read, Malformed) else (), tokens, usage.turn)

    def _request(self, messages: Sequence[Message]) -> dict[str, Any]:
        served, text = self._policy.endpoint.served, self._policy.text
        body: dict[str, Any] = {
            "model": served.model, "temperature": served.temperature, "top_p": served.top_p,
            "max_tokens": served.max_tokens, "seed": self._seed % 2**31,  # servers differ in what fits
        }
        if text is not None:
            body["messages"] = conversation_as_text(messages, self._tools, text)
        else:
            body["messages"] = conversation(messages)
            if self._tools:
                body["tools"] = functions(self._tools)
        if served.logprobs or served.token_ids:
            body["logprobs"] = True
        if served.token_ids:
            body["extra_body"] = {"return_token_ids": True}
        return body

    def _tokens(self, answer: Answer) -> Tokens | None:
        """Ids and log-probabilities where the server gave both, and they go on from those of the turns before."""
        ids, logprobs, prompt, before = answer.ids, answer.logprobs, answer.prompt, self._ids
        if ids is None or logprobs is None or prompt is None or before is None or prompt[: len(before)] != before:
            self._ids = None
            return None
        context = prompt[len(before) :]
        self._ids = prompt + ids
        return Tokens(
            ids=context + ids, logprobs=(0.0,) * len(context) + logprobs,
            mask=(0,) * len(context) + (1,) * len(ids), weights_version=0,
        )

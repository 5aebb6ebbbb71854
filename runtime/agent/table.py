"""The one table of renderers: name to maker."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from guerdon.runtime.agent.compact import CompactRenderer
from guerdon.runtime.agent.renderer import TextRenderer
from guerdon.runtime.contracts.renderer import Renderer


def _chat(source: str) -> Renderer:
    from guerdon.runtime.agent.chat import chat_renderer

    if not source:
        raise ValueError("`chat` takes its tokenizer from the model's weights, and none are named")
    return chat_renderer(source)


RENDERERS: Mapping[str, Callable[[str], Renderer]] = {
    "compact": lambda _: CompactRenderer(),
    "hermes": lambda _: TextRenderer(),
    "chat": _chat,
}


def make_renderer(name: str, source: str = "") -> Renderer:
    """A renderer by name; `source` is where a model's tokenizer lies. Raises ValueError, in one line."""
    if name not in RENDERERS:
        raise ValueError(f"there is no renderer {name!r}; there are {', '.join(RENDERERS)}")
    return RENDERERS[name](source)

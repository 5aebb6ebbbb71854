"""Who acts: `policy=oracle`, `policy=scripted policy.script=turns.yaml` …"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MISSING = "???"
"""OmegaConf's word for a value that must be given."""


@dataclass
class PolicyConf:
    """A policy that needs no settings."""

    name: str = MISSING


@dataclass
class ScriptedConf:
    """Turns from a file."""

    name: str = "scripted"
    script: str = MISSING
    """Path of the script: YAML or JSON."""


@dataclass
class OpenaiConf:
    """A served model, asked over the Chat Completions protocol."""

    name: str = "openai"
    base_url: str = MISSING
    """Where the server answers, such as http://127.0.0.1:8000/v1."""
    model: str = MISSING
    api_key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; the key itself is written nowhere."""
    tool_format: str = "native"
    """`native`: tools go as `tools`. `hermes`: as text, for a server that knows nothing of tools."""
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 1024
    """Tokens of one turn."""
    logprobs: bool = False
    """Ask for log-probabilities."""
    token_ids: bool = False
    """Ask for token ids too (`return_token_ids`: vLLM and `guerdon serve-policy`), and keep both in the trajectory."""
    timeout: float = 120.0
    """Seconds until a whole answer must be there."""
    retries: int = 5
    """Further tries after 429, a server's error or a lost answer."""
    requests_per_minute: int = 0
    """0 for no limit."""
    concurrent: int = 0
    """Requests side by side; 0 for as many as there are episodes."""
    token_budget: int = 0
    """Tokens, prompts included, after which the run stops; 0 for no limit. It counts from 0 in each process."""


OPTIONS: Mapping[str, object] = {
    **{
        name: PolicyConf(name)
        for name in ("oracle", "idle", "refusal", "quit", "exploit", "exit0", "equals_all")
    },
    "scripted": ScriptedConf(),
    "openai": OpenaiConf(),
}

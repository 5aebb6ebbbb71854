"""The policy that is trained: messages to ids, one batch of ids a turn, ids to calls; nothing is tokenised again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from guerdon.runtime.contracts.policy import Episode, Occasion, PolicyFault
from guerdon.runtime.contracts.renderer import Malformed, Renderer
from guerdon.runtime.contracts.sampling import Request, SamplerFault, Sampling
from guerdon.runtime.contracts.trajectory import Message, Tokens, Turn
from guerdon.runtime.policy.lockstep import Lockstep


@dataclass(frozen=True, slots=True)
class Trained:
    """A policy that is sampled in lockstep; `name` tells its moment (`policy@12`) and is part of each episode's key."""

    name: str
    lockstep: Lockstep
    renderer: Renderer
    sampling: Sampling
    context: int = 1 << 30
    """Ids that the model can hold: an episode that fills them is over."""

    def variants(self, occasion: Occasion) -> tuple[str, ...]:
        return (self.name,)

    def start(self, occasion: Occasion, variant: str, seed: int) -> Episode:
        self.lockstep.join(session(seed))
        return _Sampling(self, occasion, seed)


def session(seed: int) -> str:
    """The session of an episode: its seed as text that sorts, which no other episode of the run has."""
    return f"{seed:016x}"


class _Sampling(Episode):
    """One episode: the ids so far, and how many messages they hold."""

    def __init__(self, policy: Trained, occasion: Occasion, seed: int) -> None:
        self._policy = policy
        self._tools = occasion.tools
        self._seed = seed
        self._ids: tuple[int, ...] = ()
        self._seen = 0
        self._turn = 0

    @property
    def timed(self) -> bool:
        return False

    def end(self) -> None:
        self._policy.lockstep.leave(session(self._seed))

    async def act(self, messages: Sequence[Message]) -> Turn | None:
        """The next turn. Raises PolicyFault where the sampler failed."""
        renderer = self._policy.renderer
        if not self._ids:
            prefix = renderer.start(messages, self._tools)
        else:
            # What was sampled is the first of the new messages, and in the ids already.
            prefix = renderer.extend(self._ids, messages[self._seen + 1 :])
        room = self._policy.context - len(prefix)
        if room <= 0:
            return None
        sampling = replace(self._policy.sampling, max_tokens=min(room, self._policy.sampling.max_tokens))
        context = prefix[len(self._ids) :]
        request = Request(session(self._seed), prefix, sampling, self._seed, self._turn)
        try:
            sampled = await self._policy.lockstep.generate(request)
        except SamplerFault as fault:
            raise PolicyFault(str(fault)) from fault
        self._ids = prefix + sampled.ids
        self._seen = len(messages)
        self._turn += 1
        tokens = Tokens(
            ids=context + sampled.ids,
            logprobs=(0.0,) * len(context) + sampled.logprobs,
            mask=(0,) * len(context) + (1,) * len(sampled.ids),
            weights_version=sampled.weights_version,
        )
        action = renderer.parse(sampled.ids)
        return Turn(action.message, action.errors if isinstance(action, Malformed) else (), tokens)

"""The language's named trajectories (idle, refusal, quit) and the pack's own demonstrations."""

from __future__ import annotations

from dataclasses import dataclass

from guerdon.runtime.contracts.policy import Episode, Occasion, PolicyFault
from guerdon.runtime.policy.demo import Playback, play, turn


@dataclass(frozen=True, slots=True)
class Idle:
    """Does nothing at all."""

    name: str = "idle"

    def variants(self, occasion: Occasion) -> tuple[str, ...]:
        return (self.name,)

    def start(self, occasion: Occasion, variant: str, seed: int) -> Episode:
        return Playback(iter(()))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Says that it will not, once."""

    name: str = "refusal"

    def variants(self, occasion: Occasion) -> tuple[str, ...]:
        return (self.name,)

    def start(self, occasion: Occasion, variant: str, seed: int) -> Episode:
        return Playback(iter((turn("I am sorry, but I cannot help with this."),)))


@dataclass(frozen=True, slots=True)
class Quit:
    """Submits in turn 1; nothing to do where a task has no `submit`."""

    name: str = "quit"

    def variants(self, occasion: Occasion) -> tuple[str, ...]:
        return (self.name,) if any(tool.name == "submit" for tool in occasion.tools) else ()

    def start(self, occasion: Occasion, variant: str, seed: int) -> Episode:
        return Playback(iter((turn("", ("submit", {})),)))


@dataclass(frozen=True, slots=True)
class Oracle:
    """Plays the pack's solution, one step a turn; nothing to do where a row has none."""

    name: str = "oracle"

    def variants(self, occasion: Occasion) -> tuple[str, ...]:
        return (self.name,) if occasion.instance.solution else ()

    def start(self, occasion: Occasion, variant: str, seed: int) -> Episode:
        return Playback(play(occasion, occasion.instance.solution))


@dataclass(frozen=True, slots=True)
class Exploit:
    """Plays each exploit that the pack itself names, one episode an exploit."""

    name: str = "exploit"

    def variants(self, occasion: Occasion) -> tuple[str, ...]:
        return tuple(f"{self.name}:{exploit.name}" for exploit in occasion.instance.exploits)

    def start(self, occasion: Occasion, variant: str, seed: int) -> Episode:
        wanted = variant.removeprefix(f"{self.name}:")
        for exploit in occasion.instance.exploits:
            if exploit.name == wanted:
                return Playback(play(occasion, exploit.steps))
        raise PolicyFault(f"{occasion.instance.task}/{occasion.instance.row} has no exploit {wanted!r}")

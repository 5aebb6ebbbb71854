"""One episode: turns of a policy and its tools until it submits, stops or meets a limit; then the freeze."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from guerdon.compiler.plan.canonical import digest, dumps
from guerdon.compiler.plan.schema import MAX_CALLS_PER_TURN, InstancePlan, LimitsPlan, TaskPlan
from guerdon.runtime.agent.counting import Tally
from guerdon.runtime.agent.forbid import Fingerprint, broken, fingerprint
from guerdon.runtime.agent.renderer import TextRenderer
from guerdon.runtime.agent.tools import ToolBox
from guerdon.runtime.contracts.policy import Episode
from guerdon.runtime.contracts.sandbox import Artefacts, Sandbox, SandboxFault
from guerdon.runtime.contracts.trajectory import EpisodeSpec, Message, Step, ToolCall, Trajectory, Turn

Globs = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rollout:
    """An episode before its verdict: the trajectory, and what was frozen for each verifier's own globs.

    Globs are kept apart so that a verifier gets what it collects and nothing that another one does.
    """

    trajectory: Trajectory
    artefacts: Mapping[Globs, Artefacts]
    seconds: Mapping[str, float]


class SandboxLost(SandboxFault):
    """The sandbox failed after the agent had begun to act, by whose doing is not known here.

    `so_far` is the episode up to then: nothing handed in, nothing to verify, every watched rule broken.
    """

    def __init__(self, fault: SandboxFault, so_far: Rollout) -> None:
        super().__init__(fault.kind, fault.message, fault.remedy)
        self.so_far = so_far


@dataclass(slots=True)
class _State:
    """What an episode has come to so far."""

    limits: LimitsPlan
    box: ToolBox
    deadline: float
    has_tools: bool
    tally: Tally = field(default_factory=Tally)
    steps: list[Step] = field(default_factory=list)
    calls: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    answer: str | None = None
    waited: float = 0.0
    """Seconds that the policy waited for others."""

    def left(self) -> float:
        """Seconds until the wall limit."""
        return self.deadline + self.waited - time.monotonic()


async def rollout(
    episode: EpisodeSpec, task: TaskPlan, instance: InstancePlan, policy: Episode, sandbox: Sandbox | None
) -> Rollout:
    """Run one episode in a sandbox that holds its initial files (None for a task that needs none).

    Whatever the agent does ends in a Rollout; a fault of ours raises SandboxFault (SandboxLost once the agent
    acts), one of the policy's own infrastructure PolicyFault.
    """
    prompt = (Message("user", instance.prompt),)
    before = await fingerprint(sandbox, task.forbids, start=True)
    began = time.monotonic()
    box = ToolBox(task.tools, sandbox)
    state = _State(task.limits, box, began + task.limits.wall_ms / 1000, bool(task.tools))
    lost: SandboxFault | None = None
    ended = began
    try:
        try:
            await _turns(state, policy, prompt)
        finally:
            policy.end()
        ended = time.monotonic()
        artefacts, after = await _freeze(sandbox, instance, task)
    except SandboxFault as fault:
        lost, ended = fault, time.monotonic()
        artefacts, after = _nothing(state, instance, fault)
    violations = await broken(task.forbids, state.calls, before, after)
    trajectory = Trajectory(
        episode=episode, prompt=prompt, steps=tuple(state.steps),
        counters=state.tally.close(task.limits, round((ended - began - state.waited) * 1000), len(violations)),
        answer=None if lost else state.answer if state.answer is not None else _last_words(state.steps),
        artefacts=_digest(artefacts), violations=violations,
    )
    done = Rollout(trajectory, artefacts, {"rollout": ended - began, "freeze": time.monotonic() - ended})
    if lost is not None:
        raise SandboxLost(lost, done) from lost
    return done


async def _turns(state: _State, policy: Episode, prompt: Sequence[Message]) -> None:
    messages = list(prompt)
    while not state.tally.submitted:
        if state.tally.turns >= state.limits.turns or state.left() <= 0:
            state.tally.truncated = True
            return
        began = time.monotonic()
        turn = await _act(state, policy, messages)
        if turn is None:
            return
        try:
            observations = await _answer(state, turn)
        except SandboxFault:
            # What was called last is what people look for.
            state.steps.append(Step(turn, (), time.monotonic() - began))
            raise
        state.steps.append(Step(turn, observations, time.monotonic() - began))
        if state.tally.truncated or (not state.has_tools and not turn.message.calls and not turn.malformed):
            return  # without tools, words are the whole answer
        messages += [turn.message, *observations]


async def _act(state: _State, policy: Episode, messages: Sequence[Message]) -> Turn | None:
    """The policy's next turn; None where it ends the episode, or where its time was up."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(state.left() if policy.timed else None) as limit:
            turn = await policy.act(messages)
    except TimeoutError:
        if not limit.expired():
            raise
        state.tally.truncated = True
        return None
    if not policy.timed:
        state.waited += time.monotonic() - began
    return turn


async def _answer(state: _State, turn: Turn) -> tuple[Message, ...]:
    """Run a turn's calls in order and say what came of each."""
    state.tally.turns += 1
    state.tally.tokens += _tokens(turn)
    if state.limits.tokens is not None and state.tally.tokens > state.limits.tokens:
        # A sampler would have been stopped in the middle of this turn, so nothing of it is carried out.
        state.tally.truncated = True
        return (Message("user", f"The limit of {state.limits.tokens} tokens was reached; nothing was run."),)
    # The reward's proofs count on this bound of calls a turn, of either sort.
    calls, over = turn.message.calls[:MAX_CALLS_PER_TURN], turn.message.calls[MAX_CALLS_PER_TURN:]
    observations = [await _call(state, call) for call in calls]
    told = f"ignored: a turn makes at most {MAX_CALLS_PER_TURN} calls"
    observations += [Message("tool", told, call_id=call.id) for call in over]
    state.tally.malformed(min(len(turn.malformed), MAX_CALLS_PER_TURN - len(calls)))
    if turn.malformed:
        observations.append(Message("user", "\n".join(f"error: {error}" for error in turn.malformed)))
    if not observations and state.has_tools:
        observations.append(Message("user", "No tool was called. Call one, or submit when the work is done."))
    return tuple(observations)


async def _call(state: _State, call: ToolCall) -> Message:
    if state.tally.submitted:
        return Message("tool", "ignored: the episode was submitted before this call", call_id=call.id)
    if state.left() <= 0:
        state.tally.truncated = True
        return Message("tool", "not run: the episode's time limit was reached", call_id=call.id)
    observed = await state.box.call(call, state.left())
    if observed.arguments is None:
        state.tally.malformed()
    else:
        state.tally.called(observed.identity)
        state.calls.append((call.name, observed.arguments))
    if observed.submitted:
        state.tally.submitted, state.answer = True, observed.answer
    return Message("tool", observed.text, call_id=call.id)


_RENDERER = TextRenderer()


def _tokens(turn: Turn) -> int:
    if turn.tokens is not None:
        return sum(turn.tokens.mask)
    if turn.count is not None:
        return turn.count
    return _RENDERER.count(turn.message)


async def _freeze(
    sandbox: Sandbox | None, instance: InstancePlan, task: TaskPlan
) -> tuple[dict[Globs, Artefacts], Fingerprint]:
    """Kill all that the agent left running, then collect: nothing can change what is collected any more."""
    wanted = list(dict.fromkeys(v.collect for v in instance.verify))
    empty = Artefacts((), digest(b""))
    if sandbox is None:
        return dict.fromkeys(wanted, empty), {}
    await sandbox.quiesce()
    after = await fingerprint(sandbox, task.forbids, start=False)
    return {globs: await sandbox.collect(globs) if globs else empty for globs in wanted}, after


def _nothing(
    state: _State, instance: InstancePlan, fault: SandboxFault
) -> tuple[dict[Globs, Artefacts], Fingerprint]:
    """What is left of an agent whose sandbox is gone: no submission, and no file that could be looked at."""
    state.tally.submitted = False
    none = Artefacts((), digest(b""), problem=f"the sandbox was lost under the agent: {fault.message}")
    return {v.collect: none for v in instance.verify}, {}


def _digest(artefacts: Mapping[Globs, Artefacts]) -> str:
    return digest(dumps(sorted([list(globs), found.digest] for globs, found in artefacts.items())))


def _last_words(steps: Sequence[Step]) -> str | None:
    return next((s.turn.message.content for s in reversed(steps) if s.turn.message.content), None)

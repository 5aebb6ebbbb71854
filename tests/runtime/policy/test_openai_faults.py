"""`policy=openai` against a raw HTTP server that does what servers do: refuses, stalls, breaks off, talks nonsense."""

import asyncio
import email.utils
import json
import socket
import time
from contextlib import asynccontextmanager

import pytest

from guerdon.compiler.plan.schema import InstancePlan, ToolPlan
from guerdon.runtime.agent import codec
from guerdon.runtime.contracts.policy import Occasion, PolicyDown, PolicyFault
from guerdon.runtime.contracts.trajectory import Message, ToolCall
from guerdon.runtime.policy import openai_endpoint
from guerdon.runtime.policy.table import deciding, make

KEY = "sk-very-secret-0123456789"
TOOL = ToolPlan("submit", "Hand in.", {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ()})
USER = (Message("user", "1+1?"),)


def answer(content="two", **message):
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return {"choices": [{"message": {"role": "assistant", "content": content, **message}, "finish_reason": "stop"}],
            "usage": usage}


def reply(body, status=200, **headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", "content-type: application/json", f"content-length: {len(data)}",
             *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def refusal(status, message, code=None, **headers):
    return reply({"error": {"message": message, "type": "x", "code": code}}, status, **headers)


class Raw:
    """A server whose answers are played one after the other, the last for ever; None hangs."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.seen = []
        self.heads = []
        self.most = self.now = 0

    async def __call__(self, reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-len"))
                self.seen.append(json.loads(await reader.readexactly(length)))
                self.heads.append(head.decode())
                self.now += 1
                self.most = max(self.most, self.now)
                await asyncio.sleep(0.01)
                self.now -= 1
                data = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if data is None:
                    await asyncio.sleep(60)
                if callable(data):
                    await data(writer)
                else:
                    writer.write(data)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(raw):
    server = await asyncio.start_server(raw, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


@pytest.fixture
def waits(monkeypatch):
    """What the policy would have waited for, in seconds; none of it is waited for."""
    held = []
    monkeypatch.setattr(openai_endpoint._Pace, "hold", lambda self, seconds: held.append(seconds))
    return held


def policy(url, **settings):
    return make("openai", {"base_url": url, "model": "m", "timeout": 5.0, **settings}, codec)


def begin(made, tools=(TOOL,), seed=5):
    row = InstancePlan("add", "r0", "", "1+1?", None, (), (), (), (), {})
    return made.start(Occasion(row, tools, None, None), "openai", seed)


def ask(raw, messages=USER, tools=(TOOL,), **settings):
    async def go():
        async with serving(raw) as url:
            return await begin(policy(url, **settings), tools).act(messages)

    return asyncio.run(go())


def test_a_request_is_what_the_protocol_says():
    raw = Raw(reply(answer()))
    calls = (ToolCall("c1", "submit", '{"answer": "3"}'), ToolCall("c2", "submit", "{oops"))
    history = (*USER, Message("assistant", "", calls), Message("tool", "no", call_id="c1"),
               Message("tool", "bad \ud800", call_id="c2"))
    turn = ask(raw, history, temperature=0.5, top_p=0.9, max_tokens=77)
    assert (turn.message.content, turn.message.calls, turn.tokens, turn.count) == ("two", (), None, 3)
    (sent,) = raw.seen
    assert {k: sent[k] for k in ("model", "temperature", "top_p", "max_tokens", "seed")} == {
        "model": "m", "temperature": 0.5, "top_p": 0.9, "max_tokens": 77, "seed": 5}
    assert sent["tools"] == [{"type": "function", "function": {
        "name": "submit", "description": "Hand in.",
        "parameters": {"type": "object", "properties": {"answer": {"type": "string"}}, "required": []}}}]
    # What a model got wrong is wrapped, since servers read arguments again and fail on what is no object.
    assert sent["messages"] == [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "submit", "arguments": '{"answer": "3"}'}},
            {"id": "c2", "type": "function", "function": {"name": "submit", "arguments": '{"malformed": "{oops"}'}}]},
        {"role": "tool", "content": "no", "tool_call_id": "c1"},
        {"role": "tool", "content": "bad ?", "tool_call_id": "c2"},
    ]


def test_calls_come_back_raw():
    made = [{"id": "a", "type": "function", "function": {"name": "submit", "arguments": '{"answer": '}},
            {"type": "function", "function": {"name": "bash", "arguments": {"command": "ls"}}}]
    turn = ask(Raw(reply(answer(None, tool_calls=made))))
    assert turn.message == Message("assistant", "", (
        ToolCall("a", "submit", '{"answer": '), ToolCall("call_1", "bash", '{"command": "ls"}')))
    twice = [{"id": "a", "function": {"name": "submit", "arguments": "{}"}}] * 2
    assert [c.id for c in ask(Raw(reply(answer(None, tool_calls=twice)))).message.calls] == ["call_0", "call_1"]


def test_hermes_writes_and_reads_text():
    raw = Raw(reply(answer('so <tool_call>{"name": "submit", "arguments": {"answer": "2"}}</tool_call>')))
    history = (*USER, Message("assistant", "", (ToolCall("c", "submit", "{}"),)), Message("tool", "no", call_id="c"))
    turn = ask(raw, history, tool_format="hermes")
    assert turn.message == Message("assistant", "so", (ToolCall("call_0", "submit", '{"answer": "2"}'),))
    (sent,) = raw.seen
    assert "tools" not in sent and [m["role"] for m in sent["messages"]] == ["system", "user", "assistant", "user"]
    assert '"name": "submit"' in sent["messages"][0]["content"]
    assert sent["messages"][2]["content"] == '<tool_call>{"name": "submit", "arguments": {}}</tool_call>'
    assert sent["messages"][3]["content"] == "<tool_response>\nno\n</tool_response>"
    assert ask(Raw(reply(answer("<tool_call>{}</tool_call>"))), tool_format="hermes").malformed


def test_token_ids_go_on_from_turn_to_turn():
    def with_ids(prompt, ids):
        made = answer()
        made["prompt_token_ids"] = prompt
        made["choices"][0] |= {"token_ids": ids, "logprobs": {"content": [{"logprob": -0.5} for _ in ids]}}
        return reply(made)

    async def go():
        raw = Raw(with_ids([1, 2], [3, 4]), with_ids([1, 2, 3, 4, 5], [6]), with_ids([1, 2, 3, 9], [6]),
                  with_ids([1, 2, 3, 9, 6], [7]))
        async with serving(raw) as url:
            episode = begin(policy(url, token_ids=True))
            found = [(await episode.act(USER)).tokens for _ in range(4)]
        assert raw.seen[0]["logprobs"] is True and raw.seen[0]["return_token_ids"] is True
        return found

    first, second, *rest = asyncio.run(go())
    assert (first.ids, first.mask, first.logprobs) == ((1, 2, 3, 4), (0, 0, 1, 1), (0.0, 0.0, -0.5, -0.5))
    assert (second.ids, second.mask) == ((5, 6), (0, 1))
    assert rest == [None, None]  # the server tokenised anew: these are not the ids that were sampled


def test_busy_and_broken_servers_are_asked_again(waits):
    async def cut(writer):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
        await writer.drain()
        writer.close()

    date = email.utils.format_datetime(email.utils.localtime())
    raw = Raw(refusal(429, "slow down", retry_after=7), refusal(500, "oops"), refusal(503, "later", retry_after=date),
              cut, reply(answer()))
    assert ask(raw).message.content == "two"
    assert len(raw.seen) == 5 and len(waits) == 4
    assert waits[0] == 7.0 and waits[1] == 1.0 and waits[2] < 2 and waits[3] == 4.0


def test_a_request_waits_as_long_as_the_server_says():
    raw = Raw(refusal(429, "slow down", retry_after=0.2), reply(answer()))
    began = time.monotonic()
    ask(raw)
    assert time.monotonic() - began >= 0.2


def test_hanging_servers_are_given_up(waits):
    with pytest.raises(PolicyFault, match=r"http://127.0.0.1:\d+/v1 gave no answer within 0.05 s, in 3 tries"):
        ask(Raw(None), timeout=0.05, retries=2)
    with pytest.raises(PolicyFault, match="answered 500: oops, in 2 tries") as wrong:
        ask(Raw(refusal(500, "oops")), retries=1)
    assert not isinstance(wrong.value, PolicyDown)


NONSENSE = {
    "garbage": b"<html>hello</html>", "nothing": b"", "list": b"[]", "deep": b"[" * 100_000, "no choices": {},
    "empty": {"choices": []}, "null": {"choices": [None]}, "no message": {"choices": [{"text": "two"}]},
    "content": answer(5), "calls": answer(tool_calls={"a": 1}), "call": answer(tool_calls=["submit"]),
    "name": answer(tool_calls=[{"id": "a", "function": {"arguments": "{}"}}]),
    "arguments": answer(tool_calls=[{"id": "a", "function": {"name": "submit", "arguments": 5}}]),
    "infinite": b'{"choices": [{"message": {"content": ""}, "logprobs": {"content": [{"logprob": -Infinity}]}}]}',
    "ids": {"choices": [{"message": {"content": ""}, "token_ids": [True]}]},
    "lengths": {"choices": [{"message": {"content": ""}, "token_ids": [1], "logprobs": {"content": []}}]},
}


@pytest.mark.parametrize("body", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_a_fault_of_the_server(body):
    with pytest.raises(PolicyFault, match="does not speak the protocol") as wrong:
        ask(Raw(reply(body)))
    assert not isinstance(wrong.value, PolicyDown) and "\n" not in str(wrong.value) and len(str(wrong.value)) < 400


def test_a_huge_answer_is_not_read_to_its_end(monkeypatch):
    sent = 0

    async def endless(writer):
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        while sent < 1 << 30:
            writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            await writer.drain()
            sent += 0x10000

    monkeypatch.setattr(openai_endpoint, "MOST_BYTES", 1 << 20)
    with pytest.raises(PolicyFault, match="longer than"):
        ask(Raw(endless))
    assert sent < 64 << 20


@pytest.mark.parametrize(("raw", "says"), [
    (refusal(401, f"Incorrect API key: {KEY}"),
     r"refuses the key \(401: Incorrect API key: \[key\]\): \$MY_KEY is set"),
    (refusal(404, "The model `m` does not exist"), "has no model 'm'"),
    (refusal(400, "temperature must be 1"), "refuses the request"),
    (refusal(429, "no money", "insufficient_quota"), "has nothing left"),
])
def test_what_every_episode_would_meet_stops_the_run(raw, says, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    server = Raw(raw)
    with pytest.raises(PolicyDown, match=says) as wrong:
        ask(server, api_key_env="MY_KEY")
    assert len(server.seen) == 1 and KEY not in str(wrong.value) and "127.0.0.1" in str(wrong.value)
    assert f"Bearer {KEY}" in server.heads[0]  # which is where it belongs


def test_nobody_there_is_told_at_once(waits):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        with pytest.raises(PolicyDown, match=f"{url} cannot be reached .*; start the server, or mend policy.base_url"):
            asyncio.run(begin(policy(url)).act(USER))
    assert waits == []


def test_after_an_answer_a_refusal_is_about_one_conversation():
    full = refusal(400, "This model's maximum context length is 100 tokens.", "context_length_exceeded")

    async def go():
        async with serving(Raw(reply(answer()), refusal(400, "a picture"), full)) as url:
            episode = begin(policy(url))
            await episode.act(USER)
            with pytest.raises(PolicyFault) as wrong:
                await episode.act(USER)
            assert not isinstance(wrong.value, PolicyDown)
            assert await episode.act((*USER, Message("assistant", "two"), Message("user", "go on"))) is None
            with pytest.raises(PolicyFault, match="no place in the model's context"):
                await episode.act(USER)

    asyncio.run(go())


def test_a_spent_budget_stops_the_run():
    async def go(body, budget):
        async with serving(Raw(reply(body))) as url:
            made = policy(url, token_budget=budget)
            await begin(made).act(USER)
            await begin(made).act(USER)
            with pytest.raises(PolicyDown, match="20 of policy.token_budget=15"):
                await begin(made).act(USER)

    asyncio.run(go(answer(), 15))
    silent = answer() | {"usage": None}
    with pytest.raises(PolicyDown, match="does not say what an answer costs"):
        asyncio.run(go(silent, 15))


def test_requests_side_by_side_are_bounded():
    async def go(**settings):
        raw = Raw(reply(answer()))
        async with serving(raw) as url:
            made = policy(url, **settings)
            await asyncio.gather(*(begin(made).act(USER) for _ in range(6)))
        return raw.most

    assert asyncio.run(go()) > 2
    assert asyncio.run(go(concurrent=2)) <= 2


def test_requests_a_minute_are_at_even_distances():
    began = time.monotonic()

    async def go():
        async with serving(Raw(reply(answer()))) as url:
            made = policy(url, requests_per_minute=600)
            await asyncio.gather(*(begin(made).act(USER) for _ in range(4)))

    asyncio.run(go())
    assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize(("settings", "says"), [
    ({"base_url": ""}, "policy.base_url"), ({"model": ""}, "policy.model"), ({"base_url": "localhost:80"}, "base_url"),
    ({"base_url": "http://me:pw@host/v1"}, "a password"), ({"base_url": "http://host/v1?key=x"}, "a query"),
    ({"base_url": "http://[::1/v1"}, "base_url"), ({"temperature": -1.0}, "temperature"), ({"top_p": 0.0}, "top_p"),
    ({"max_tokens": 0}, "max_tokens"), ({"timeout": 0.0}, "timeout"), ({"retries": -1}, "retries"),
    ({"tool_format": "xml"}, "native or hermes"), ({"api_key_env": KEY}, "not the key"),
])
def test_settings_are_checked(settings, says):
    with pytest.raises(PolicyFault, match=says) as wrong:
        policy("http://host/v1", **settings)
    assert KEY not in str(wrong.value) and "pw" not in str(wrong.value).replace("policy", "")


def test_how_a_server_is_asked_does_not_make_another_run():
    one = {"base_url": "u", "model": "m", "temperature": 0.7, "timeout": 5.0, "token_budget": 7, "api_key_env": "A"}
    assert deciding("openai", one) == {"base_url": "u", "model": "m", "temperature": "0.7"}
    assert deciding("scripted", {"script": "a", "timeout": 1}) == {"script": "a", "timeout": 1}

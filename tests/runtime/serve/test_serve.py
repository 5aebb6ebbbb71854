"""The official client against our server: answers, tools, log-probabilities, streams, errors, sessions, batches."""

import asyncio
import json
import threading
import urllib.request

import openai
import pytest

from guerdon.runtime.agent.renderer import ByteCodec, TextRenderer
from guerdon.runtime.contracts.trajectory import Message
from guerdon.runtime.serve.app import Limits
from guerdon.runtime.serve.batcher import Batcher
from guerdon.runtime.serve.conversations import Conversations
from guerdon.runtime.serve.errors import Refused
from guerdon.runtime.serve.request import read_request

END = ByteCodec.markers["end"]
TOOLS = [{"type": "function", "function": {"name": "submit", "description": "Hand in.",
                                           "parameters": {"type": "object"}}}]


def client(url, key="none", retries=0):
    return openai.OpenAI(base_url=url, api_key=key, max_retries=retries, timeout=20)


def user(text):
    return [{"role": "user", "content": text}]


def ask(one, text="1+1?", **more):
    messages = user(text) if isinstance(text, str) else text
    return one.chat.completions.create(model="toy", messages=messages, **more)


def test_an_answer_with_everything(serve, sums):
    with serve(sums) as url:
        found = ask(client(url), "20+3?", logprobs=True, seed=9, temperature=0.5, top_p=0.75, max_tokens=7,
                    extra_body={"return_token_ids": True})
        models = client(url).models.list().data
        assert json.load(urllib.request.urlopen(url.removesuffix("/v1") + "/health")) == {"status": "ok"}
    assert [m.id for m in models] == ["toy"]
    choice = found.choices[0]
    assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == ("23", None, "stop")
    ids = TextRenderer().start([Message("user", "20+3?")], ())
    assert found.prompt_token_ids == list(ids) and choice.token_ids == [*b"23", END]
    assert [(x.token, x.logprob, x.bytes) for x in choice.logprobs.content] == [
        ("2", -0.25, [50]), ("3", -0.265625, [51]), (f"token_id:{END}", -0.28125, [])]
    assert found.usage.model_dump(exclude_none=True) == {
        "prompt_tokens": len(ids), "completion_tokens": 3, "total_tokens": len(ids) + 3}
    (request,) = sums.requests
    assert (request.ids, request.seed, request.turn) == (ids, 9, 0)
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.stop) == (7, 0.5, 0.75, (END,))


def test_the_model_ran_out_of_tokens(serve, sums):
    with serve(sums) as url:
        found = ask(client(url), "say abcdefyas", max_completion_tokens=3).choices[0]
    assert (found.message.content, found.finish_reason) == ("abc", "length")


def test_stop_texts_end_a_turn(serve, sums):
    with serve(sums) as url:
        found = ask(client(url), "say one two threeyas", stop=["three", " tw"], logprobs=True)
    choice = found.choices[0]
    assert (choice.message.content, choice.finish_reason) == ("one", "stop")
    assert len(choice.logprobs.content) == found.usage.completion_tokens == len("one tw")


def test_calls_are_given_where_tools_are(serve, sums):
    sums.tools = True
    with serve(sums) as url:
        one = client(url)
        choice = ask(one, "2+2?", tools=TOOLS).choices[0]
        (call,) = choice.message.tool_calls
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
        assert (call.function.name, call.function.arguments) == ("submit", '{"answer": "4"}')
        plain = ask(one, "2+2?").choices[0]
        assert plain.message.content == '<tool_call>{"name": "submit", "arguments": {"answer": "4"}}</tool_call>'
        assert plain.finish_reason == "stop"
        broken = ask(one, "say <tool_call>{oopsyas", tools=TOOLS).choices[0]
        assert (broken.message.content, broken.message.tool_calls) == ("<tool_call>{oops", None)


def test_a_stream_says_the_same(serve, sums):
    sums.tools = True
    with serve(sums) as url:
        one = client(url)
        chunks = list(ask(one, "2+2?", tools=TOOLS, stream=True, stream_options={"include_usage": True}, logprobs=True))
        words = list(ask(one, "say helloyas", stream=True))
    first, last, usage = chunks
    (call,) = first.choices[0].delta.tool_calls
    assert (call.index, call.function.arguments) == (0, '{"answer": "4"}')
    assert len(first.choices[0].logprobs.content) == usage.usage.completion_tokens
    assert last.choices[0].finish_reason == "tool_calls" and usage.choices == []
    assert "".join(c.choices[0].delta.content or "" for c in words) == "hello"
    assert words[-1].choices[0].finish_reason == "stop"


def test_a_conversation_goes_on_from_its_own_ids(serve, sums):
    """`say` makes text that the renderer would write otherwise: arguments without a space."""
    odd = '<tool_call>{"name":"submit","arguments":{"answer":"4"}}</tool_call>'
    with serve(sums) as url:
        one = client(url)
        opening = user(f"say {odd}yas")
        reply = ask(one, opening, tools=TOOLS).choices[0].message
        (call,) = reply.tool_calls
        more = [*opening, reply.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": call.id, "content": "no"}]
        ask(one, more, tools=TOOLS)
        ask(one, more, tools=TOOLS)  # sent again, after a lost answer
        edited = [*opening, {"role": "assistant", "content": "5"}, *user("say xyas")]
        ask(one, edited, tools=TOOLS)
    first, second, again, other = sums.requests
    sampled = (*odd.encode(), END)
    assert second.ids[: len(first.ids) + len(sampled)] == first.ids + sampled and second.turn == 1
    assert again.ids == second.ids and first.session == second.session == again.session
    assert other.session != first.session


def test_two_conversations_with_one_beginning_do_not_share_a_session_at_once():
    known = Conversations(most=2)
    opening = (Message("user", "hi"),)
    one, two = known.find("", (), opening), known.find("", (), opening)
    assert one.session != two.session and one.ids == two.ids == ()
    for place in (one, two):
        known.keep(place, Message("assistant", "yes"), (1, 2, 3))
        assert known.release(place) == []
    longer = (*opening, Message("assistant", "yes"), Message("user", "so?"))
    three, four = known.find("", (), longer), known.find("", (), longer)
    assert three.ids == four.ids == (1, 2, 3) and (three.at, three.session) == (2, two.session)
    known.keep(four, Message("assistant", "done"), (1, 2, 3, 4))
    assert known.release(four) == [one.session]  # the one used longest ago
    assert known.release(known.find("x", (), opening)) == ["named x"]  # nothing came of it


def test_named_sessions(serve, sums):
    with serve(sums, limits=Limits(sessions=1)) as url:
        one = client(url)
        ask(one, "1+1?", extra_headers={"X-Session-ID": "a"})
        ask(one, "1+2?", extra_headers={"X-Session-ID": "a"})
        ask(one, "1+3?", user="b")
        ask(one, "1+4?")
    assert [r.session for r in sums.requests] == ["named a", "named a", "named b", "session 1"]
    assert sums.forgotten == ["named a", "named b"]


def test_who_waits_together_is_sampled_together(serve, sums):
    sums.gate = threading.Event()
    sums.gate.set()

    async def go(url):
        one = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
        first = asyncio.create_task(ask(one, "0+0?"))
        while not sums.batches:
            await asyncio.sleep(0.002)
        rest = [asyncio.create_task(ask(one, f"{n}+1?")) for n in range(5)]
        await asyncio.sleep(0.2)
        with pytest.raises(openai.RateLimitError) as full:
            await ask(one, "9+9?")
        assert full.value.response.headers["retry-after"] == "1"
        sums.gate.clear()
        return [(await task).choices[0].message.content for task in (first, *rest)]

    with serve(sums, limits=Limits(waiting=5)) as url:
        assert asyncio.run(go(url)) == ["0", "1", "2", "3", "4", "5"]
    assert [len(batch) for batch in sums.batches] == [1, 5]


def test_who_hangs_up_is_left_out(serve, sums):
    sums.gate = threading.Event()
    sums.gate.set()

    async def go(url):
        one = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
        first = asyncio.create_task(ask(one, "0+0?"))
        while not sums.batches:
            await asyncio.sleep(0.002)
        gone = asyncio.create_task(ask(one, "1+1?"))
        await asyncio.sleep(0.1)
        gone.cancel()
        await asyncio.sleep(0.1)
        sums.gate.clear()
        await first
        await ask(one, "2+2?")

    with serve(sums) as url:
        asyncio.run(go(url))
    assert [len(batch) for batch in sums.batches] == [1, 1] and len(sums.requests) == 2


def test_one_bad_request_does_not_take_the_others():
    class Picky:
        async def generate(self, requests):
            if any(r == "bad" for r in (r.session for r in requests)):
                raise RuntimeError("no")
            return [r.session for r in requests]

        async def forget(self, sessions):
            pass

    class Ask:
        def __init__(self, session):
            self.session = session

    async def go():
        batcher = Batcher(Picky(), most=2)
        return await asyncio.gather(*(batcher.generate(Ask(n)) for n in ("a", "bad", "b", "b")), return_exceptions=True)

    first, bad, *rest = asyncio.run(go())
    assert (first, rest) == ("a", ["b", "b"]) and "RuntimeError: no" in str(bad)


def test_what_is_wrong_is_told_in_the_protocols_own_errors(serve, sums):
    with serve(sums, key="let-me-in", limits=Limits(body=9000)) as url:
        one = client(url, "let-me-in")
        with pytest.raises(openai.AuthenticationError) as wrong:
            ask(client(url, "guess"))
        assert wrong.value.code == "invalid_api_key"
        with pytest.raises(openai.NotFoundError, match="there is no model 'gpt' here; it is 'toy'"):
            one.chat.completions.create(model="gpt", messages=user("hi"))
        with pytest.raises(openai.BadRequestError, match="maximum context length is 4000 tokens") as wrong:
            ask(one, "x" * 4000)
        assert wrong.value.code == "context_length_exceeded"
        with pytest.raises(openai.APIStatusError) as wrong:
            ask(one, "x" * 9000)
        assert wrong.value.status_code == 413
        with pytest.raises(openai.InternalServerError, match="rank 0 died"):
            ask(one, "break")
        with pytest.raises(openai.NotFoundError, match="there is no POST /v1/embeddings"):
            one.embeddings.create(model="toy", input="x")
        plain = urllib.request.Request(f"{url}/chat/completions", b"{}", {"Authorization": "Bearer let-me-in",
                                                                          "content-type": "text/plain"})
        with pytest.raises(urllib.error.HTTPError, match="415"):
            urllib.request.urlopen(plain)
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(url.removesuffix("/v1") + "/health")
        assert ask(one, "1+1?").choices[0].message.content == "2"


@pytest.mark.parametrize(("change", "says"), [
    ({"n": 2}, "n must be 1"), ({"n": True}, "n must be 1"), ({"top_logprobs": 3}, "top_logprobs"),
    ({"frequency_penalty": 0.5}, "frequency_penalty"), ({"best_of": 2}, "'best_of' is not supported"),
    ({"temperature": -1}, "temperature"), ({"temperature": "hot"}, "temperature"), ({"top_p": 0}, "top_p"),
    ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": 1.5}, "max_tokens"), ({"seed": 2**70}, "seed"),
    ({"stop": ["a"] * 17}, "stop"), ({"stop": [""]}, "stop"), ({"stream": 1}, "stream"),
    ({"messages": []}, "one message"), ({"messages": {}}, "a list"), ({"messages": ["hi"]}, r"messages\[0\] must have"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "must be text"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "tool_call_id"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, "last message"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": 1}]}, {"role": "user", "content": ""}]}, "tool_calls"),
    ({"tools": [{"type": "function"}]}, r"tools\[0\]"), ({"tools": [{"type": "custom"}]}, r"tools\[0\]"),
    ({"tool_choice": "required"}, "tool_choice"), ({"stream_options": {}}, "stream_options"),
])
def test_requests_are_checked(change, says):
    body = {"model": "toy", "messages": [{"role": "user", "content": "hi"}], **change}
    with pytest.raises(Refused, match=says) as wrong:
        read_request(json.dumps(body).encode(), "toy")
    assert wrong.value.status == 400


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 10**5, b'{"a":' * 200 + b"1" + b"}" * 200])
def test_bodies_that_are_none(body):
    with pytest.raises(Refused) as wrong:
        read_request(body, "toy")
    assert wrong.value.status == 400 and len(wrong.value.message) < 300


def test_text_that_no_utf8_can_hold_is_mended():
    body = b'{"model": "toy", "messages": [{"role": "user", "content": [{"type": "text", "text": "a\\ud800"}]}]}'
    assert read_request(body, "toy").messages == (Message("user", "a?"),)


def test_without_a_seed_each_answer_has_its_own(serve, sums):
    with serve(sums) as url:
        for _ in range(2):
            ask(client(url))
    one, two = (r.seed for r in sums.requests)
    assert one != two

"""A sampler that does sums, served over real HTTP."""

import asyncio
import re
import threading
import time
from contextlib import contextmanager

import pytest
import uvicorn

from guerdon.runtime.agent.renderer import ByteCodec, TextRenderer
from guerdon.runtime.contracts.sampling import Sampled, SamplerFault
from guerdon.runtime.serve.app import make_app

END = ByteCodec.markers["end"]
CONTEXT = 4000
CALL = '<tool_call>{"name": "submit", "arguments": {"answer": "%d"}}</tool_call>'


class Sums:
    """Reads the last message: answers `a+b?`, right or (an odd seed, `wrong`) one too much; says other things as told.

    `batches` are the sessions of each call, `prompts` the ids of each session's last request.
    """

    def __init__(self):
        self.batches, self.forgotten, self.requests = [], [], []
        self.wrong = False
        self.tools = False
        self.gate = None

    async def generate(self, requests):
        assert len({r.session for r in requests}) == len(requests)
        self.batches.append([r.session for r in requests])
        self.requests += requests
        if self.gate is not None:
            while self.gate.is_set():
                await asyncio.sleep(0.002)
        if any(b"break" in bytes(i for i in r.ids if i < 256) for r in requests):
            raise SamplerFault("rank 0 died; start it again")
        return [self.one(r) for r in requests]

    def one(self, request):
        body = bytes(i for i in request.ids[: -1] if i < 256).decode()
        asked = re.findall(r"(\d+)\+(\d+)\?", body)
        if "say " in body:
            text = body.rpartition("say ")[2].partition("yas")[0]
        elif asked:
            n = sum(map(int, asked[-1])) + (self.wrong and request.seed % 2)
            text = CALL % n if self.tools else str(n)
        else:
            text = "?"
        ids = (*text.encode(), END)[: request.sampling.max_tokens]
        return Sampled(ids, tuple(-0.25 - i / 64 for i in range(len(ids))), 3, ids[-1] == END)

    async def forget(self, sessions):
        self.forgotten += sessions


@contextmanager
def listening(app):
    """The app behind uvicorn in a thread; gives its base URL."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def serve():
    """`with serve(sampler, **settings) as url`."""
    @contextmanager
    def go(sampler, **settings):
        app = make_app(sampler, TextRenderer(), "toy", context=CONTEXT, **settings)
        with listening(app) as url:
            yield url

    return go


@pytest.fixture
def sums():
    return Sums()

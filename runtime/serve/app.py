"""A model behind the Chat Completions protocol: `make_app` is an ASGI application, for uvicorn or any other server."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from guerdon.runtime.contracts.renderer import Renderer
from guerdon.runtime.contracts.sampling import Request, Sampled, Sampler, SamplerFault, Sampling
from guerdon.runtime.serve.answer import Reply, events, make_reply, whole
from guerdon.runtime.serve.batcher import Batcher, QueueFull
from guerdon.runtime.serve.conversations import Conversations, Place
from guerdon.runtime.serve.errors import Refused
from guerdon.runtime.serve.request import ChatRequest, read_request

SESSION = "x-session-id"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server takes on: turns a batch, requests that wait, conversations kept, bytes of a request, and the
    tokens of a turn where a request does not say."""

    batch: int = 64
    waiting: int = 256
    sessions: int = 64
    body: int = 8 * 1024 * 1024
    max_tokens: int = 1024


def make_app(
    sampler: Sampler, renderer: Renderer, model: str, *, context: int,
    key: str = "", limits: Limits | None = None, seed: int = 0,
) -> Starlette:
    """An application that samples `model`.

    `context` is the longest sequence, in ids. With a `key`, requests must bear it. Requests that name no seed get one
    of `seed` and their number.
    """
    limits = limits or Limits()
    server = _Server(sampler, renderer, model, context, key, limits, seed)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await server.batcher.close()

    routes = [
        Route("/v1/chat/completions", server.guarded(server.chat), methods=["POST"]),
        Route("/v1/models", server.guarded(server.models)),
        Route("/health", server.health),
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _no_such, Exception: _defect})


Handler = Callable[[HttpRequest], Awaitable[Response]]


@dataclass(slots=True)
class _Server:
    sampler: Sampler
    renderer: Renderer
    model: str
    context: int
    key: str
    limits: Limits
    seed: int
    batcher: Batcher = field(init=False)
    conversations: Conversations = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        self.batcher = Batcher(self.sampler, self.limits.batch, self.limits.waiting)
        self.conversations = Conversations(self.limits.sessions)

    def guarded(self, handler: Handler) -> Handler:
        """A handler behind the key, whose refusals are answers."""
        async def answer(http: HttpRequest) -> Response:
            try:
                given = http.headers.get("authorization", "").removeprefix("Bearer ")
                if self.key and not hmac.compare_digest(given.encode(), self.key.encode()):
                    raise Refused("the API key is missing or wrong; send Authorization: Bearer KEY", 401,
                                  code="invalid_api_key")
                return await handler(http)
            except Refused as refused:
                return JSONResponse(refused.body(), refused.status, dict(refused.headers))

        return answer

    async def health(self, http: HttpRequest) -> Response:
        """Whether turns can be sampled."""
        if self.batcher.fault:
            return JSONResponse({"status": "failing"}, 503)
        return JSONResponse({"status": "ok"})

    async def models(self, http: HttpRequest) -> Response:
        """The one model."""
        one = {"id": self.model, "object": "model", "created": 0, "owned_by": "guerdon", "max_model_len": self.context}
        return JSONResponse({"object": "list", "data": [one]})

    async def chat(self, http: HttpRequest) -> Response:
        """One turn."""
        request = read_request(await self._body(http), self.model)
        reply = await _unless_gone(http, self._reply(request, http.headers.get(SESSION, request.user)[:256]))
        if request.stream:
            return StreamingResponse(events(reply, request, self.renderer.decode), media_type="text/event-stream")
        return JSONResponse(whole(reply, request, self.renderer.decode))

    async def _body(self, http: HttpRequest) -> bytes:
        # A page in a browser cannot send this type here without being asked for leave first.
        if http.headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
            raise Refused("the content type must be application/json", 415)
        body = bytearray()
        async for chunk in http.stream():
            body += chunk
            if len(body) > self.limits.body:
                raise Refused(f"the request is longer than {self.limits.body} bytes", 413)
        return bytes(body)

    async def _reply(self, request: ChatRequest, session: str) -> Reply:
        self.count += 1
        name = f"chatcmpl-{self.count}"
        place = self.conversations.find(session, request.tools, request.messages)
        try:
            prompt = self._prompt(place, request)
            sampled = await self._sample(place, request, prompt)
            reply = make_reply(
                request, prompt, sampled,
                name=name, model=self.model, renderer=self.renderer,
            )
            if reply.sampled.ids:
                self.conversations.keep(place, reply.message, prompt + reply.sampled.ids)
            return reply
        finally:
            self.batcher.forget(self.conversations.release(place))

    def _prompt(self, place: Place, request: ChatRequest) -> tuple[int, ...]:
        messages = request.messages[place.at :]
        try:
            if place.ids:
                prompt = self.renderer.extend(place.ids, messages)
            else:
                prompt = self.renderer.start(messages, request.tools)
        except ValueError as wrong:
            raise Refused(f"the messages cannot be shown to this model: {wrong}", param="messages") from None
        if len(prompt) >= self.context:
            raise Refused(
                f"This model's maximum context length is {self.context} tokens, and the messages are {len(prompt)}; "
                "send fewer", param="messages", code="context_length_exceeded",
            )
        return prompt

    async def _sample(self, place: Place, request: ChatRequest, prompt: tuple[int, ...]) -> Sampled:
        most = min(request.max_tokens or self.limits.max_tokens, self.context - len(prompt))
        sampling = Sampling(most, request.temperature, request.top_p, self.renderer.stop)
        turn = sum(message.role == "assistant" for message in request.messages)
        seed = self._own_seed() if request.seed is None else request.seed % 2**63
        try:
            return await self.batcher.generate(Request(place.session, prompt, sampling, seed, turn))
        except QueueFull:
            raise Refused(f"{self.limits.waiting} requests wait already; try again", 429, code="queue_full",
                          headers={"retry-after": "1"}) from None
        except SamplerFault as fault:
            raise Refused(f"the model could not be sampled: {fault}", 500) from None

    def _own_seed(self) -> int:
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{self.count}".encode()).digest()[:8], "big") >> 1


async def _unless_gone(http: HttpRequest, work: Awaitable[Reply]) -> Reply:
    """The reply; a client that hangs up is no longer worked for."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(http))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Refused("the client is gone", 499)
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnected(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def _no_such(http: HttpRequest, wrong: Exception) -> Response:
    status = wrong.status_code if isinstance(wrong, HTTPException) else 500
    refused = Refused(f"there is no {http.method} {http.url.path}; see /v1/models and /v1/chat/completions", status)
    return JSONResponse(refused.body(), status)


async def _defect(http: HttpRequest, wrong: Exception) -> Response:
    # The server's log has the traceback.
    return JSONResponse(Refused("a defect of the server; its log says more", 500).body(), 500)

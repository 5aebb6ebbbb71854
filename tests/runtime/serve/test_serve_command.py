"""`guerdon serve-policy`: a checkpoint of the learner behind HTTP, and what is refused."""

import asyncio
import os
import signal
import threading

import openai
import pytest

from guerdon.runtime.agent.compact import CompactRenderer
from guerdon.runtime.cli import serve
from guerdon.runtime.contracts.sampling import Request, Sampling
from guerdon.runtime.contracts.trajectory import Message
from guerdon.runtime.learner.ranks import Ranks
from guerdon.runtime.learner.shape import LearnerConfig, ModelShape

TINY = ModelShape(layers=1, hidden=16, ffn=32, heads=2, kv_heads=1, head_dim=8, context=96)


def test_a_checkpoint_is_served_as_it_was_saved(tmp_path, capsys, monkeypatch):
    """The same ids and log-probabilities over HTTP as from the learner that saved it; one start serves both."""
    found = {}
    prompt = CompactRenderer().start([Message("user", "hi")], ())

    async def save():
        ranks = await Ranks.start(LearnerConfig(TINY, seed=3, threads=1))
        request = Request("s", prompt, Sampling(8, 1.0, 1.0, (260,)), 11, 0)
        found["direct"], = await ranks.generate([request])
        await ranks.save(tmp_path / "run/checkpoints/step-000007")
        return ranks

    def ask():
        for _ in range(1200):
            if "serving" in (said := capsys.readouterr().err):
                break
            threading.Event().wait(0.05)
        url = said.split(" at ")[1].split(";")[0]
        try:
            one = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
            found["served"] = one.chat.completions.create(
                model="run", messages=[{"role": "user", "content": "hi"}], max_tokens=8, seed=11, logprobs=True,
                extra_body={"return_token_ids": True})
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    async def both():
        ranks = await save()

        async def start(config):
            assert config == LearnerConfig(TINY, threads=1)
            return ranks

        monkeypatch.setattr(Ranks, "start", start)
        client = threading.Thread(target=ask)
        client.start()
        options = serve._options([str(tmp_path / "run"), "--port", "0", "--threads", "1"])
        try:
            with serve._bound("127.0.0.1", 0) as listening:
                await serve._serve(options, listening)
        finally:
            client.join()
            await ranks.close()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(both())
    choice = found["served"].choices[0]
    assert choice.token_ids == list(found["direct"].ids) and found["served"].prompt_token_ids == list(prompt)
    assert tuple(x.logprob for x in choice.logprobs.content) == found["direct"].logprobs


@pytest.mark.parametrize(("words", "says"), [
    (["nowhere"], "nowhere is no model: name a checkpoint"), (["x", "--host", "0.0.0.0"], "set $GUERDON_API_KEY"),
    (["x", "--batch", "0"], "--batch is 0"), (["x", "--renderer", "tex"], "no renderer 'tex'"),
    (["x", "--port", "99999"], "choose another with --port"),
])
def test_what_is_refused(words, says, capsys, monkeypatch):
    monkeypatch.delenv("GUERDON_API_KEY", raising=False)
    assert serve.main([*words, *([] if "--port" in words else ["--port", "0"])]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and says in said and said.count("\n") == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"shape": {"rope_scaling": null, "layer": 3}}', '{"shape": 3}'])
def test_a_manifest_that_says_no_model(tmp_path, text):
    (tmp_path / "guerdon.json").write_text(text)
    with pytest.raises(serve.RunError, match="does not say what the model is"):
        serve._config(tmp_path, 1)


@pytest.mark.parametrize(("name", "vocab", "fits"), [
    ("compact", 261, True), ("hermes", 151936, False), ("compact", 260, False),
])
def test_a_renderer_of_another_vocabulary_is_refused(name, vocab, fits):
    if fits:
        serve._fits(serve.make(name, ""), vocab, name)
        return
    with pytest.raises(serve.RunError, match=f"not for this model of {vocab} ids"):
        serve._fits(serve.make(name, ""), vocab, name)

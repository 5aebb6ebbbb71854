"""A controller that says its ranks' process ids and is then killed: `python controller.py`."""

import asyncio

from guerdon.runtime.learner.ranks import Ranks
from guerdon.runtime.learner.shape import LearnerConfig, ModelShape, Parallel

TINY = ModelShape(layers=2, hidden=16, ffn=24, heads=2, kv_heads=2, head_dim=8, vocab=31, context=64)


async def main() -> None:
    ranks = await Ranks.start(LearnerConfig(model=TINY, parallel=Parallel(2, pipeline=2), threads=1))
    print(*(member.pid for member in ranks._processes.members), flush=True)
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main())

"""Write sums.jsonl: 3,000 expressions in ten blocks that share no operand (run it again: the same bytes).

The pack splits by block, so the expressions of its eval split use numbers that training never shows.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

BLOCKS, ROWS_A_BLOCK, SEED = 10, 300, 20261201


def blocks(rng: random.Random) -> list[list[int]]:
    """The numbers 1 to 999 in disjoint blocks, each with its share of one-, two- and three-digit ones."""
    made: list[list[int]] = [[] for _ in range(BLOCKS)]
    for low, high in ((1, 10), (10, 100), (100, 1000)):
        numbers = list(range(low, high))
        rng.shuffle(numbers)
        for place, number in enumerate(numbers):
            made[place % BLOCKS].append(number)
    return made


def expression(rng: random.Random, numbers: list[int]) -> str:
    """Two or three operands of a block; never a product of three long ones."""
    count = rng.choice((2, 2, 3))
    parts = [str(rng.choice(numbers))]
    products = 0
    for _ in range(count - 1):
        operator = rng.choice("+-*" if not products else "+-")
        products += operator == "*"
        parts += [operator, str(rng.choice(numbers))]
    return "".join(parts)


def wrong(rng: random.Random, value: int) -> int:
    """A number near the right one, as somebody who does the sum in the head would say."""
    size = max(1, abs(value) // 10)
    return value + rng.choice((-1, 1)) * rng.randint(1, size + 9)


def main() -> None:
    rng = random.Random(SEED)
    seen: set[str] = set()
    lines = []
    for block, numbers in enumerate(blocks(rng)):
        made = 0
        while made < ROWS_A_BLOCK:
            expr = expression(rng, numbers)
            if expr in seen:
                continue
            seen.add(expr)
            value = eval(expr, {"__builtins__": {}})  # noqa: S307 - digits and operators made above
            lines.append({
                "id": f"s{len(lines):04d}", "block": block, "expr": expr, "value": str(value),
                "guess": str(wrong(rng, value)), "ask": f"echo $(({expr}))", "echo": f"echo {expr}",
            })
            made += 1
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (Path(__file__).parent / "sums.jsonl").write_text(text)


if __name__ == "__main__":
    main()

import collections
import sys


def main():
    counts = collections.Counter(sys.stdin.read().lower().split())
    return [f"{word} {n}" for word, n in sorted(counts.items(), key=lambda p: (-p[1], p[0]))[:3]]


print("\n".join(main()))

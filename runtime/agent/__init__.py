"""The agent's side of an episode: tools, renderer, counters, rules, the rollout itself."""

"""Training: rollouts in lockstep, verified rewards, advantages, updates; stopped and gone on with at any step."""

"""From a plan to trajectories to weights: sandboxes, agents, verifiers, stores, loops, the command line."""

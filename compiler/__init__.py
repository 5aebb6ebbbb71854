"""From trees to a plan: names, types and units, analyses, assets. Pure; never runs a pack's code."""

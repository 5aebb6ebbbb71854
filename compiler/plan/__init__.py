"""The plan: schema, typed reward expression, its evaluator, the canonical writer. Standard library only."""

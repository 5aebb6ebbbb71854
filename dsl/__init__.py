"""Text and trees of the task language: source, parser, syntax tree, diagnostics, the std library."""

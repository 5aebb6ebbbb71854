"""What a person sees of a run: progress and tables."""

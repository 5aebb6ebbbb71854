"""What outlives a run: the journal of sealed episodes and the content-addressed assets."""

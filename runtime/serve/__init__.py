"""A sampler served over HTTP: the OpenAI chat completions protocol."""

"""The learner: Megatron-core ranks behind a small interface, and a sampler over their own tensors."""

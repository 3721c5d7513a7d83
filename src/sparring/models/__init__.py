"""Small models for development: `tiny`, with random weights, and `smollm2`, which is pretrained."""

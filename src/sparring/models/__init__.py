"""Small models for development: a random one for shapes, and a pretrained one that learns."""

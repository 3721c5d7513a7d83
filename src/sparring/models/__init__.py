"""Small models for development: a random one for shapes, a pretrained one that learns."""

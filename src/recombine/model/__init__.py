"""The models, each written for one episode."""

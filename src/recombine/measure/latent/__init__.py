"""Measures of the latent: what happens when it is replaced or improved, and which modules it mixes."""

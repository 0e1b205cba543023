"""The tasks: latents, teachers, and the episodes drawn from them."""

"""The tasks: masks, supports, latents, teachers and the episodes drawn from them."""

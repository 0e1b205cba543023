"""Measures of a trained model: scores, probes, interventions, and the references to compare them with."""

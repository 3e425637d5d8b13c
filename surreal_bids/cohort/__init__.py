"""From tables to a screened cohort; knows nothing of models."""

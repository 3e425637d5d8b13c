"""Figures and pages that people look at."""

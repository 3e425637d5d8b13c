"""Surreal-GAN: many members trained at once, chosen by agreement."""

"""Surreal-GAN: many members trained at once, chosen by agreement."""

from surreal_bids.model.estimator import SurrealGAN

__all__ = ['SurrealGAN']

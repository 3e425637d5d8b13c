"""The experiments of the Surreal-GAN paper, unit by unit; `benchmarks/paper.py` runs them."""

"""Statistics shared by the layers above: concordance and friends."""

"""The dataset: queries, participants, names of every output."""

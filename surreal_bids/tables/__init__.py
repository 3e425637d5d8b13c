"""From a table of people to R-indices: preprocessing and model as one thing that can be saved."""

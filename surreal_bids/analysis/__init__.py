"""From R-indices to results: computed once, written in one place."""

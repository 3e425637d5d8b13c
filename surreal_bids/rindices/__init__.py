"""From a cohort to R-indices: preprocessing, the model, cross-fitting, uncertainty."""

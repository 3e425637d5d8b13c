"""Site effects and covariates: ComBat, residualisation, CN normalisation."""

"""surreal_bids: R-indices of disease-related brain patterns from T1-weighted MRI."""

__version__ = '0.1.0.dev0'

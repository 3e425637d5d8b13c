"""The methods that the paper compares Surreal-GAN with (section 4.2, appendix B.4)."""

from surreal_bids.baselines.base import Baseline
from surreal_bids.baselines.dnmf import DiscriminantNMF
from surreal_bids.baselines.factor import FactorBaseline
from surreal_bids.baselines.lda import LDABaseline
from surreal_bids.baselines.nmf import NMFBaseline
from surreal_bids.baselines.opnmf import OrthogonalProjectiveNMF

BASELINES: dict[str, type[Baseline]] = {
    'NMF': NMFBaseline,
    'LDA': LDABaseline,
    'FA': FactorBaseline,
    'OpNMF': OrthogonalProjectiveNMF,
    'DNMF': DiscriminantNMF,
}
"""The methods by the names, and in the order, of Table 1."""

__all__ = [
    'BASELINES',
    'Baseline',
    'DiscriminantNMF',
    'FactorBaseline',
    'LDABaseline',
    'NMFBaseline',
    'OrthogonalProjectiveNMF',
]

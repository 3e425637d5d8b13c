"""The methods that the paper compares Surreal-GAN with (section 4.2, appendix B.4)."""

from .base import Baseline
from .dnmf import DiscriminantNMF
from .factor import FactorBaseline
from .lda import LDABaseline
from .nmf import NMFBaseline
from .opnmf import OrthogonalProjectiveNMF

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

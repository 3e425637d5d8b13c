"""Methods that the paper compares Surreal-GAN with (section 4.2, appendix B.4), and ours."""

from .base import Baseline
from .dnmf import DiscriminantNMF
from .factor import FactorBaseline
from .lda import LDABaseline
from .nmf import NMFBaseline
from .opnmf import OrthogonalProjectiveNMF
from .sparse import SparseFactorBaseline

BASELINES: dict[str, type[Baseline]] = {
    'NMF': NMFBaseline,
    'LDA': LDABaseline,
    'FA': FactorBaseline,
    'OpNMF': OrthogonalProjectiveNMF,
    'DNMF': DiscriminantNMF,
    'sparse factors': SparseFactorBaseline,
}
"""The methods by the names, and in the order, of Table 1; the last is not in the paper."""

__all__ = [
    'BASELINES',
    'Baseline',
    'DiscriminantNMF',
    'FactorBaseline',
    'LDABaseline',
    'NMFBaseline',
    'OrthogonalProjectiveNMF',
    'SparseFactorBaseline',
]

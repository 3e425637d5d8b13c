import pytest

from surreal_bids.exceptions import UsageError
from surreal_bids.model.networks import PRESETS, hyperparameters

SECTION_3_3 = {
    'gamma': 6, 'kappa': 80, 'zeta': 80, 'mu': 500, 'eta': 6, 'lr': 2e-4, 'betas': (0.5, 0.999),
    'lipschitz': 0.5, 'reconstruction_threshold': 0.003, 'monotonicity_threshold': 6e-4,
}  # fmt: skip


@pytest.mark.parametrize(('name', 'value'), SECTION_3_3.items())
def test_the_paper_s_values(name, value):
    assert getattr(hyperparameters('iclr2022'), name) == value


def test_the_discriminator_learns_at_the_paper_s_rate():
    paper = hyperparameters('iclr2022')
    assert paper.lr * paper.discriminator_lr_ratio == pytest.approx(4e-5)


@pytest.mark.parametrize(
    ('name', 'value'),
    {'gamma': 2, 'lr': 8e-4, 'alpha': 0.02, 'mu': 500, 'weight_decay': 2.5e-3}.items(),
)
def test_the_authors_program_s_values(name, value):
    assert getattr(hyperparameters('correlated'), name) == value


@pytest.mark.parametrize('preset', PRESETS)
def test_a_value_may_be_changed_and_the_preset_stays(preset):
    assert hyperparameters(preset, gamma=1.5).gamma == 1.5
    assert PRESETS[preset].gamma != 1.5


def test_unknown_names_are_refused():
    with pytest.raises(UsageError, match='lamda; choose from adversarial'):
        hyperparameters('iclr2022', lamda=1)

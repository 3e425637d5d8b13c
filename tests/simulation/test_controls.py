import numpy as np
import pandas as pd
import pytest

from surreal_bids.exceptions import DataError
from surreal_bids.simulation.population import (
    controls_from_table,
    draw_controls,
    read_controls,
    resample_gaussian,
    volume_columns,
)
from tests.shared_data import shared_data


@pytest.fixture
def table():
    """Twelve people, as a laboratory might keep them: with a ventricle and composite regions."""
    volumes = draw_controls(12, np.random.default_rng(0)).volumes
    known = {'MRID': [f'A{k}' for k in range(12)], 'Age': 61.5, 'Gender': 'female', 'SITE': 'x'}
    return volumes.assign(**known, MUSE_4=900.0, MUSE_702=1.4e6, MUSE_601=6e5)


@pytest.mark.parametrize(('suffix', 'separator'), [('.csv', ','), ('.tsv', '\t'), ('.txt', ',')])
def test_controls_are_read_from_csv_and_tsv(tmp_path, table, suffix, separator):
    path = tmp_path / f'controls{suffix}'
    table.sample(frac=1, axis=1, random_state=0).to_csv(path, sep=separator, index=False)
    controls = read_controls(path)
    assert list(controls.volumes.columns) == volume_columns()
    np.testing.assert_allclose(controls.volumes, table[volume_columns()])
    assert controls.people.loc[3].to_dict() == {'age': 61.5, 'sex': 'F', 'site': 'x', 'icv': 1.4e6}


@pytest.mark.parametrize(
    ('column', 'name'),
    [
        ('age_at_scan', 'age'),
        ('AGE', 'age'),
        ('Sex', 'sex'),
        ('site_id', 'site'),
        ('DL_MUSE_Volume_702', 'icv'),
        ('eTIV', 'icv'),
    ],
)
def test_what_is_known_of_people_is_recognised(table, column, name):
    table = table[volume_columns()].assign(**{column: range(12)})
    people = controls_from_table(table).people
    assert people[name].tolist() == list(range(12))
    assert people.drop(columns=name).isna().all(axis=None)


@pytest.mark.parametrize(
    ('spoil', 'message'),
    [
        (
            lambda t: t.drop(columns='MUSE_47'),
            r'no column for MUSE region 47 \(Right hippocampus\)',
        ),
        (lambda t: t.assign(MUSE_47=[0.0, *t['MUSE_47'][1:]]), '1 of 12 rows .* MUSE_47 in row 1'),
        (lambda t: t.assign(MUSE_47=[*t['MUSE_47'][:9], *[np.nan] * 3]), '3 of 12 rows .* row 10'),
        (lambda t: t.assign(MRID='A7'), "'MRID' names A7 more than once"),
        (lambda t: t.assign(MUSE_47='big'), "'MUSE_47' holds text"),
        (lambda t: t.assign(**{'Left hippocampus': 1.0}), 'both hold MUSE region 48'),
    ],
)
def test_bad_tables_are_refused_with_file_and_reason(tmp_path, table, spoil, message):
    path = tmp_path / 'controls.csv'
    spoil(table).to_csv(path, index=False)
    with pytest.raises(DataError, match=message) as caught:
        read_controls(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize('content', [None, b'', b'\xff\xfe\x00\x81'])
def test_what_is_no_table_is_refused(tmp_path, content):
    path = tmp_path / 'controls.csv'
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r'controls.csv: (there is no such file|cannot be read)'):
        read_controls(path)


def test_resampled_people_have_the_mean_and_spread_of_the_real_ones():
    real = draw_controls(60, np.random.default_rng(1))
    drawn = resample_gaussian(real, 8000, np.random.default_rng(2))
    logs, real_logs = np.log(drawn.volumes), np.log(real.volumes)
    np.testing.assert_allclose(logs.mean(), real_logs.mean(), atol=0.01)
    np.testing.assert_allclose(logs.std(), real_logs.std(ddof=0), rtol=0.15)
    assert np.linalg.matrix_rank(np.cov(logs.T)) == 139
    assert drawn.people.isna().all(axis=None)


def test_correlations_of_real_people_survive_resampling():
    real = read_controls(shared_data('tables/ixi_muse145.csv'))
    assert real.people['sex'].value_counts().to_dict() == {'F': 188, 'M': 103}
    drawn = resample_gaussian(real, 4000, np.random.default_rng(3))
    upper = np.triu_indices(139, 1)
    before, after = (np.corrcoef(np.log(c.volumes.to_numpy()).T)[upper] for c in (real, drawn))
    assert np.abs(after - before).mean() < 0.03


@pytest.mark.parametrize('n_people', [1, 9])
def test_too_few_people_cannot_be_resampled(n_people):
    few = draw_controls(n_people, np.random.default_rng(5))
    with pytest.raises(DataError, match=f'fitted to {n_people} people'):
        resample_gaussian(few, 20, np.random.default_rng(6))


@pytest.mark.parametrize('seed', [0, 3])
def test_resampling_repeats_for_a_seed(seed):
    real = draw_controls(30, np.random.default_rng(4))
    first, second = (resample_gaussian(real, 5, np.random.default_rng(seed)) for _ in range(2))
    pd.testing.assert_frame_equal(first.volumes, second.volumes)

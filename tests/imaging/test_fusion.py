"""Label fusion: votes add up, the atlas that fits wins, intensities have a say, volumes fill the
mask."""

from collections import Counter, defaultdict

import numpy as np
import pandas as pd
import pytest
from nibabel.nifti1 import Nifti1Image
from scipy import stats

from surreal_bids.exceptions import DataError
from surreal_bids.imaging.fusion import (
    INTENSITY_ITERATIONS,
    INTENSITY_POWER,
    SLOTS,
    SMALLEST_LIKELIHOOD,
    SMALLEST_SD,
    USUAL_SD,
    USUAL_VOXELS,
    Candidate,
    Votes,
    corner_labels,
    fuse_labels,
    shares_by_intensity,
    volume_table,
    volumes_of_labels,
)
from surreal_bids.imaging.transforms import Transform, affine_transform, resample
from surreal_bids.regions import label_table
from tests.imaging.brains import AFFINE, SHAPE, brain, mean_dice, smooth_displacement

VOXEL_MM3 = 64.0
HERE = affine_transform(SHAPE, AFFINE, np.eye(4))


@pytest.fixture(scope='module')
def head() -> tuple[Nifti1Image, Nifti1Image]:
    return brain()


def displaced(size: float, seed: int) -> Transform:
    return Transform(smooth_displacement(size, seed), AFFINE)


def bad_candidates(head: tuple[Nifti1Image, Nifti1Image], number: int) -> list[Candidate]:
    """The same brain, badly registered."""
    return [Candidate(*head, displaced(14.0, seed)) for seed in range(number)]


def winners(votes: Votes) -> list[int]:
    return votes.labels[votes.weights.argmax(axis=0), np.arange(votes.labels.shape[1])].tolist()


@pytest.mark.parametrize(('n_votes', 'n_labels'), [(1, 2), (30, SLOTS)])
def test_votes_are_counted_as_a_dictionary_would(n_votes, n_labels):
    rng = np.random.default_rng(0)
    votes = Votes(7)
    counts: list[Counter] = [Counter() for _ in range(7)]
    for _ in range(n_votes):
        labels = rng.integers(0, n_labels, 7)
        weights = rng.uniform(0.1, 1, 7).astype(np.float32)
        votes.add(labels, weights)
        for count, label, weight in zip(counts, labels, weights):
            count[int(label)] += float(weight)
    assert winners(votes) == [count.most_common(1)[0][0] for count in counts]
    np.testing.assert_allclose(votes.shares().sum(axis=0), 1, rtol=1e-5)
    np.testing.assert_allclose(votes.weights.sum(axis=0), [c.total() for c in counts], rtol=1e-5)


def some_votes(n_voxels: int, n_votes: int, rng: np.random.Generator) -> Votes:
    votes = Votes(n_voxels)
    for _ in range(n_votes):
        votes.add(rng.choice([0, 3, 7], n_voxels), rng.uniform(0.1, 1, n_voxels).astype('f4'))
    return votes


def expected_shares(votes: Votes, values: np.ndarray) -> list[dict[int, float]]:
    """The same one voxel and one label at a time, with the normal distribution of scipy."""
    priors = [
        {int(label): float(share) for label, share in zip(labels, shares) if label >= 0}
        for labels, shares in zip(votes.labels.T, votes.shares().T)
    ]
    found = priors
    for _ in range(INTENSITY_ITERATIONS):
        fitted = {}
        for label in (0, 3, 7):
            weights = np.array([shares.get(label, 0.0) for shares in found])
            mean = np.average(values, weights=weights)
            scatter = weights @ (values - mean) ** 2 + USUAL_VOXELS * USUAL_SD**2
            sd = np.sqrt(scatter / (weights.sum() + USUAL_VOXELS))
            fitted[label] = (mean, max(sd, SMALLEST_SD))
        found = []
        for prior, value in zip(priors, values):
            likelihood = {
                label: stats.norm.pdf(value, *fitted[label]) * np.sqrt(2 * np.pi)
                + SMALLEST_LIKELIHOOD
                for label in prior
            }
            weights = {
                label: prior[label] * likelihood[label] ** INTENSITY_POWER for label in prior
            }
            found.append({label: w / sum(weights.values()) for label, w in weights.items()})
    return found


def test_intensities_count_as_in_a_mixture_of_normal_distributions():
    rng = np.random.default_rng(0)
    votes = some_votes(80, 4, rng)
    values = rng.uniform(0.1, 1.1, 80).astype(np.float32)
    found = shares_by_intensity(votes, values)
    for labels, shares, expected in zip(votes.labels.T, found.T, expected_shares(votes, values)):
        seen = {int(label): share for label, share in zip(labels, shares) if label >= 0}
        assert seen == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(('voxel_mm', 'count'), [(1.0, True), (3.000001, True), (4.0, False)])
def test_intensities_of_wide_voxels_do_not_count(head, voxel_mm, count):
    """Two atlases of the same brain, one with displaced labels: intensities tell which is right."""
    affine = np.diag([voxel_mm] * 3 + [1.0])
    t1w, labels = (Nifti1Image(np.asarray(each.dataobj), affine) for each in head)
    here = affine_transform(SHAPE, affine, np.eye(4))
    moved = resample(labels, Transform(here.field + np.float32(voxel_mm), affine), order=0)
    candidates = [Candidate(t1w, labels, here), Candidate(t1w, moved, here)]
    votes = Counter()
    inside = np.asarray(t1w.dataobj) != 0
    for _, each, _ in candidates:
        votes.update(np.asarray(each.dataobj)[inside].tolist())
    found = fuse_labels(t1w, candidates).volumes
    by_votes = {label: n / 2 * voxel_mm**3 for label, n in votes.items() if label}
    assert (found != pytest.approx(by_votes, rel=1e-4)) is count


def test_corner_labels_are_linear_interpolation_of_each_label(head):
    _, labels = head
    transform = displaced(9.0, 0)
    inside = np.asarray(labels.dataobj) > 0
    seen: defaultdict[int, np.ndarray] = defaultdict(lambda: np.zeros(inside.sum()))
    for corner, shares in corner_labels(labels, transform, inside):
        for label in np.unique(corner):
            seen[int(label)][corner == label] += shares[corner == label]
    for label in (1, 7, 24):
        one = Nifti1Image((np.asarray(labels.dataobj) == label).astype(np.float32), AFFINE)
        expected = np.asarray(resample(one, transform).dataobj)[inside]
        np.testing.assert_allclose(seen[label], expected, atol=1e-4)
    np.testing.assert_allclose(sum(seen.values()), 1, rtol=1e-5)


def test_one_perfect_atlas_gives_its_labels_and_volumes(head):
    fusion = fuse_labels(head[0], [Candidate(*head, HERE)])
    truth = np.asarray(head[1].dataobj)
    np.testing.assert_array_equal(np.asarray(fusion.labels.dataobj), truth)
    counts = np.bincount(truth.ravel())
    for label in range(1, 25):
        assert fusion.volumes[label] == pytest.approx(counts[label] * VOXEL_MM3, rel=1e-3)


@pytest.mark.slow
def test_the_atlas_that_fits_wins_against_those_that_do_not_in_any_order(head):
    good, bad = [Candidate(*head, HERE)], bad_candidates(head, 4)
    fusion, other = (fuse_labels(head[0], each) for each in (good + bad, bad + good))
    assert fusion.volumes == pytest.approx(other.volumes, rel=1e-3)
    alone = fuse_labels(head[0], bad)
    assert mean_dice(head[1], fusion.labels) > 0.97
    assert mean_dice(head[1], alone.labels) < 0.9


def test_a_fit_matters_where_it_is(head):
    """Two atlases, each right in one half only, are right together."""
    left = np.arange(SHAPE[0])[:, np.newaxis, np.newaxis, np.newaxis] < SHAPE[0] // 2
    halves = [
        Transform((smooth_displacement(14.0, seed) * where).astype(np.float32), AFFINE)
        for seed, where in ((0, left), (1, ~left))
    ]
    together = fuse_labels(head[0], [Candidate(*head, half) for half in halves])
    alone = [fuse_labels(head[0], [Candidate(*head, half)]) for half in halves]
    best = max(mean_dice(head[1], one.labels) for one in alone)
    assert mean_dice(head[1], together.labels) > best + 0.1


def test_volumes_fill_the_mask(head):
    mask = np.asarray(head[1].dataobj) > 0
    wide = Nifti1Image(np.roll(mask, 2, axis=1).astype(np.uint8), AFFINE)
    target = Nifti1Image(np.asarray(head[0].dataobj) + 1, AFFINE)
    everywhere = Nifti1Image(np.where(mask, head[1].dataobj, 25).astype(np.int16), AFFINE)
    fusion = fuse_labels(target, bad_candidates((head[0], everywhere), 3), wide)
    total = sum(fusion.volumes.values())
    assert total == pytest.approx(np.asarray(wide.dataobj).sum() * VOXEL_MM3, rel=1e-4)
    assert not np.asarray(fusion.labels.dataobj)[np.asarray(wide.dataobj) == 0].any()


@pytest.mark.parametrize('largest', [200, 40_000])
def test_labels_are_stored_in_a_type_that_holds_them(head, largest):
    labels = np.where(np.asarray(head[1].dataobj) > 0, largest, 0).astype(np.int32)
    fusion = fuse_labels(head[0], [Candidate(head[0], Nifti1Image(labels, AFFINE), HERE)])
    assert set(fusion.volumes) == {largest}
    assert fusion.labels.get_data_dtype() == (np.int16 if largest == 200 else np.int32)


def test_no_atlas_is_an_error(head):
    with pytest.raises(DataError, match='at least one'):
        fuse_labels(head[0], [])


REGIONS = pd.DataFrame({'index': [7, 3, 900], 'name': ['seven', 'three', 'nine hundred']})


def test_volumes_are_voxels_times_their_size():
    affine = np.array([[0, 0, 3.0, 1], [-1.5, 0, 0, 2], [0, 2.0, 0, 3], [0, 0, 0, 1]])
    labels = np.zeros((7, 8, 9), dtype=np.float32)
    labels[:2, :3, :4] = 3
    labels[4:, 7, 0] = 7
    found = volumes_of_labels(Nifti1Image(labels, affine))
    assert found == pytest.approx({3: 24 * 9.0, 7: 3 * 9.0})
    labels[1, 1, 1] = 0.5
    with pytest.raises(DataError, match='provide a label map'):
        volumes_of_labels(Nifti1Image(labels, affine))


@pytest.mark.parametrize(('excluded', 'level'), [(99.0, 'WARNING'), (0.1, 'INFO')])
def test_the_table_follows_the_regions(caplog, excluded, level):
    caplog.set_level('INFO', 'surreal_bids')
    table = volume_table({3: 12.5, 7: 1.0, 5: excluded}, REGIONS)
    assert table.columns.tolist() == ['index', 'name', 'volume_mm3']
    assert table['index'].tolist() == REGIONS['index'].tolist()
    assert table['volume_mm3'].tolist() == [1.0, 12.5, 0.0]
    assert [record.levelname for record in caplog.records] == [level]
    assert 'labels 5 (' in caplog.text


@pytest.mark.parametrize('volumes', [{}, {1: 5.0, 2: 6.0}])
def test_volumes_of_another_atlas_are_refused(volumes):
    with pytest.raises(DataError, match='regions of the atlas'):
        volume_table(volumes, REGIONS)


@pytest.mark.parametrize(('label', 'level'), [(1, None), (46, None), (3, 'WARNING')])
def test_fluid_that_dlmuse_adds_to_its_regions_is_no_surprise(caplog, label, level):
    """Label 1, fluid around the brain, is about 8 % of a map of NiChart."""
    caplog.set_level('INFO', 'surreal_bids')
    regions = label_table('muse')
    volumes = dict.fromkeys(regions['index'], 100.0) | {label: 2000.0}
    assert set(volume_table(volumes, regions)['volume_mm3']) == {100.0}
    assert [record.levelname for record in caplog.records] == ([level] if level else [])

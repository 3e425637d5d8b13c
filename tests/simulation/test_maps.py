"""Simulated RAVENS maps."""

import numpy as np
import pytest

from surreal_bids.regions import muse_table
from surreal_bids.simulation.maps import VOXEL_SIZE_MM, simulate_ravens
from surreal_bids.simulation.population import sample_controls
from surreal_bids.simulation.templates import labels_at, load_labels


@pytest.mark.slow
def test_the_grey_matter_of_a_region_adds_up_to_its_volume():
    volumes = sample_controls(2, np.random.default_rng(0)).volumes
    first, second = simulate_ravens(volumes, np.random.default_rng(1))
    labels = labels_at(load_labels(), first.affine, first.shape)
    table = muse_table()
    regions = set(table.loc[table['tissue'] == 'GM', 'index']) & set(np.unique(labels))
    assert len(regions) > 90
    for image, (_, person) in zip((first, second), volumes.iterrows()):
        data = np.asarray(image.dataobj)
        assert np.isfinite(data).all()
        found = [data[labels == index].sum() * VOXEL_SIZE_MM**3 for index in regions]
        assert found == pytest.approx([person[f'MUSE_{index}'] for index in regions], rel=1e-4)

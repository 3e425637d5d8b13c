"""The network of regions: grids, orientation, weights, and what it finds in real heads."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
import torch
from nibabel.orientations import axcodes2ornt, io_orientation, ornt_transform
from safetensors.torch import save_file

from surreal_bids.exceptions import DataError
from surreal_bids.images import Image
from surreal_bids.imaging import network as network_module
from surreal_bids.imaging.network import (
    TrainedNetwork,
    builtin_network,
    choose_grid,
    clear_sulci,
    load_network,
    segment_regions,
)
from surreal_bids.imaging.unet import Architecture, RegionNet
from surreal_bids.regions import muse_table, region_mates
from tests.shared_data import shared_data

SMALL = Architecture(widths=(4, 6), classes=4, protocols=2, fine=3)


@pytest.fixture
def tiny() -> TrainedNetwork:
    torch.manual_seed(0)
    module = RegionNet(SMALL).eval().requires_grad_(requires_grad=False)
    torch.nn.init.normal_(module.fine_weight)
    return TrainedNetwork(module, (23, 30, 100), 0, ((1.0,) * 3,) * 2)


def ellipsoid(shape=(34, 42, 38), zooms=(4.0, 4.0, 4.0), seed=0) -> tuple[Image, Image]:
    """A textured head with a brain, off centre, and its mask."""
    rng = np.random.default_rng(seed)
    axes = [np.linspace(-1, 1, n) + shift for n, shift in zip(shape, (0.1, -0.05, 0.0))]
    x, y, z = np.meshgrid(*axes, indexing='ij')
    mask = (x / 0.5) ** 2 + (y / 0.6) ** 2 + (z / 0.55) ** 2 < 1
    values = 40 + 30 * np.sin(4 * x + 1) * np.cos(5 * y) + 20 * z + rng.normal(0, 3, shape)
    affine = np.diag([*zooms, 1.0])
    affine[:3, 3] = (-60, -80, -70)
    return (
        nib.Nifti1Image(values.clip(1).astype(np.float32), affine),
        nib.Nifti1Image(mask.astype(np.uint8), affine),
    )


def turned(image: Image, codes: str) -> Image:
    change = ornt_transform(io_orientation(image.affine), axcodes2ornt(codes))
    return image.as_reoriented(change)


@pytest.mark.slow
@pytest.mark.parametrize('codes', ['LPS', 'PSR'])
def test_orientation_changes_nothing(tiny: TrainedNetwork, codes: str) -> None:
    t1w, mask = ellipsoid()
    expected = segment_regions(t1w, mask, network=tiny)
    found = segment_regions(turned(t1w, codes), turned(mask, codes), network=tiny)
    np.testing.assert_array_equal(
        turned(found.labels, 'RAS').dataobj, turned(expected.labels, 'RAS').dataobj
    )
    assert found.volumes == pytest.approx(expected.volumes, rel=1e-5)


@pytest.mark.parametrize('zooms', [(4.0, 4.0, 4.0), (1.0, 1.0, 1.0), (0.9, 1.1, 1.3)])
def test_volumes_add_up_to_what_was_looked_at(tiny: TrainedNetwork, zooms: tuple) -> None:
    t1w, mask = ellipsoid(zooms=zooms)
    tiny.module.head_bias[:, 0] = -1e4  # No voxel is background.
    found = segment_regions(t1w, mask, network=tiny)
    inside = np.asarray(mask.dataobj) > 0
    visible = network_module._visible(np.asarray(t1w.dataobj), inside, np.array(zooms))
    total = visible.sum() * np.prod(zooms)
    assert sum(found.volumes.values()) == pytest.approx(total, rel=1e-4)
    assert not np.asarray(found.labels.dataobj)[~visible].any()
    assert all(0 < value <= 1 for value in found.confidence.values())


@pytest.mark.parametrize('fine', [False, True])
def test_factors_change_volumes_alone(tiny: TrainedNetwork, fine: bool) -> None:
    t1w, mask = ellipsoid(zooms=(1.0, 1.0, 1.0) if fine else (2.0, 2.0, 2.0))
    expected = segment_regions(t1w, mask, network=tiny)
    factors = ((0.9, 1.0, 1.2), (0.8, 1.1, 1.0))
    found = segment_regions(t1w, mask, network=replace(tiny, factors=factors))
    ratios = [found.volumes[index] / expected.volumes[index] for index in tiny.indices]
    assert ratios == pytest.approx(factors[fine])
    np.testing.assert_array_equal(found.labels.dataobj, expected.labels.dataobj)
    assert found.confidence == expected.confidence


def test_voxels_of_the_wanted_size_are_not_interpolated() -> None:
    inside = np.zeros((90, 100, 80), bool)
    inside[10:75, 12:90, 9:70] = True
    for spacing, fine in ((2.0, False), (1.0, True), (0.98, True)):
        grid = choose_grid(inside, np.full(3, spacing), 16)
        assert grid.native
        assert grid.fine is fine
        unit = 32 if fine else 16
        assert all(size % unit == 0 for size in grid.shape)
        assert all(start == int(start) for start in grid.starts)
    assert not choose_grid(inside, np.array([1.0, 1.0, 1.3]), 16).native


def test_refined_in_parts_as_at_once(monkeypatch) -> None:
    torch.manual_seed(0)
    module = RegionNet(Architecture(widths=(3, 4), classes=5, fine=2))
    features, coarse = torch.randn(1, 3, 8, 4, 6), torch.randn(1, 1, 8, 4, 6)
    detail = torch.randn(1, 1, 16, 8, 12)
    monkeypatch.setattr(network_module, 'REFINED_PLANES', 3)
    with torch.inference_mode():
        found = network_module._refined(module, features, coarse, detail)
        torch.testing.assert_close(found, module.refine(features, coarse, detail)[0])


def test_uncertain_regions_are_reported(tiny: TrainedNetwork, caplog) -> None:
    segment_regions(*ellipsoid(), network=tiny)
    assert 'uncertain about the regions' in caplog.text


def test_empty_mask() -> None:
    t1w, mask = ellipsoid()
    with pytest.raises(DataError, match='mask is empty'):
        segment_regions(t1w, nib.Nifti1Image(np.zeros(mask.shape, np.uint8), mask.affine))


def write_weights(path, weights=None, **about):
    stored = {
        'architecture': json.dumps(asdict(SMALL)),
        'indices': '[23, 30, 100]',
        **about,
    }
    save_file(weights or RegionNet(SMALL).state_dict(), path, stored)
    return path


def test_weights_are_read_back(tmp_path, tiny: TrainedNetwork) -> None:
    factors = ((0.9, 1.0, 1.1), (1.0, 1.2, 1.0))
    path = write_weights(
        tmp_path / 'own.safetensors',
        tiny.module.state_dict(),
        protocol='1',
        factors=json.dumps(factors),
    )
    found = load_network(path)
    assert (found.indices, found.protocol, found.factors) == ((23, 30, 100), 1, factors)
    for own, other in zip(found.module.parameters(), tiny.module.parameters()):
        torch.testing.assert_close(own, other)


def test_bad_weights_are_refused(tmp_path, tiny: TrainedNetwork) -> None:
    weights = tiny.module.state_dict()
    missing = {name: value for name, value in weights.items() if name != 'fine_weight'}
    wide = json.dumps({**asdict(SMALL), 'widths': [8, 8]})
    damaged = tmp_path / 'damaged.safetensors'
    damaged.write_bytes(write_weights(tmp_path / 'good.safetensors').read_bytes()[:-100])
    pickled = tmp_path / 'pickled.safetensors'
    torch.save(weights, pickled)
    for path in (
        write_weights(tmp_path / 'missing.safetensors', missing),
        write_weights(tmp_path / 'wide.safetensors', architecture=wide),
        write_weights(tmp_path / 'few.safetensors', indices='[23, 30]'),
        write_weights(tmp_path / 'two.safetensors', factors='[[1, 1, 1], [1, 1]]'),
        damaged,
        pickled,
        tmp_path / 'absent.safetensors',
    ):
        with pytest.raises(DataError, match='reinstall the package'):
            load_network(path)


def test_builtin_weights() -> None:
    network = builtin_network()
    assert list(network.indices) == muse_table()['index'].tolist()
    is_cortex = np.array(network.indices) >= 100
    for factors in network.factors:
        assert 0.8 < np.median(np.array(factors)[is_cortex]) < 0.95
        assert 0.95 < np.median(np.array(factors)[~is_cortex]) < 1.05


def test_sulci_are_no_cortex() -> None:
    """Of cortex, only voxels as dark as fluid are removed; other regions may be dark."""
    labels = np.array([51, 52, 101, 101, 101, 101, 47, 0], np.int16).reshape(2, 2, 2)
    values = np.array([10, 12, 60, 61, 59, 20, 5, 1], np.float32).reshape(2, 2, 2)
    clear_sulci(labels, -values)  # Where fluid is bright, nothing is removed.
    clear_sulci(labels, values)
    np.testing.assert_array_equal(labels.ravel(), [51, 52, 101, 101, 101, 0, 47, 0])


@pytest.mark.slow
def test_known_head() -> None:
    """A head that the network was not trained on: labels of DLMUSE at 2 mm, volumes at 1 mm."""
    name = 'IXI452-HH-2213.nii.gz'
    t1w = nib.load(shared_data(f'ixi2mm/T1w/{name}'))
    labels = nib.load(shared_data(f'ixi2mm/dseg/{name}'))
    true = np.asarray(labels.dataobj).astype(int)
    mask = nib.Nifti1Image((true > 0).astype(np.uint8), t1w.affine)
    t1w = nib.Nifti1Image(np.asarray(t1w.dataobj, np.float32), t1w.affine)
    found = segment_regions(t1w, mask)
    winners = np.asarray(found.labels.dataobj)
    dice = {}
    for index in muse_table()['index']:
        a, b = true == index, winners == index
        dice[index] = 2 * (a & b).sum() / (a.sum() + b.sum())
    assert np.mean(list(dice.values())) > 0.84
    assert min(dice.values()) > 0.4
    for index, mate in region_mates().items():
        assert ((true == index) & (winners == mate)).sum() < 0.05 * (true == index).sum()
    dlmuse = pd.read_csv(shared_data('tables/ixi_muse145.csv')).set_index('ID')
    volumes = dlmuse.loc[f'{name.split(".")[0]}-T1']
    ratios = {index: found.volumes[index] / volumes[f'MUSE_{index}'] for index in dice}
    assert np.median(list(ratios.values())) == pytest.approx(1, abs=0.05)
    assert np.median([ratios[i] for i in ratios if i >= 100]) == pytest.approx(1, abs=0.05)

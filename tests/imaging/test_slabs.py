"""Slabs hold everything once, threads change no result, and errors come out of them."""

import numpy as np
import pytest

from surreal_bids.imaging.deformation import Settings
from surreal_bids.imaging.ravens import ravens_maps
from surreal_bids.imaging.registration import register
from surreal_bids.imaging.transforms import Transform, invert, resample
from surreal_bids.parallel import in_parts, set_threads, with_neighbours
from tests.imaging.brains import AFFINE, SHAPE, brain, smooth_displacement


@pytest.fixture
def three_threads():
    set_threads(3)
    yield
    set_threads(1)


@pytest.mark.parametrize(('size', 'length'), [(1, 16), (16, 16), (17, 16), (40, 7)])
def test_slabs_hold_everything_once(size, length):
    own = []
    for slab in in_parts(lambda slab: slab, size, length):
        near, place = with_neighbours(slab, size)
        assert range(size)[near][place] == range(size)[slab]
        own += range(size)[slab]
    assert own == list(range(size))


@pytest.mark.usefixtures('three_threads')
def test_an_error_in_a_slab_is_raised_and_threads_go_on():
    def refuse(slab):
        if slab.start == 4:
            raise ValueError('slab 4')
        return slab.start

    for _ in range(4):
        with pytest.raises(ValueError, match='slab 4'):
            in_parts(refuse, 9, 2)
    assert in_parts(lambda slab: slab.start, 5, 2) == [0, 2, 4]


@pytest.mark.slow
def test_threads_change_no_bit_of_what_is_registered_and_resampled(request):
    image, _ = brain()
    one = Transform(smooth_displacement(8.0, 1), AFFINE)

    def everything():
        (tissue,) = ravens_maps([image], one)
        images = (resample(image, one), tissue)
        found = register(images[0], image, settings=Settings(iterations=(10, 10, 5))).forward
        fields = (found.field, invert(one, SHAPE, AFFINE).field)
        return [*fields, *(np.asarray(each.dataobj) for each in images)]

    alone = everything()
    request.getfixturevalue('three_threads')
    for seen, expected in zip(everything(), alone):
        np.testing.assert_array_equal(seen, expected)

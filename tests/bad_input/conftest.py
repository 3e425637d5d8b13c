"""Sound studies, made once for all tests of bad input."""

from pathlib import Path

import pytest

from tests.bad_input.studies import DOORS, study_of, write_images, write_tables
from tests.conftest import drawing_few, drawing_nothing


def write_fitted_tables(folder: Path) -> None:
    """Write a study of tables and a model fitted to it."""
    write_tables(folder)
    study = study_of('tables', folder)
    with drawing_few(), drawing_nothing():
        assert DOORS['fit'].main(DOORS['fit'].words(study)) == 0
    study.out.rename(study.model)


@pytest.fixture(scope='session')
def sound(build_once) -> dict[str, Path]:
    """Folders of sound studies to copy: of tables and of images."""
    return {
        'tables': build_once('tables', write_fitted_tables),
        'images': build_once('images', write_images),
    }

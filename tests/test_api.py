"""The public interface: small, lazy, documented, and its examples run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import surreal_bids

PAGE = Path(__file__).parents[1] / 'docs' / 'api.md'
NAMES = [name for name in surreal_bids.__all__ if name != '__version__']


def test_importing_the_package_loads_nothing():
    code = (
        'import sys, surreal_bids;'
        'heavy = {"torch", "pandas", "numpy", "nibabel", "scipy"} & set(sys.modules);'
        'assert not heavy, heavy; assert "ComBat" in dir(surreal_bids)'
    )
    subprocess.run([sys.executable, '-c', code], check=True)


@pytest.mark.parametrize('name', NAMES)
def test_public_names_are_loaded_and_documented(name):
    value = getattr(surreal_bids, name)
    assert value.__name__ == name
    assert value.__doc__
    assert f'`{name}`' in PAGE.read_text()
    assert f'import {name}' in PAGE.read_text() or f', {name}' in PAGE.read_text()


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match='no attribute'):
        _ = surreal_bids.segment


@pytest.mark.slow
@pytest.mark.parametrize('section', ['Tables', 'Images'])
def test_the_examples_run(section):
    text = re.split(r'^## ', PAGE.read_text(), flags=re.MULTILINE)
    (part,) = [each for each in text if each.startswith(section)]
    blocks = re.findall(r'```python\n(.*?)```', part, flags=re.DOTALL)
    assert blocks
    namespace: dict = {}
    for block in blocks:
        exec(compile(block, PAGE.name, 'exec'), namespace)  # noqa: S102

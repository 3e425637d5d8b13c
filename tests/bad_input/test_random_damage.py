"""Damage that nobody thought of: bytes flipped, cells exchanged, lines lost, with fixed seeds.

What comes of it may be refused or accepted, but never with a traceback, and a sealed model never
after a change.
"""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from tests.bad_input.test_bad_input import run, take

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('few_draws', 'undrawn_figures')]

SEEDS = range(3)
KNOWN_CODES = (0, 1, 2, 16, 18, 65, 73)
ODD = (
    b'|"|\'|\0|\r|1e999|-0|nan|0x1|1/0|NA|-|.|1e-320|=A1|#N/A|sub-001|\xe2\x88\x92800|\xef\xbb\xbf'
)
CHECKSUMS = ('TensorsSHA256', 'CardSHA256')
HEADER = 352
"""Bytes of a NIfTI-1 header."""


def flip(content: bytes, rng: np.random.Generator, start: int = 0, end: int | None = None) -> bytes:
    """Change up to three bytes."""
    data = bytearray(content)
    for place in rng.integers(start, len(data) if end is None else end, rng.integers(1, 4)):
        data[place] ^= int(rng.integers(1, 256))
    return bytes(data)


def shuffle_cells(content: bytes, rng: np.random.Generator) -> bytes:
    """Exchange two cells, wherever they are."""
    rows = [line.split(b'\t') for line in content.split(b'\n')]
    a, b = rng.integers(0, len(rows) - 1, 2)
    i, j = rng.integers(0, len(rows[a])), rng.integers(0, len(rows[b]))
    rows[a][i], rows[b][j] = rows[b][j], rows[a][i]
    return b'\n'.join(b'\t'.join(row) for row in rows)


def lose_lines(content: bytes, rng: np.random.Generator) -> bytes:
    lines = content.split(b'\n')
    return b'\n'.join(line for line in lines if rng.random() > 0.3)


def lose_the_end(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: rng.integers(0, len(content))]


def odd_cell(content: bytes, rng: np.random.Generator) -> bytes:
    """Write something odd in a cell."""
    rows = [line.split(b'\t') for line in content.split(b'\n')]
    a = rng.integers(0, len(rows) - 1)
    rows[a][rng.integers(0, len(rows[a]))] = rng.choice(ODD.split(b'|'))
    return b'\n'.join(b'\t'.join(row) for row in rows)


def check(code: int, said: str) -> None:
    assert code in KNOWN_CODES, said
    assert 'Traceback' not in said, said


@pytest.mark.parametrize('seed', SEEDS)
@pytest.mark.parametrize('damage', [flip, shuffle_cells, lose_lines, lose_the_end, odd_cell])
@pytest.mark.parametrize('which', ['volumes', 'people'])
def test_tables(sound, tmp_path, capsys, monkeypatch, which, damage, seed):
    study = take(sound, 'tables', tmp_path)
    path = getattr(study, which)
    path.write_bytes(damage(path.read_bytes(), np.random.default_rng(seed)))
    door = ('group', 'group_apply', 'apply')[seed % 3]
    check(*run(capsys, monkeypatch, study, door, dry=True))


@pytest.mark.parametrize('seed', SEEDS)
@pytest.mark.parametrize('damage', [flip, lose_the_end])
@pytest.mark.parametrize('name', ['model.json', 'model.safetensors'])
@pytest.mark.parametrize('sealed', [True, False])
def test_models(sound, tmp_path, capsys, monkeypatch, name, damage, sealed, seed):
    study = take(sound, 'tables', tmp_path)
    card = study.model / 'model.json'
    if not sealed:
        content = json.loads(card.read_text())
        card.write_text(json.dumps({k: v for k, v in content.items() if k not in CHECKSUMS}))
    path = study.model / name
    before = path.read_bytes()
    path.write_bytes(damage(before, np.random.default_rng(seed)))
    code, said = run(capsys, monkeypatch, study, 'apply', dry=True)
    check(code, said)
    assert code == 65 or not sealed


@pytest.mark.parametrize('seed', range(10))
def test_image_headers(sound, tmp_path, capsys, monkeypatch, seed):
    study = take(sound, 'images', tmp_path)
    rng = np.random.default_rng(seed)
    data = gzip.decompress(study.image().read_bytes())
    study.image().write_bytes(gzip.compress(flip(data, rng, end=HEADER)))
    check(*run(capsys, monkeypatch, study, 'participant', dry=True))

"""Bad tables of volumes and of participants."""

from __future__ import annotations

import gzip
import io
import os
import zipfile

import numpy as np
import pandas as pd
import pytest

from tests.bad_input.cases import (
    ACCEPTED,
    APPLY,
    TRAIN,
    USAGE,
    Case,
    bytes_of,
    numbers,
    options,
    people,
    person,
    replaced,
    several,
    text_of,
    volume,
    volumes,
)

BOTH_TABLES = ('volumes', 'people')
PATIENTS = [f'sub-{k:03}' for k in range(25, 49)]
CONTROLS = [f'sub-{k:03}' for k in range(1, 25)]
FILE = {'volumes': r'volumes\.tsv', 'people': r'participants\.tsv'}
REGION = r'(MUSE_31|right amygdala)'

LFS = b"""version https://git-lfs.github.com/spec/v1
oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393
size 12345
"""
ANNEX = b'/annex/objects/MD5E-s1234--0123456789abcdef0123456789abcdef.tsv\n'


def renamed_index(name):
    return lambda t: t.rename_axis(name)


def renamed_rows(**names):
    return lambda t: t.rename({old.replace('_', '-', 1): new for old, new in names.items()})


def column(name, values):
    """Add a column, or replace it; `values` may be a function of the table."""
    return lambda t: t.assign(**{name: values(t) if callable(values) else values})


def index_column(name):
    return lambda t: t.assign(**{name: [str(k) for k in range(len(t))]})


def shifted(name, lag, start=0):
    """Move the cells of a column from a row on."""
    return people(lambda t: t.assign(**{name: [*t[name][:start], *np.roll(t[name][start:], lag)]}))


def permuted(t):
    """Leave the ids, and exchange everything else."""
    order = np.random.default_rng(0).permutation(len(t))
    return t.iloc[order].set_axis(t.index)


def noisy_copy(t):
    noise = np.random.default_rng(0).normal(1, 0.01, t.shape[1])
    t.loc['sub-006'] = t.loc['sub-005'] * noise
    return t


def scaled_copy(t):
    t.loc['sub-006'] = (t.loc['sub-005'] * 1.03).round(1)
    return t


def repeated_row(t):
    return pd.concat([t, t.loc[['sub-005']]])


def second_visit(name):
    """A second row of sub-005, a little smaller, under another name."""

    def change(t):
        return pd.concat([t, t.loc[['sub-005']].rename({'sub-005': name})])

    def smaller(t):
        t.loc[name] = (t.loc[name].astype(float) * 0.98).round(1).astype(str)

    return several(volumes(change), people(change), volumes(smaller))


def same_rows(t):
    t.loc['sub-006'] = t.loc['sub-005']


def zipped(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, 'w') as archive:
        archive.writestr('xl/workbook.xml', content)
    return buffer.getvalue()


def in_table(mark):
    """Separate cells by another mark."""
    return lambda text: text.replace('\t', mark)


def line(number, change):
    """Change one line of a text."""

    def changed(text):
        lines = text.splitlines()
        lines[number] = change(lines[number])
        return '\n'.join(lines) + '\n'

    return changed


def scaled(factor, rows=slice(None)):
    def change(t):
        t.loc[rows] = (t.loc[rows] * factor).round(6)
        return t

    return numbers(change)


def german(t):
    """Thousands by points: 12345.6 becomes 12.346, and 987.2 becomes 987."""
    return t.map(lambda cell: f'{round(float(cell)):,}'.replace(',', '.'))


def by_default(study):
    """Name no columns, so that the usual ones are used."""
    study.columns.clear()


def each(name, change):
    """Change every cell of a column of the participants."""
    return people(lambda t: t.assign(**{name: t[name].map(change)}))


def of_group(t):
    return t['diagnosis'].map({'CN': '0', 'PT': '1'})


IDS = [
    Case('id-column-missing', volumes(renamed_index('name')), ['volumes', 'participant_id']),
    Case(
        'id-column-missing-in-participants',
        people(renamed_index('name')),
        [FILE['people'], 'participant_id'],
    ),
    *(
        Case(f'id-column-{name}', volumes(renamed_index(name)), code=ACCEPTED)
        for name in ('MRID', 'ID', 'subject', 'Participant_ID')
    ),
    Case(
        'id-column-option-wrong',
        options('--id-column', 'nobody'),
        ['nobody', 'participant_id'],
    ),
    Case('id-empty', text_of('volumes', line(5, lambda s: s[7:])), ['volumes', 'line 6']),
    Case(
        'id-empty-in-participants',
        text_of('people', line(5, lambda s: s[7:])),
        [FILE['people'], 'line 6'],
    ),
    Case(
        'ids-all-empty',
        volumes(lambda t: t.set_axis([''] * len(t)).rename_axis('participant_id')),
        ['volumes', 'line 2|participant_id'],
    ),
    Case('id-twice', volumes(repeated_row), ['volumes', 'sub-005', 'one row']),
    Case('id-twice-in-participants', people(repeated_row), [FILE['people'], 'sub-005', 'one row']),
    Case(
        'id-twice-with-and-without-prefix',
        volumes(lambda t: t.rename({'sub-006': '005'})),
        ['volumes', '005', 'one row'],
    ),
    Case(
        'id-twice-but-for-case',
        volumes(lambda t: t.rename({'sub-005': 'sub-a', 'sub-006': 'sub-A'})),
        ['sub-a'],
        TRAIN,
    ),
    Case('ids-without-prefix', volumes(lambda t: t.rename(lambda n: n[4:])), code=ACCEPTED),
    Case('ids-prefix-mixed', volumes(lambda t: t.rename({'sub-005': '005'})), code=ACCEPTED),
    Case(
        'ids-lost-zeros',
        volumes(lambda t: t.rename(lambda n: str(int(n[4:])))),
        [FILE['people'], r'\b1\b'],
    ),
    Case(
        'ids-are-decimals',
        volumes(lambda t: t.rename(lambda n: f'{int(n[4:])}.0')),
        [r'1\.0'],
    ),
    Case('id-with-space', volumes(lambda t: t.rename({'sub-005': 'sub-0 5'})), ['sub-0 5']),
    Case('id-with-slash', volumes(lambda t: t.rename({'sub-005': '../005'})), [r'\.\./005']),
    Case(
        'id-with-invisible-letter',
        volumes(lambda t: t.rename({'sub-005': 'sub-005\u200b'})),
        ['sub-005'],
    ),
    Case('id-in-capitals', volumes(lambda t: t.rename({'sub-005': 'SUB-005'})), ['SUB-005']),
    Case(
        'ids-of-another-study',
        volumes(lambda t: t.rename(lambda n: n.replace('sub-', 'sub-X'))),
        ['participants', 'X001'],
    ),
    Case(
        'participant-without-row',
        people(lambda t: t.drop('sub-005')),
        ['participants', 'sub-005'],
        code=ACCEPTED,
    ),
    Case(
        'participant-without-volumes',
        volumes(lambda t: t.drop('sub-005')),
        ['sub-005'],
        TRAIN,
        code=ACCEPTED,
    ),
    Case('visit-named-v2', second_visit('sub-005_v2'), ['sub-005', 'visit|session'], TRAIN),
    Case('visit-named-ses', second_visit('sub-005_ses-2'), ['005', 'visit|session'], TRAIN),
    Case('visit-named-date', second_visit('sub-005_2019-03-02'), ['sub-005'], TRAIN),
]

FILES = [
    *(
        case
        for which in BOTH_TABLES
        for case in (
            Case(f'{which}-missing', replaced(which), [FILE[which], 'no such file|not found']),
            Case(f'{which}-folder', replaced(which, lambda p: p.mkdir()), [FILE[which]]),
            Case(
                f'{which}-zero-bytes',
                bytes_of(which, lambda _: b''),
                [FILE[which], 'empty|nobody|no row'],
            ),
            Case(f'{which}-only-blank', bytes_of(which, lambda _: b' \n\n\t\n'), [FILE[which]]),
            Case(
                f'{which}-only-header',
                text_of(which, lambda s: s.partition('\n')[0] + '\n'),
                [FILE[which], 'row|nobody|empty'],
            ),
            Case(
                f'{which}-binary',
                bytes_of(which, lambda _: np.random.default_rng(0).bytes(5000)),
                [FILE[which], 'text|utf-8|table'],
            ),
            Case(f'{which}-excel', bytes_of(which, zipped), [FILE[which], 'excel|xlsx|zip']),
            Case(
                f'{which}-utf16',
                bytes_of(which, lambda b: b.decode().encode('utf-16')),
                [FILE[which], 'utf-?(8|16)'],
            ),
            Case(
                f'{which}-gzip',
                bytes_of(which, gzip.compress),
                [FILE[which], 'compress|gzip|unpack'],
            ),
            Case(
                f'{which}-nul-bytes',
                bytes_of(which, lambda b: b[:900] + b'\0' * 64 + b[964:]),
                [FILE[which]],
            ),
            Case(
                f'{which}-git-lfs', bytes_of(which, lambda _: LFS), [FILE[which], 'git|lfs|fetch']
            ),
            Case(
                f'{which}-ragged',
                text_of(which, line(7, lambda s: s + '\t12.5')),
                [FILE[which], 'line 8', 'cells'],
            ),
            Case(
                f'{which}-cut-off',
                text_of(which, lambda s: s[: len(s) // 2]),
                [FILE[which], 'line|row'],
            ),
            Case(
                f'{which}-latin1',
                bytes_of(which, lambda b: b.replace(b'sub-005', 'sub-é'.encode('latin-1'))),
                [FILE[which], 'utf-8'],
            ),
            Case(
                f'{which}-mixed-delimiters',
                text_of(which, line(7, lambda s: s.replace('\t', ','))),
                [FILE[which], 'line 8'],
            ),
            Case(
                f'{which}-quote-left-open',
                text_of(which, line(7, lambda s: '"' + s)),
                [FILE[which]],
            ),
            Case(
                f'{which}-two-tables-in-one',
                text_of(which, lambda s: s + s),
                [FILE[which], 'line 50|more than one row'],
            ),
            Case(
                f'{which}-broken-link',
                replaced(which, lambda p: p.symlink_to('.git/annex/objects/x')),
                [FILE[which], 'no such file|link|fetch'],
            ),
            Case(
                f'{which}-link-to-itself',
                replaced(which, lambda p: p.symlink_to(p.name)),
                [FILE[which]],
            ),
            Case(
                f'{which}-huge-cell',
                text_of(which, line(7, lambda s: s.replace('\t', '\t' + 'x' * 300_000, 1))),
                [FILE[which]],
            ),
        )
    ),
    Case(
        'volumes-annex-pointer',
        bytes_of('volumes', lambda _: ANNEX),
        ['volumes', 'annex|datalad|fetch'],
    ),
    Case(
        'volumes-html',
        bytes_of('volumes', lambda _: b'<!DOCTYPE html>\n<html><body>Log in</body></html>\n'),
        ['volumes', 'html|table|participant_id'],
    ),
    Case(
        'volumes-json',
        bytes_of('volumes', lambda _: b'{"sub-001": [1, 2, 3],\n "sub-002": [3]}\n'),
        ['volumes'],
    ),
    Case(
        'volumes-unreadable',
        lambda s: s.volumes.chmod(0),
        ['volumes', 'permission'],
        marks=[pytest.mark.skipif(os.geteuid() == 0, reason='root may read everything')],
    ),
    Case('volumes-bom', bytes_of('volumes', lambda b: b'\xef\xbb\xbf' + b), code=ACCEPTED),
    Case('volumes-semicolons', text_of('volumes', in_table(';')), code=ACCEPTED),
    Case('volumes-commas', text_of('volumes', in_table(',')), code=ACCEPTED),
    Case(
        'volumes-spaces', text_of('volumes', in_table(' ')), ['volumes', 'tab|comma|participant_id']
    ),
    Case(
        'volumes-windows-lines',
        text_of('volumes', lambda s: s.replace('\n', '\r\n')),
        code=ACCEPTED,
    ),
    Case(
        'volumes-units-row',
        text_of('volumes', line(0, lambda s: s + '\nunit' + '\tmm3' * s.count('\t'))),
        ['volumes', 'unit|line 2'],
    ),
    Case(
        'volumes-total-row',
        text_of('volumes', lambda s: s + 'mean' + '\t1000' * 30 + '\n'),
        ['mean'],
    ),
    Case(
        'volumes-transposed',
        volumes(lambda t: t.T.rename_axis('region')),
        ['volumes', 'participant_id'],
    ),
    Case(
        'volumes-are-participants',
        lambda s: s.volumes.write_bytes(s.people.read_bytes()),
        ['volumes', 'region|feature|column'],
    ),
    Case(
        'participants-are-volumes',
        lambda s: s.people.write_bytes(s.volumes.read_bytes()),
        ['participants', 'diagnosis|age|column'],
    ),
    Case(
        'volumes-are-a-model-card',
        lambda s: s.volumes.write_bytes((s.model / 'model.json').read_bytes()),
        ['volumes'],
    ),
]

COLUMNS = [
    Case('column-unnamed', volumes(index_column('Unnamed: 0')), ['volumes', 'Unnamed: 0'], TRAIN),
    Case(
        'column-without-name', volumes(index_column('')), ['volumes', 'name|header|column'], TRAIN
    ),
    *(
        Case(f'column-{name}', volumes(index_column(name)), ['volumes', name], TRAIN)
        for name in ('index', 'X', 'row')
    ),
    Case(
        'column-twice',
        text_of('volumes', line(0, lambda s: s.replace('MUSE_30', 'MUSE_31'))),
        ['volumes', 'MUSE_31'],
    ),
    Case(
        'column-twice-but-for-case',
        text_of('volumes', line(0, lambda s: s.replace('MUSE_30', 'muse_31'))),
        ['volumes', 'muse_31'],
    ),
    Case(
        'column-twice-in-participants',
        text_of('people', line(0, lambda s: s.replace('site', 'age'))),
        ['participants', 'age'],
    ),
    Case(
        'column-of-one-region-twice',
        volumes(column('Right Amygdala', lambda t: t['MUSE_31'])),
        ['volumes', 'MUSE_31', 'Right Amygdala'],
        TRAIN,
    ),
    Case(
        'column-all-empty',
        volumes(column('MUSE_31', 'n/a')),
        [REGION, 'missing|empty'],
        TRAIN,
        code=ACCEPTED,
    ),
    Case(
        'column-all-empty-applied',
        volumes(column('MUSE_31', 'n/a')),
        [REGION, 'missing|empty|no volume'],
        APPLY,
    ),
    Case(
        'column-constant',
        volumes(column('MUSE_31', '800')),
        [REGION, 'same|constant'],
        TRAIN,
        code=ACCEPTED,
    ),
    Case(
        'column-copied',
        volumes(column('MUSE_31', lambda t: t['MUSE_32'])),
        ['MUSE_31|amygdala', 'MUSE_32|amygdala'],
        TRAIN,
    ),
    Case(
        'column-total',
        volumes(column('MUSE_702', '1400000')),
        ['MUSE_702|702|icv'],
        TRAIN,
        code=ACCEPTED,
    ),
    Case(
        'column-derived',
        volumes(column('MUSE_601', lambda t: t['MUSE_31'].astype(float) * 9)),
        ['MUSE_601|601'],
        TRAIN,
        code=ACCEPTED,
    ),
    Case(
        'column-not-a-region',
        volumes(column('euler', lambda t: [str(k % 7) for k in range(len(t))])),
        ['euler'],
        TRAIN,
        code=ACCEPTED,
    ),
    Case(
        'column-of-text',
        volumes(column('scan_date', '2019-03-02')),
        ['scan_date'],
        TRAIN,
        code=ACCEPTED,
    ),
    Case(
        'column-of-age',
        volumes(column('AgeAtScan', lambda t: [str(50 + k) for k in range(len(t))])),
        ['AgeAtScan'],
        TRAIN,
        code=ACCEPTED,
    ),
    Case(
        'column-of-r-indices',
        volumes(column('r1', lambda t: [str(k / 50) for k in range(len(t))])),
        [r'\br1\b'],
        TRAIN,
        code=ACCEPTED,
    ),
    Case(
        'column-of-unknown-region',
        volumes(column('MUSE_999', lambda t: t['MUSE_31'].astype(float) * 3)),
        ['MUSE_999'],
        TRAIN,
        code=ACCEPTED,
    ),
    Case('column-of-text-in-regions', volume('big'), ['volumes', 'MUSE_31', 'sub-005', 'big']),
    Case(
        'column-one-only', volumes(lambda t: t[['MUSE_31']]), ['volumes', 'region|feature'], TRAIN
    ),
    Case(
        'column-of-another-measure-among-unknown-regions',
        volumes(lambda t: t.add_prefix('量').assign(foo=[f'{k % 7 + 0.3}' for k in range(len(t))])),
        ['volumes', r'\bfoo\b', '--features'],
        TRAIN,
    ),
    Case('column-none', volumes(lambda t: t[[]]), ['volumes', 'region|feature|column'], TRAIN),
    Case(
        'column-missing-for-model',
        volumes(lambda t: t.drop(columns='MUSE_31')),
        ['volumes', REGION],
        APPLY,
    ),
    Case(
        'column-extra-for-model', volumes(column('note', '5')), ['note'], ('apply',), code=ACCEPTED
    ),
    Case(
        'column-with-line-break',
        text_of('volumes', line(0, lambda s: s.replace('MUSE_31', '"MUSE\n_31"'))),
        ['volumes', 'MUSE'],
    ),
    Case(
        'columns-shifted',
        text_of('volumes', line(7, lambda s: s.replace('\t', '\t\t', 1).rpartition('\t')[0])),
        ['volumes|sub-007', 'sub-007', 'missing|empty|no volume|far'],
    ),
]

FREESURFER = {
    'Right-Accumbens-area': 23, 'Left-Accumbens-area': 30, 'Right-Amygdala': 31,
    'Left-Amygdala': 32, 'Brain-Stem': 35, 'Right-Caudate': 36, 'Left-Caudate': 37,
    'Right-Hippocampus': 47, 'Left-Hippocampus': 48, 'Right-Pallidum': 55, 'Left-Pallidum': 56,
    'Right-Putamen': 57, 'Left-Putamen': 58, 'Right-Thalamus-Proper': 59,
    'Left-Thalamus-Proper': 60,
}  # fmt: skip
"""Regions of FreeSurfer, and their numbers in MUSE."""


def nichart(t):
    """As NiChart writes it: regions by number, sums and head size beside them."""
    named = t.rename(columns=lambda name: name.removeprefix('MUSE_')).rename_axis('MRID')
    return named.assign(**{'601': t['MUSE_31'], '701': '1100000', '702': '1400000'})


def aseg(t):
    """As `asegstats2table` writes it: totals beside regions."""
    named = pd.DataFrame({name: t[f'MUSE_{number}'] for name, number in FREESURFER.items()})
    totals = {'BrainSegVol': '1100000', 'EstimatedTotalIntraCranialVol': '1400000'}
    return named.assign(**totals).rename_axis('Measure:volume')


def aparc(t):
    """As `aparcstats2table` writes it."""
    areas = [
        'bankssts',
        'cuneus',
        'entorhinal',
        'fusiform',
        'insula',
        'lingual',
        'pericalcarine',
        'precuneus',
    ]
    named = t.iloc[:, : len(areas)].set_axis([f'lh_{area}_volume' for area in areas], axis=1)
    totals = {'BrainSegVolNotVent': '1100000', 'eTIV': '1400000'}
    return named.assign(**totals).rename_axis('lh.aparc.volume')


OTHERS = [
    Case('table-of-nichart', volumes(nichart), [r'\b702\b'], TRAIN, code=ACCEPTED),
    Case(
        'table-of-asegstats', volumes(aseg), ['BrainSegVol', 'EstimatedTotal'], TRAIN, code=ACCEPTED
    ),
    Case(
        'table-of-aparcstats',
        volumes(aparc),
        ['BrainSegVolNotVent', 'eTIV'],
        ('group',),
        code=ACCEPTED,
    ),
]

EXCEL_ERRORS = {
    'div0': '#DIV/0!',
    'ref': '#REF!',
    'date': '12-Mar',
    'true': 'TRUE',
    'unit': '812 mm3',
    'percent': '0.8%',
    'thousands': '1,234',
    'spaces': '1 234',
    'decimal-comma': '812,5',
    'underscore': '8_12',
    'hex': '0x32C',
    'foreign-digits': '\u0661\u0662\u0663',
    'two-points': '1.234.567',
    'less-than': '<800',
    'question': '?',
    'tilde': '~800',
}

VALUES = [
    *(
        Case(
            f'value-{name}',
            volume(value),
            ['volumes', REGION, 'sub-005', value.replace('?', r'\?')],
        )
        for name, value in EXCEL_ERRORS.items()
    ),
    *(
        Case(f'value-{name}', volume(value), ['sub-005', REGION, shown])
        for name, value, shown in [
            ('999', '-999', '-999'),
            ('9', '-9', '-9'),
            ('5000', '-5000', '-5000'),
            ('inf', 'inf', 'inf'),
            ('minus-inf', '-inf', '-inf'),
            ('1e308', '1e308', '1e.?308'),
            ('1e400', '1e400', '1e400|inf'),
        ]
    ),
    Case('value-zero', volume('0'), ['sub-005', REGION], code=ACCEPTED),
    Case('value-missing', volume('n/a'), ['sub-005', REGION], code=ACCEPTED),
    Case('value-9999', volume('9999999'), ['sub-005', REGION, '9999999']),
    Case('value-tiny', volume('0.0001'), ['sub-005', REGION, r'0\.0001|1e-04']),
    Case(
        'value-missing-everywhere',
        volumes(lambda t: t.map(lambda _: 'n/a')),
        ['volumes|everyone', 'missing|empty|no'],
    ),
    Case(
        'value-zero-everywhere',
        volumes(lambda t: t.map(lambda _: '0')),
        ['volumes|everyone', 'missing|empty|no|0'],
    ),
    Case('unit-cm3', scaled(0.001), ['volumes', 'unit|cm3|mm3']),
    Case('unit-litres', scaled(0.000001), ['volumes', 'unit|cm3|mm3|litre']),
    Case('unit-cm3-of-one', scaled(0.001, 'sub-005'), ['sub-005', 'unit|cm3|mm3']),
    Case(
        'unit-cm3-of-a-site',
        scaled(0.001, CONTROLS[::2] + PATIENTS[::2]),
        ['unit|cm3|mm3', 'sub-001'],
    ),
    Case(
        'unit-of-some-regions',
        numbers(lambda t: t.assign(MUSE_31=t['MUSE_31'] / 1000)),
        [REGION, 'unit|cm3|mm3'],
        TRAIN,
    ),
    Case('unit-share-of-icv', scaled(1 / 1_400_000), ['volumes', 'unit|cm3|mm3']),
    Case('thousands-by-points', volumes(german), ['volumes', 'thousand|separator'], TRAIN),
    Case(
        'thousands-by-points-applied',
        volumes(german),
        ['volumes', 'thousand|separator|far from'],
        APPLY,
    ),
    Case(
        'decimal-commas',
        volumes(lambda t: t.map(lambda c: c.replace('.', ','))),
        ['volumes', 'comma|number', ','],
    ),
    Case('rows-identical', volumes(same_rows), ['sub-005', 'sub-006', 'same|identical']),
    Case(
        'rows-all-identical',
        volumes(lambda t: pd.DataFrame([t.iloc[0]] * len(t), t.index)),
        ['same|identical'],
    ),
]

AGES = [
    Case('age-999', person('age', '999'), ['sub-005', 'age', '999'], code=ACCEPTED),
    Case('age-negative', person('age', '-9'), ['sub-005', 'age', '-9'], code=ACCEPTED),
    Case('age-zero', person('age', '0'), ['sub-005', 'age', r'\b0\b'], code=ACCEPTED),
    Case('age-birth-year', person('age', '1951'), ['sub-005', 'age', '1951'], code=ACCEPTED),
    Case(
        'ages-birth-years',
        each('age', lambda a: str(2020 - round(float(a)))),
        ['age', 'birth|year'],
    ),
    Case('ages-in-months', each('age', lambda a: str(round(12 * float(a)))), ['age', 'month']),
    Case('ages-in-days', each('age', lambda a: str(round(365 * float(a)))), ['age', 'year']),
    Case('age-89plus', person('age', '89+'), ['sub-005', 'age', r'89\+']),
    Case('age-text', person('age', 'seventy'), ['sub-005', 'age', 'seventy']),
    Case('age-comma', person('age', '65,3'), ['sub-005', 'age', '65,3']),
    Case(
        'ages-commas',
        each('age', lambda a: a.replace('.', ',')),
        ['age', 'comma|number|levels|categor'],
    ),
    Case(
        'ages-dates',
        each('age', lambda a: f'19{30 + int(float(a)) % 50}-03-02'),
        ['age', 'number|date|levels|categor'],
    ),
    Case(
        'ages-in-classes',
        each('age', lambda a: f'{int(float(a)) // 10 * 10}-{int(float(a)) // 10 * 10 + 9}'),
        ['age', 'number|levels|categor'],
    ),
    Case('age-missing', person('age', 'n/a'), ['sub-005', 'age', 'missing'], code=ACCEPTED),
    Case('ages-missing', each('age', lambda _: 'n/a'), ['age', 'missing']),
    Case(
        'age-codes', each('age', lambda age: str(int(float(age)) % 2 + 1)), ['participants', 'age']
    ),
    Case('age-column-absent', people(lambda t: t.drop(columns='age')), ['participants', 'age']),
    Case('age-inf', person('age', 'inf'), ['sub-005', 'age', 'inf']),
]

SEXES = [
    Case(
        'sex-in-two-cases',
        people(lambda t: t.assign(sex=t['sex'].where(t.index < 'sub-020', t['sex'].str.lower()))),
        [r'(?-i:sex: F, f = F)'],
        TRAIN,
        code=ACCEPTED,
    ),
    Case(
        'sex-in-words-and-letters',
        people(
            lambda t: t.assign(
                sex=t['sex'].where(t.index < 'sub-020', t['sex'].map({'F': 'female', 'M': 'male'}))
            )
        ),
        ['sex: F, female = F'],
        TRAIN,
        code=ACCEPTED,
    ),
    Case(
        'sex-in-codes-and-letters',
        people(
            lambda t: t.assign(
                sex=t['sex'].where(t.index < 'sub-020', t['sex'].map({'F': '0', 'M': '1'}))
            )
        ),
        ['sex', 'number'],
    ),
    Case(
        'sex-in-three-codes',
        people(lambda t: t.assign(sex=[str(k % 3) for k in range(len(t))])),
        ['sex', r'0.{1,3}1.{1,3}2'],
        TRAIN,
    ),
    Case('sex-unknown-of-one', person('sex', 'X'), ['sub-005', 'sex', r'\bX\b']),
    Case('sex-missing', person('sex', ''), ['sub-005', 'sex'], code=ACCEPTED),
    Case('sex-constant', each('sex', lambda _: 'F'), ['sex', 'same|constant|one'], TRAIN),
    Case('sex-codes-for-model', each('sex', {'F': '1', 'M': '2'}.get), ['sex', r'\b[12]\b'], APPLY),
]

GROUPS = [
    Case(
        'group-column-absent',
        people(lambda t: t.drop(columns='diagnosis')),
        ['participants', 'diagnosis|--group-column'],
        TRAIN,
    ),
    Case(
        'group-column-wrong',
        options('--group-column', 'dx'),
        ['participants', r'\bdx\b', 'diagnosis'],
        TRAIN,
    ),
    Case(
        'group-missing',
        person('diagnosis', 'n/a'),
        ['sub-005', 'diagnosis|group'],
        TRAIN,
        code=ACCEPTED,
    ),
    Case(
        'group-all-missing',
        each('diagnosis', lambda _: 'n/a'),
        ['diagnosis', '--group-column'],
        TRAIN,
    ),
    Case('group-one-only', each('diagnosis', lambda _: 'CN'), ['CN', '--group-column'], TRAIN),
    Case(
        'group-patients-only', each('diagnosis', lambda _: 'PT'), ['PT', '--control-label'], TRAIN
    ),
    Case(
        'group-three', person('diagnosis', 'MCI', PATIENTS[:12]), ['MCI', '--patient-label'], TRAIN
    ),
    Case(
        'group-two-words-for-controls',
        person('diagnosis', 'control', CONTROLS[:12]),
        ['CN', 'control', '--control-label'],
        TRAIN,
    ),
    Case(
        'group-two-spellings',
        person('diagnosis', 'pt', PATIENTS[:12]),
        ['PT', r'pt', '--patient-label'],
        TRAIN,
    ),
    Case(
        'group-opposite',
        options('--control-label', 'PT', '--patient-label', 'CN'),
        ['CN', 'control'],
        TRAIN,
    ),
    Case('group-opposite-half-said', options('--patient-label', 'CN'), ['CN', 'control'], TRAIN),
    Case('group-guess-refused', options('--no-guess'), ['CN', '--control-label'], TRAIN, USAGE),
    Case(
        'group-same-for-both',
        options('--control-label', 'CN', '--patient-label', 'CN'),
        ['CN'],
        TRAIN,
    ),
    Case('group-label-absent', options('--control-label', 'HC'), [r'\bHC\b', 'CN'], TRAIN),
    Case(
        'group-codes-1-2',
        each('diagnosis', {'CN': '1', 'PT': '2'}.get),
        ['diagnosis', '--control-label'],
        TRAIN,
    ),
    Case(
        'group-codes-yes-no',
        each('diagnosis', {'CN': 'no', 'PT': 'yes'}.get),
        ['diagnosis', '--control-label'],
        TRAIN,
    ),
    Case(
        'group-codes-minus-one',
        each('diagnosis', {'CN': '-1', 'PT': '1'}.get),
        ['controls: -1'],
        TRAIN,
        code=ACCEPTED,
    ),
    Case(
        'group-codes-decimals',
        several(
            each('diagnosis', {'CN': '0.0', 'PT': '1.0'}.get),
            options('--control-label', '0', '--patient-label', '1'),
        ),
        ['controls'],
        TRAIN,
        code=ACCEPTED,
    ),
    Case(
        'group-with-spaces',
        each('diagnosis', ' {} '.format),
        ['controls: CN'],
        TRAIN,
        code=ACCEPTED,
    ),
    Case('group-too-few', person('diagnosis', 'PT', CONTROLS[3:]), ['3 controls'], TRAIN),
    Case('group-as-covariate', options('--covariates', 'age', 'diagnosis'), ['diagnosis'], TRAIN),
    Case('group-as-site', options('--site-column', 'diagnosis'), ['diagnosis'], TRAIN),
    Case('group-is-an-id', options('--group-column', 'participant_id'), ['participant_id'], TRAIN),
    Case('group-is-a-number', options('--group-column', 'age'), ['age', '--control-label'], TRAIN),
]

SITES = [
    Case('site-missing', person('site', 'n/a'), ['sub-005', 'site', 'missing'], code=ACCEPTED),
    Case('site-of-one', person('site', 'C'), [r'site C\b'], TRAIN, code=ACCEPTED),
    Case(
        'site-without-controls',
        person('site', 'C', PATIENTS[:8]),
        [r'\bC\b', 'control'],
        TRAIN,
        code=ACCEPTED,
    ),
    Case(
        'site-of-each',
        people(lambda t: t.assign(site=[f's{k}' for k in range(len(t))])),
        ['site', '--site-column'],
        TRAIN,
    ),
    Case(
        'site-missing-in-most',
        several(by_default, person('site', 'n/a', PATIENTS[4:])),
        ['participants', r'\bsite\b.*20', '--site-column none'],
        TRAIN,
    ),
    Case(
        'site-of-two',
        several(by_default, people(lambda t: t.assign(site=[f's{k // 4}' for k in range(len(t))]))),
        [r'\bsite\b', '--site-column none'],
        TRAIN,
    ),
    Case(
        'site-is-the-group',
        people(lambda t: t.assign(site=t['diagnosis'].map({'CN': 'A', 'PT': 'B'}))),
        ['site', r'\bB\b|control'],
        TRAIN,
    ),
    Case(
        'site-column-wrong', options('--site-column', 'scanner'), ['participants', 'scanner'], TRAIN
    ),
    Case(
        'site-in-two-cases',
        person('site', 'a', CONTROLS[:6:2] + PATIENTS[:6:2]),
        ['site', r'\ba\b.*\bA\b|\bA\b.*\ba\b'],
        TRAIN,
    ),
    Case('site-unseen', person('site', 'moon'), ['sub-005', 'moon'], ('apply',)),
    Case(
        'site-column-absent-for-model',
        people(lambda t: t.drop(columns='site')),
        ['site'],
        ('apply',),
    ),
]

COVARIATES = [
    Case(
        'covariate-absent', options('--covariates', 'ages'), ['participants', 'ages', 'age'], TRAIN
    ),
    Case(
        'covariate-constant',
        several(people(column('field', '3')), options('--covariates', 'age', 'field')),
        ['field', 'same|constant|one'],
        TRAIN,
    ),
    Case(
        'covariate-collinear',
        several(
            people(lambda t: t.assign(months=(t['age'].astype(float) * 12).round(1))),
            options('--covariates', 'age', 'months'),
        ),
        ['months', 'age'],
        TRAIN,
    ),
    Case(
        'covariate-is-the-group',
        several(people(lambda t: t.assign(ill=of_group(t))), options('--covariates', 'age', 'ill')),
        ['ill', 'group|control|same|constant'],
        TRAIN,
    ),
    Case(
        'covariate-all-missing',
        several(people(column('mmse', 'n/a')), options('--covariates', 'age', 'mmse')),
        ['mmse', 'missing'],
        TRAIN,
    ),
    Case(
        'covariate-is-the-id', options('--covariates', 'participant_id'), ['participant_id'], TRAIN
    ),
    Case(
        'covariate-of-names',
        several(
            people(lambda t: t.assign(name=[f'n{k}' for k in range(len(t))])),
            options('--covariates', 'age', 'name'),
        ),
        ['name'],
        TRAIN,
    ),
    Case(
        'covariate-level-of-patients',
        several(
            people(lambda t: t.assign(race=['a', 'a', 'b', 'b'] * 6 + ['c', 'c', 'b', 'b'] * 6)),
            options('--covariates', 'age', 'race'),
        ),
        ['race', r'\bc\b'],
        TRAIN,
    ),
    Case('covariate-is-the-site', options('--covariates', 'age', 'site'), ['site'], TRAIN, USAGE),
    Case('covariate-is-a-region', options('--covariates', 'age', 'MUSE_31'), ['MUSE_31'], TRAIN),
    Case(
        'covariate-beyond-the-model',
        person('age', '99'),
        ['sub-005', 'age'],
        ('apply',),
        code=ACCEPTED,
    ),
]

HEADS = [
    Case(
        'icv-smaller-than-brain', person('icv', '90000'), ['sub-005', 'icv', '90000'], code=ACCEPTED
    ),
    Case('icv-in-cm3', each('icv', lambda v: str(float(v) / 1000)), ['icv', 'unit|cm3|mm3']),
    Case(
        'icv-in-litres', each('icv', lambda v: str(float(v) / 1e6)), ['icv', 'unit|cm3|mm3|litre']
    ),
    Case('icv-missing', person('icv', 'n/a'), ['sub-005', 'icv', 'missing'], code=ACCEPTED),
    Case('icv-zero', person('icv', '0'), ['sub-005', 'icv', r'\b0\b'], code=ACCEPTED),
    Case('icv-negative', person('icv', '-1400000'), ['sub-005', 'icv', '-1'], code=ACCEPTED),
    Case('icv-of-text', person('icv', 'large'), ['sub-005', 'icv', 'large']),
    Case('icv-constant', each('icv', lambda _: '1400000'), ['icv', 'same|constant'], TRAIN),
    Case('icv-column-wrong', options('--icv-column', 'tiv'), ['participants', r'\btiv\b'], TRAIN),
    Case(
        'icv-column-absent-for-model',
        people(lambda t: t.drop(columns='icv')),
        ['participants', 'icv'],
        APPLY,
    ),
]

FEATURES = [
    Case(
        'features-file-missing',
        options('--features', '{folder}/none.txt'),
        ['--features', 'none.txt'],
        TRAIN,
        USAGE,
    ),
    Case(
        'features-unknown-set',
        options('--features', 'muse145'),
        ['--features', 'muse145', 'muse139'],
        TRAIN,
        USAGE,
    ),
    Case('features-set-not-there', options('--features', 'muse139'), ['volumes', 'MUSE'], TRAIN),
    Case(
        'features-file-empty',
        several(
            lambda s: (s.folder / 'f.txt').write_text('\n'), options('--features', '{folder}/f.txt')
        ),
        [r'f\.txt', 'empty'],
        TRAIN,
    ),
    Case(
        'features-listed-twice',
        several(
            lambda s: (s.folder / 'f.txt').write_text('MUSE_31\nMUSE_32\nMUSE_31\n'),
            options('--features', '{folder}/f.txt'),
        ),
        [r'f\.txt', 'MUSE_31'],
        TRAIN,
    ),
    Case(
        'features-listed-but-absent',
        several(
            lambda s: (s.folder / 'f.txt').write_text('MUSE_31\nMUSE_32\nthickness\n'),
            options('--features', '{folder}/f.txt'),
        ),
        ['volumes', 'thickness'],
        TRAIN,
    ),
    Case(
        'features-file-binary',
        several(
            lambda s: (s.folder / 'f.txt').write_bytes(b'\xff\xfe\0\1' * 9),
            options('--features', '{folder}/f.txt'),
        ),
        [r'f\.txt', 'utf-8|text'],
        TRAIN,
    ),
]

JOINED = [
    Case('rows-permuted', people(permuted), [FILE['people'], 'icv', 'rows|participants']),
    Case('rows-shifted', shifted('icv', 1), [FILE['people'], 'icv', 'shifted by 1 row']),
    Case(
        'rows-shifted-from',
        shifted('icv', -2, 15),
        ['icv', 'shifted by 2 rows', r'about sub-0[12]'],
    ),
    Case('rows-copied-with-noise', numbers(noisy_copy), ['sub-005', 'sub-006'], code=ACCEPTED),
    Case('rows-copied-scaled', numbers(scaled_copy), ['sub-005', 'sub-006']),
    *(
        Case(f'id-of-a-second-scan{end}', second_visit(f'sub-005{end}'), ['sub-005', 'session_id'])
        for end in ('_run-2', '_acq-highres', '_2', 'rescan', '.1')
    ),
    *(
        Case(f'site-written-{name}', person('site', name), ['site', name])
        for name in ('a', 'A.', 'A-')
    ),
]

CASES = [
    *JOINED,
    *OTHERS,
    *IDS,
    *FILES,
    *COLUMNS,
    *VALUES,
    *AGES,
    *SEXES,
    *GROUPS,
    *SITES,
    *COVARIATES,
    *HEADS,
    *FEATURES,
]

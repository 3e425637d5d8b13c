"""Models that are missing, damaged, edited or hostile."""

from __future__ import annotations

import json
import pickle
import shutil
import struct

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.bad_input.cases import Case

DOORS = ('apply', 'card', 'group_apply', 'add_site')
COMPUTING = ('apply', 'group_apply', 'add_site')
CARD, TENSORS = 'model.json', 'model.safetensors'
CHECKSUMS = ('TensorsSHA256', 'CardSHA256')
MODEL = r'[/ ]model\b'


def card(change, sealed=False):
    """Change the card; without its checksums, unless it stays sealed, as an older model or a forged
    one has none to compare with."""

    def damage(study):
        path = study.model / CARD
        content = json.loads(path.read_text())
        if not sealed:
            content = {key: value for key, value in content.items() if key not in CHECKSUMS}
        changed = change(content)
        path.write_text(json.dumps(content if changed is None else changed))

    return damage


def card_bytes(change):
    def damage(study):
        path = study.model / CARD
        path.write_bytes(change(path.read_bytes()))

    return damage


def tensors(change, sealed=False):
    """Change the tensors; and, unless the model stays sealed, remove the checksums."""

    def damage(study):
        values = load_file(study.model / TENSORS)
        change(values)
        save_file(values, study.model / TENSORS)
        if not sealed:
            card(lambda _: None)(study)

    return damage


def tensor_bytes(change):
    def damage(study):
        path = study.model / TENSORS
        path.write_bytes(change(path.read_bytes()))
        card(lambda _: None)(study)

    return damage


def header(change):
    """Change what the file of tensors declares, not what it holds."""

    def changed(content):
        length = struct.unpack('<Q', content[:8])[0]
        declared = json.loads(content[8 : 8 + length])
        change(declared)
        text = json.dumps(declared).encode()
        return struct.pack('<Q', len(text)) + text + content[8 + length :]

    return tensor_bytes(changed)


def without(name):
    def damage(study):
        (study.model / name).unlink()

    return damage


def no_model(put=None):
    def damage(study):
        shutil.rmtree(study.model)
        if put is not None:
            put(study.model)

    return damage


def unfinished(path):
    (path / 'checkpoints').mkdir(parents=True)
    (path / 'checkpoints' / 'patterns-2.safetensors').write_bytes(b'')


def of_another(study):
    """The tensors of a model that was trained with other numbers."""
    values = load_file(study.model / TENSORS)
    values['members/g2.layer1'] = values['members/g2.layer1'][::-1].copy()
    save_file(values, study.model / TENSORS)


def set_nan(name):
    def change(values):
        values[name] = np.full_like(values[name], np.nan)

    return change


def huge(declared):
    next(iter(declared.values()))['shape'] = [10**9, 10**9]


def far(declared):
    next(iter(declared.values()))['data_offsets'] = [2**62, 2**62 + 8]


def swap(values):
    one, other = 'members/g2.layer1', 'members/g2.layer2'
    values[one], values[other] = values[other], values[one]


def first_feature(content, value):
    content['Features'][0] = value
    content['Preprocessing']['features']['features'][0]['name'] = value


def rename_range(steps):
    ranges = steps['residualiser']['encoder']['range']
    ranges['ave'] = ranges.pop('age')


def nest(depth):
    return lambda _: b'{"Format": 1, "Features": ' + b'[' * depth + b']' * depth + b'}'


DAMAGED = 'damaged|edited|not a model|copy|belong'

CASES = [
    Case('model-missing', no_model(), [MODEL, 'not a model|no such'], DOORS),
    Case('model-empty-folder', no_model(lambda p: p.mkdir()), [MODEL, 'not a model'], DOORS),
    Case('model-is-a-file', no_model(lambda p: p.write_text('x')), [MODEL, 'not a model'], DOORS),
    Case('model-link-to-itself', no_model(lambda p: p.symlink_to(p.name)), [MODEL], DOORS),
    Case('model-unfinished', no_model(unfinished), [MODEL, 'not ended|repeat|resume'], DOORS),
    *(
        case
        for name, short in ((CARD, 'card'), (TENSORS, 'tensors'))
        for case in (
            Case(f'model-without-{short}', without(name), [MODEL, name], DOORS),
            Case(
                f'model-{short}-empty',
                lambda s, name=name: (s.model / name).write_bytes(b''),
                [MODEL, DAMAGED],
                DOORS,
            ),
            Case(
                f'model-{short}-truncated',
                lambda s, name=name: (s.model / name).write_bytes(
                    (s.model / name).read_bytes()[:-1000]
                ),
                [MODEL, DAMAGED],
                DOORS,
            ),
            Case(
                f'model-{short}-folder',
                lambda s, name=name: [(s.model / name).unlink(), (s.model / name).mkdir()],
                [MODEL, name],
                DOORS,
            ),
            Case(
                f'model-{short}-link-to-itself',
                lambda s, name=name: [
                    (s.model / name).unlink(),
                    (s.model / name).symlink_to(name),
                ],
                [MODEL],
                DOORS,
            ),
        )
    ),
    Case(
        'model-card-edited',
        card(lambda c: c['Preprocessing']['residualiser'].update(names=['age']), sealed=True),
        [MODEL, CARD, DAMAGED],
        DOORS,
    ),
    Case(
        'model-card-pattern-renamed',
        card(lambda c: c.update(PatternNames=['hippocampus', 'frontal']), sealed=True),
        [MODEL, CARD, 'edited'],
        DOORS,
    ),
    Case('model-tensors-swapped', of_another, [MODEL, TENSORS, DAMAGED], DOORS),
    Case('model-tensors-of-other-shapes', tensors(swap), [MODEL, DAMAGED], COMPUTING),
    Case(
        'model-tensor-absent',
        tensors(lambda t: t.pop('members/g2.layer1')),
        [MODEL, DAMAGED],
        COMPUTING,
    ),
    Case(
        'model-tensors-nan',
        tensors(set_nan('members/g2.layer1')),
        [MODEL, 'nan|finite|damaged'],
        COMPUTING,
    ),
    Case(
        'model-preprocessing-nan',
        tensors(set_nan('preprocessing/normaliser/mean')),
        [MODEL, 'nan|finite|damaged'],
        COMPUTING,
    ),
    Case(
        'model-sd-zero',
        tensors(lambda t: t['preprocessing/normaliser/sd'].fill(0)),
        [MODEL, 'sd|zero|positive|damaged|finite'],
        COMPUTING,
    ),
    Case(
        'model-tensors-pickle',
        tensor_bytes(lambda _: pickle.dumps({'a': np.eye(3)})),
        [MODEL, DAMAGED],
        DOORS,
    ),
    Case('model-tensors-huge-shape', header(huge), [MODEL, DAMAGED], DOORS),
    Case('model-tensors-beyond-file', header(far), [MODEL, DAMAGED], DOORS),
    Case(
        'model-tensors-huge-header',
        tensor_bytes(lambda b: b'\xff' * 8 + b[8:]),
        [MODEL, DAMAGED],
        DOORS,
    ),
    Case(
        'model-tensors-random',
        tensor_bytes(lambda b: np.random.default_rng(0).bytes(len(b))),
        [MODEL, DAMAGED],
        DOORS,
    ),
    Case('model-card-not-json', card_bytes(lambda b: b[:100]), [MODEL, CARD, DAMAGED], DOORS),
    Case(
        'model-card-binary',
        card_bytes(lambda _: b'\xff\xfe\0\0' * 50),
        [MODEL, CARD, DAMAGED],
        DOORS,
    ),
    Case('model-card-a-list', card_bytes(lambda _: b'[1, 2, 3]'), [MODEL, CARD], DOORS),
    Case('model-card-a-number', card_bytes(lambda _: b'1e999'), [MODEL, CARD], DOORS),
    Case('model-card-nested', card_bytes(nest(100_000)), [MODEL, CARD], DOORS),
    Case(
        'model-card-huge-number',
        card_bytes(lambda _: b'{"Format": ' + b'9' * 100_000 + b'}'),
        [MODEL, CARD],
        DOORS,
    ),
    Case(
        'model-of-the-future',
        card(lambda c: c.update(Format=99)),
        [MODEL, 'format 99|version'],
        DOORS,
    ),
    Case(
        'model-without-format',
        card(lambda c: c.pop('Format') and None),
        [MODEL, 'format|version'],
        DOORS,
    ),
    *(
        Case(
            f'model-card-without-{key}',
            card(lambda c, key=key: c.pop(key) and None),
            [MODEL, f'{DAMAGED}|no preprocessing'],
            COMPUTING,
        )
        for key in ('Features', 'Preprocessing', 'PatternNames', 'Selected')
    ),
    *(
        Case(
            f'model-card-wrong-{key}',
            card(lambda c, key=key: c.update({key: 'nonsense'})),
            [f'{DAMAGED}|lacks'],
            COMPUTING,
        )
        for key in (
            'Features',
            'Preprocessing',
            'PatternNames',
            'HyperParameters',
            'Selected',
            'DomainLimit',
        )
    ),
    Case(
        'model-other-feature',
        card(lambda c: first_feature(c, 'thickness')),
        ['thickness|different features'],
        COMPUTING,
    ),
    Case(
        'model-features-exchanged',
        card(lambda c: c['Features'].reverse()),
        [MODEL, DAMAGED],
        COMPUTING,
    ),
    Case(
        'model-covariate-renamed',
        card(lambda c: rename_range(c['Preprocessing'])),
        [MODEL, DAMAGED],
        COMPUTING,
    ),
    Case(
        'model-gives-nan',
        tensors(lambda t: t['preprocessing/normaliser/sd'].__setitem__(3, 1e-300)),
        ['no R-indices|damaged|finite'],
        ('apply',),
    ),
    Case(
        'model-more-patterns-than-it-has',
        card(lambda c: c.update(PatternNames=['r1', 'r2', 'r3'])),
        [MODEL, DAMAGED],
        COMPUTING,
    ),
    Case(
        'model-patterns-of-one-name',
        card(lambda c: c.update(PatternNames=['r1', 'r1'])),
        [MODEL, DAMAGED],
        COMPUTING,
    ),
    Case(
        'model-pattern-named-as-path',
        card(lambda c: c.update(PatternNames=['../../x', 'r2'])),
        [MODEL, DAMAGED],
        COMPUTING,
    ),
]

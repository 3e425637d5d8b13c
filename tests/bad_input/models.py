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


def huge(declared):
    next(iter(declared.values()))['shape'] = [10**9, 10**9]


def far(declared):
    next(iter(declared.values()))['data_offsets'] = [2**62, 2**62 + 8]


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
    Case('model-without-checksums', card(lambda _: None), [MODEL, CARD, 'edited'], DOORS),
]

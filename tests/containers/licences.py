"""Licences of everything that is installed, as in the image: `python - < licences.py`.

Every package has the text of its licence in its metadata, and each LICENSE in the data of
surreal_bids names its licence. Prints what is not Apache-2.0 in surreal_bids; ends with 1 if a text
is missing.
"""

import re
import sys
from importlib.metadata import distributions
from importlib.resources import files
from pathlib import Path

TEXT = re.compile(r'(^|/)(licen[cs]es?|copying)', re.IGNORECASE)
ELSEWHERE = {'fastremap': 'fill-voids', 'docopt': 'urllib3'}
"""Packages without a text, and one with the text of the same licence: LGPL-3.0, MIT."""


def with_texts() -> dict[str, bool]:
    """Tell of each installed package whether its metadata contains the text of a licence."""
    found = {}
    for package in distributions():
        names = [str(path) for path in package.files or () if '.dist-info/' in str(path)]
        found[re.sub('[-_.]+', '-', package.name).lower()] = any(map(TEXT.search, names))
    return found


def other_licences(data: Path) -> dict[str, str]:
    """Return the files of a data folder that are not Apache-2.0, each with its licence.

    The LICENSE in a folder applies to the files that it names, or to the whole folder if it names
    none.
    """
    found = {}
    for text in sorted(data.rglob('LICENSE')):
        words = text.read_text(encoding='utf-8')
        tag = re.search(r'SPDX-License-Identifier: (\S+)', words)
        licence = tag[1] if tag else 'MIT' if 'MIT License' in words else 'unknown'
        others = [path for path in sorted(text.parent.iterdir()) if path.is_file() and path != text]
        named = [path for path in others if re.search(rf'^- {re.escape(path.name)}:', words, re.M)]
        for path in named or others:
            found[path.relative_to(data).as_posix()] = licence
    return found


if __name__ == '__main__':
    texts = with_texts()
    missing = [
        name for name, has in texts.items() if not (has or texts.get(ELSEWHERE.get(name, '')))
    ]
    others = other_licences(Path(str(files('surreal_bids') / 'data')))
    sys.stdout.write(''.join(f'{name}: {licence}\n' for name, licence in others.items()))
    sys.exit(f'no licence text: {", ".join(missing)}' if missing or not others else 0)

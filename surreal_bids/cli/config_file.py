"""The configuration of a run as a TOML file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from surreal_bids.config import AppConfig, check_config, text_problem
from surreal_bids.exceptions import UsageError
from surreal_bids.files import read_option_file, write_text

_HINTS = get_type_hints(AppConfig)
TYPES = {name: _HINTS[name] for name in (*AppConfig.__annotations__, *_HINTS)}
"""Type of each option; those that only the BIDS App has come first."""

EXPECTED: Mapping[type, tuple[str, str]] = {
    str: ('text', 'a list of text'),
    Path: ('a path', 'a list of paths'),
    int: ('a whole number', 'a list of whole numbers'),
    float: ('a number', 'a list of numbers'),
    bool: ('true or false', 'a list of true or false'),
}


def write_config(path: Path, config: AppConfig) -> Path:
    """Write a configuration to a TOML file."""
    return write_text(path, config_to_toml(config))


def config_to_toml(config: AppConfig) -> str:
    """Format a configuration as TOML; options that are not set are omitted."""
    values = {name: getattr(config, name) for name in TYPES}
    lines = [f'{name} = {_to_toml(value)}' for name, value in values.items() if value is not None]
    return '\n'.join(lines) + '\n'


def _to_toml(value: Any) -> str:
    if isinstance(value, bool):
        return 'true' if value else 'false'
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple):
        return f'[{", ".join(map(_to_toml, value))}]'
    # A JSON string is a valid TOML string, except for DEL, which TOML requires to be escaped.
    return json.dumps(str(value), ensure_ascii=False).replace('\x7f', '\\u007f')


def read_options(path: Path) -> dict[str, Any]:
    """Read options from a TOML file, with the types of :class:`AppConfig`; none is required."""
    text = read_option_file('--config-file', path)
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f'--config-file {path}: cannot be read as TOML ({error})') from error
    unknown = [name for name in content if name not in TYPES]
    if unknown:
        raise UsageError(
            f'--config-file {path}: unknown option {", ".join(unknown)}; '
            f'valid options: {", ".join(TYPES)}'
        )
    return {name: _typed(name, value, TYPES[name], path) for name, value in content.items()}


def _typed(name: str, value: Any, kind: Any, path: Path) -> Any:
    """Convert a TOML value to the type of its field: switch, text, path, number or list."""
    wanted = item_type(kind)
    if get_origin(kind) is tuple:
        value = value if isinstance(value, list) else [value]
        fits = all(_fits(item, wanted) for item in value)
    else:
        fits = _fits(value, wanted)
    if not fits:
        expected = EXPECTED[wanted][get_origin(kind) is tuple]
        raise UsageError(f'--config-file {path}: {name} = {value!r}; expected {expected}')
    return tuple(map(wanted, value)) if get_origin(kind) is tuple else wanted(value)


def item_type(kind: Any) -> Any:
    """Return the type of one value of an option: `int` for `int | None` or `tuple[int, ...]`."""
    return next((each for each in get_args(kind) if each is not NoneType), kind)


def _fits(value: Any, kind: type) -> bool:
    """Tell whether a TOML value can be converted to the type; a switch is not a number."""
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is Path:
        return isinstance(value, str) and text_problem(value) is None
    return isinstance(value, kind)


def make_config(given: Mapping[str, Any], config_file: Path | None = None) -> AppConfig:
    """Combine given options with those of a file, over which they take precedence; check them."""
    options = {**(read_options(config_file) if config_file else {}), **given}
    return check_config(AppConfig(**options))

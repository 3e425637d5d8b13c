"""Options of :class:`surreal_bids.config.AppConfig` on the command line and in TOML files."""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from surreal_bids.config import ARGUMENTS, AppConfig, Option, flag_of, options_of, text_problem
from surreal_bids.exceptions import UsageError
from surreal_bids.files import read_option_file, write_text

_HINTS = get_type_hints(AppConfig)
TYPES = {name: _HINTS[name] for name in (*AppConfig.__annotations__, *_HINTS)}
"""Type of each option; those that only the BIDS App has come first."""

METAVARS: Mapping[type, str] = {int: 'N', float: 'X', str: 'NAME', Path: 'FILE'}
"""Names of values in the help, by type."""

OPTIONS = options_of(AppConfig)
DEFAULTS: Mapping[str, Any] = {each.name: each.default for each in fields(AppConfig)}

MOST_USED = (
    *('participant_label', 'derivatives', 'group_column', 'control_label', 'patient_label'),
    *('covariates', 'site_column', 'model', 'n_patterns', 'work_dir', 'nprocs', 'dry_run'),
)
"""Options that the help shows first."""


def path_of(text: str) -> Path:
    """Return the path of an argument; an empty one would mean the current folder."""
    if problem := text_problem(text):
        raise argparse.ArgumentTypeError(f'expected {problem}')
    return Path(text).expanduser()


def add_sections(parser: argparse.ArgumentParser, sections: Mapping[str, str | None]) -> None:
    """Add all options of these sections, the most used ones first; none gets a default."""
    first = parser.add_argument_group('Most used options')
    for name in MOST_USED:
        if OPTIONS[name].section in sections:
            add_option(first, name, default=argparse.SUPPRESS)
    for title, introduction in sections.items():
        group = parser.add_argument_group(title, introduction)
        for name, option in OPTIONS.items():
            if option.section == title and name not in MOST_USED:
                add_option(group, name, default=argparse.SUPPRESS)


def add_option(target: Any, name: str, **changes: Any) -> None:
    """Add one option to a parser or section; `changes` replace arguments of `add_argument`."""
    option = OPTIONS[name]
    flags = sorted([flag_of(name), *option.aliases], key=lambda flag: flag.startswith('--'))
    names = [name] if option.section == ARGUMENTS else flags
    target.add_argument(*names, **_arguments(name, option) | changes)


def _arguments(name: str, option: Option) -> dict[str, Any]:
    """Arguments of `add_argument` for an option."""
    kind, default = TYPES[name], DEFAULTS[name]
    is_list = get_origin(kind) is tuple and option.section != ARGUMENTS
    shared = {
        'help': _help(name, option).replace('%', '%%'),
        'default': list(default) if is_list else default,
    }
    if kind is bool:
        return shared | {'action': 'store_true'}
    of_one = next((each for each in get_args(kind) if each is not NoneType), kind)
    words = f'{{{",".join(option.choices)}}}' if option.choices else option.metavar
    return shared | {
        'type': path_of if of_one is Path else of_one,
        'metavar': words or METAVARS[of_one],
        'choices': option.choices,
        # A list that is given twice is one list.
        'action': 'extend' if is_list else 'store',
        'nargs': option.nargs if get_origin(kind) is tuple else None,
    }


def _help(name: str, option: Option) -> str:
    """The help of an option, with its default unless the text explains it."""
    default = DEFAULTS[name]
    is_empty = default == () or any(default is nothing for nothing in (MISSING, None, False))
    if is_empty or '(default' in option.help:
        return option.help
    listed = ' '.join(map(str, default)) if isinstance(default, tuple) else default
    return f'{option.help} (default: {listed})'


def words_of(path: Path) -> list[str]:
    """Read a TOML file of options as words of a command line, without the arguments."""
    try:
        content = tomllib.loads(read_option_file('--config-file', path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f'--config-file {path}: cannot be read as TOML ({error})') from error
    return [
        word
        for name, value in content.items()
        if name not in OPTIONS or OPTIONS[name].section != ARGUMENTS
        for word in _words(flag_of(name), value)
    ]


def _words(flag: str, value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        yield from [flag] * value
    elif value == []:
        yield flag
    else:
        yield from (f'{flag}={each}' for each in (value if isinstance(value, list) else [value]))


def write_config(path: Path, config: AppConfig) -> Path:
    """Write a configuration to a TOML file."""
    return write_text(path, config_to_toml(config))


def config_to_toml(config: AppConfig) -> str:
    """Format a configuration as TOML; options that are not set are omitted."""
    values = {name: getattr(config, name) for name in TYPES}
    is_set = {n: v for n, v in values.items() if v is not None and (v != () or DEFAULTS[n])}
    return ''.join(f'{name} = {_to_toml(value)}\n' for name, value in is_set.items())


def _to_toml(value: Any) -> str:
    if isinstance(value, bool):
        return 'true' if value else 'false'
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple):
        return f'[{", ".join(map(_to_toml, value))}]'
    # A JSON string is a valid TOML string, except for DEL, which TOML requires to be escaped.
    return json.dumps(str(value), ensure_ascii=False).replace('\x7f', '\\u007f')

"""Command-line options, generated from the fields of :class:`surreal_bids.config.AppConfig`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_origin

from surreal_bids.cli.config_file import TYPES, item_type
from surreal_bids.config import ARGUMENTS, AppConfig, Option, flag_of, options_of, text_problem

METAVARS: Mapping[type, str] = {int: 'N', float: 'X', str: 'NAME', Path: 'FILE'}
"""Names of values in the help, by type."""

OPTIONS = options_of(AppConfig)
DEFAULTS: Mapping[str, Any] = {each.name: each.default for each in fields(AppConfig)}


def path_of(text: str) -> Path:
    """Return the path of an argument; an empty one would mean the current folder."""
    if problem := text_problem(text):
        raise argparse.ArgumentTypeError(f'expected {problem}')
    return Path(text)


def add_options(target: Any, section: str) -> None:
    """Add all options of a section to a parser or argument group; none gets a default."""
    for name, option in OPTIONS.items():
        if option.section == section:
            add_option(target, name, default=argparse.SUPPRESS)


def add_option(target: Any, name: str, **changes: Any) -> None:
    """Add one option to a parser or section; `changes` replace arguments of `add_argument`."""
    option = OPTIONS[name]
    names = [name] if option.section == ARGUMENTS else _names(name, option)
    target.add_argument(*names, **_arguments(name, option) | changes)


def _names(name: str, option: Option) -> list[str]:
    """All names of an option: short ones first, then its own, then other long ones."""
    return sorted([flag_of(name), *option.aliases], key=lambda flag: flag.startswith('--'))


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
    if option.choices:
        metavar = f'{{{",".join(option.choices)}}}'
    else:
        metavar = option.metavar or METAVARS[item_type(kind)]
    return shared | {
        'type': path_of if item_type(kind) is Path else item_type(kind),
        'metavar': metavar,
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

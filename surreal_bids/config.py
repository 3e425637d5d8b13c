"""What a run of the BIDS App was asked to do: one frozen object that goes to TOML and back."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from surreal_bids.exceptions import UsageError
from surreal_bids.files import write_text


@dataclass(frozen=True)
class AppConfig:
    """Options of the BIDS App, named as on its command line.

    Attributes
    ----------
    bids_dir, output_dir
        The dataset, and where outputs go.
    analysis_levels
        `participant`, `group`, or both.
    participant_label, session_label
        Labels without `sub-` and `ses-`; all where empty.
    bids_filter_file
        Which T1w images count, in fMRIPrep's format.
    bids_database_dir
        Where the index of the dataset is kept between runs.
    group_column, control_label, patient_label
        Column of `participants.tsv` with the diagnosis, and its values for the two groups.
    dry_run
        Check everything and write nothing.
    """

    bids_dir: Path
    output_dir: Path
    analysis_levels: tuple[str, ...]
    participant_label: tuple[str, ...] = ()
    session_label: tuple[str, ...] = ()
    bids_filter_file: Path | None = None
    bids_database_dir: Path | None = None
    group_column: str | None = None
    control_label: str | None = None
    patient_label: str | None = None
    dry_run: bool = False


def config_to_toml(config: AppConfig) -> str:
    """Write a configuration as TOML; options that are not set are left out."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    lines = [f'{name} = {_to_toml(value)}' for name, value in values.items() if value is not None]
    return '\n'.join(lines) + '\n'


def _to_toml(value: Any) -> str:
    if isinstance(value, bool):
        return 'true' if value else 'false'
    if isinstance(value, tuple):
        return f'[{", ".join(map(_to_toml, value))}]'
    # A JSON string is a TOML string, but for DEL, which TOML wants escaped.
    return json.dumps(str(value), ensure_ascii=False).replace('\x7f', '\\u007f')


def write_config(path: Path, config: AppConfig) -> Path:
    """Write a configuration to a TOML file."""
    return write_text(path, config_to_toml(config))


def read_options(path: Path) -> dict[str, Any]:
    """Read options from a TOML file, with the types that :class:`AppConfig` has.

    The file need not hold all of them: those of the command line are added, and win.
    """
    try:
        content = tomllib.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise UsageError(f'--config-file {path}: cannot be read as TOML ({error})') from error
    types = get_type_hints(AppConfig)
    unknown = [name for name in content if name not in types]
    if unknown:
        raise UsageError(
            f'--config-file {path}: unknown option {", ".join(unknown)}; '
            f'there are: {", ".join(types)}'
        )
    return {name: _typed(name, value, types[name], path) for name, value in content.items()}


def _typed(name: str, value: Any, kind: Any, path: Path) -> Any:
    """Give a value of TOML the type of its field: texts, a path, a text, or a switch."""
    wanted = next((option for option in get_args(kind) if option is not NoneType), kind)
    if get_origin(kind) is tuple:
        wanted, expected, fits = tuple, 'a list of texts', _is_list_of_texts(value)
    elif kind is bool:
        expected, fits = 'true or false', isinstance(value, bool)
    else:
        expected, fits = 'a text', isinstance(value, str)
    if not fits:
        raise UsageError(f'--config-file {path}: {name} = {value!r}; expected {expected}')
    return wanted(value)


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def make_config(given: Mapping[str, Any], config_file: Path | None = None) -> AppConfig:
    """Put a configuration together: options that were given, over those of a file."""
    return AppConfig(**{**(read_options(config_file) if config_file else {}), **given})

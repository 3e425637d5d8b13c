"""Code shared by all commands: exit codes, logging, and options on the command line and in TOML."""

from __future__ import annotations

import argparse
import difflib
import json
import logging
import os
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType
from typing import Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from surreal_bids import __version__
from surreal_bids.cautions import CHECK_LIST, describe_cautions, is_caution, unite
from surreal_bids.config import ARGUMENTS, AppConfig, Option, flag_of, options_of, text_problem
from surreal_bids.exceptions import SurrealError, UsageError
from surreal_bids.files import read_option_file, system_error, write_text
from surreal_bids.parallel import stop_server
from surreal_bids.progress import PROGRESS
from surreal_bids.text import counted

LOGGER = logging.getLogger(__name__)

EXIT_INTERNAL, EXIT_INTERRUPTED = 70, 130
"""A bug in this package (EX_SOFTWARE of sysexits.h); stopped with Ctrl-C (128 + SIGINT)."""

QUIET = -1
"""Verbosity without progress and summaries."""

OTHERS = ('py.warnings', 'nibabel.global')
"""Loggers of libraries, whose messages only developers need."""

Arguments = TypeVar('Arguments')


def run_command(function: Callable[[Arguments], int | None], arguments: Arguments) -> int:
    """Run a command and return its exit code.

    Parameters
    ----------
    function
        Function to run. It returns an exit code; None counts as 0.
    arguments
        Argument of the function: a parsed command line or a configuration.

    Returns
    -------
    int
        The exit code of the command or of a :class:`SurrealError`, whose message goes to the
        standard error; 130 after an interruption; 70 after an unexpected error, with its traceback.
    """
    CHECK_LIST.take()
    try:
        code = function(arguments) or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        stop_server()
        sys.stderr.write('interrupted; rerun the command to resume\n')
        code = EXIT_INTERRUPTED
    except Exception as error:
        code = _report(error)
    if cautions := CHECK_LIST.take():
        sys.stderr.write(f'\n{describe_cautions(cautions)}\n')
    return code


def end_dry_run(why_not: str = '') -> None:
    """Show what to check; the last line is the verdict.

    Parameters
    ----------
    why_not
        Why the command cannot run; empty: it can.
    """
    cautions = list(unite(CHECK_LIST.take()))
    if cautions:
        sys.stderr.write(f'\n{describe_cautions(cautions)}\n')
        sys.stderr.flush()
    verdict = f'ready, with {counted(len(cautions), "thing")} to check' if cautions else 'ready'
    verdict = f'cannot run: {why_not}' if why_not else verdict
    sys.stdout.write(f'Dry run: {verdict}. Nothing was written.\n')


def _report(error: Exception) -> int:
    known = error if isinstance(error, SurrealError) else system_error(error)
    if known is not None:
        LOGGER.debug('Raised here:', exc_info=True)
        sys.stderr.write(f'error: {known}\n')
        return known.exit_code
    traceback.print_exc()
    sys.stderr.write('error: this is a bug in surreal_bids; please report it with the above\n')
    return EXIT_INTERNAL


def usable_cores() -> int:
    """Count the cores that this process may use, if the system reports them; otherwise all."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Parser(argparse.ArgumentParser):
    """A parser whose errors are ours: one line, and where to find help."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown options here, so that those of a command are explained by its own help."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = (word.split('=')[0] for word in unknown if word.startswith('--'))
            near = difflib.get_close_matches(next(options, ''), self._option_string_actions)
            meant = f'; did you mean {near[0]}?' if near else ''
            self.error(f'unrecognized arguments: {" ".join(unknown)}{meant}')
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Raise a :class:`UsageError`."""
        raise UsageError(f'{message}\nSee "{self.prog} --help".')


def add_common_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add `-v`, `-q` and `--version`, which every program has; return their section."""
    group = _add_verbosity(parser, 0)
    group.add_argument('--version', action='version', version=f'%(prog)s {__version__}')
    return group


def add_to_commands(commands: Any) -> None:
    """Add `-v` and `-q` to the commands of a program, to be given after their names too."""
    for parser in commands.choices.values():
        _add_verbosity(parser, argparse.SUPPRESS)


def _add_verbosity(parser: argparse.ArgumentParser, default: Any) -> argparse._ArgumentGroup:
    group = parser.add_argument_group('Other options')
    group.add_argument(
        '-v',
        '--verbose',
        action='count',
        default=default,
        dest='verbosity',
        help='show more messages on the standard error, beside progress: -v decisions, -vv details',
    )
    group.add_argument(
        '-q',
        '--quiet',
        action='store_const',
        const=QUIET,
        default=default,
        dest='verbosity',
        help='show warnings, errors and where the outputs are, but no progress and no summary',
    )
    return group


def set_up_logging(verbosity: int) -> None:
    """Log to the standard error: 0 warnings and progress, 1 also decisions, 2 or more everything.

    With :data:`QUIET`, there are only warnings.
    """
    log_from((logging.WARNING, logging.INFO, logging.DEBUG)[min(max(verbosity, 0), 2)])
    PROGRESS.setLevel(logging.WARNING if verbosity == QUIET else logging.INFO)


def summarise(text: str) -> None:
    """Write a summary to the standard output, unless the command is quiet."""
    if PROGRESS.isEnabledFor(logging.INFO):
        sys.stdout.write(text)
        sys.stdout.flush()


def log_from(level: int) -> None:
    """Log messages from this level on; worker processes need it as an argument (`log_level`).

    Warnings are collected, and listed when the run ends. Those of libraries are details.
    """
    source = ' %(name)s' if level <= logging.DEBUG else ''
    shown = logging.StreamHandler()
    shown.addFilter(lambda record: not is_caution(record))
    logging.basicConfig(format=f'%(levelname)s{source}: %(message)s', handlers=[shown], force=True)
    logging.getLogger('surreal_bids').addHandler(CHECK_LIST)
    logging.getLogger('surreal_bids').setLevel(level)
    logging.captureWarnings(True)
    for name in OTHERS:
        logging.getLogger(name).setLevel(
            logging.WARNING if level <= logging.DEBUG else logging.CRITICAL
        )


def log_level() -> int:
    """Return the lowest level that this process logs."""
    return logging.getLogger('surreal_bids').getEffectiveLevel()


def with_hyphens(arguments: Iterable[str]) -> list[str]:
    """Replace underscores in option names, as in `--participant_label` of older BIDS Apps."""
    return [_with_hyphens(argument) for argument in arguments]


def _with_hyphens(argument: str) -> str:
    if not argument.startswith('--'):
        return argument
    option, equals, value = argument.partition('=')
    return option.replace('_', '-') + equals + value


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

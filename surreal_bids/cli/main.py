"""Code shared by all commands: logging, exit codes and common options."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from traceback import format_exception
from typing import Any, NoReturn, TypeVar

from surreal_bids import __version__
from surreal_bids.cautions import CHECK_LIST, describe_cautions, is_caution
from surreal_bids.exceptions import OutputError, SurrealError
from surreal_bids.files import system_error
from surreal_bids.parallel import stop_server
from surreal_bids.progress import PROGRESS

LOGGER = logging.getLogger(__name__)

EXIT_INTERNAL = 70
"""A bug in this package (EX_SOFTWARE of sysexits.h)."""

EXIT_INTERRUPTED = 130
"""Stopped with Ctrl-C: 128 + SIGINT, as a shell reports it."""

EXIT_BROKEN_PIPE = 141
"""The output pipe was closed, as in `... | head`: 128 + SIGPIPE."""

LIKENESS = 0.75
"""Minimum similarity (difflib) at which a known option is suggested for an unknown one."""

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
        standard error; 130 after an interruption; 70 after an unexpected error, whose traceback
        is saved to a file.
    """
    _replace_closed_streams()
    CHECK_LIST.take()
    try:
        code = _run(function, arguments)
    except SystemExit as ending:  # Of the parser, after help or wrong usage.
        raise SystemExit(_flush_output(int(ending.code or 0))) from None
    code = _flush_output(code)
    if cautions := CHECK_LIST.take():
        _tell(f'\n{describe_cautions(cautions)}')
    return code


def _flush_output(code: int) -> int:
    """Write the remaining output; return the exit code, or that of an error of the output."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_remaining_output()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        _discard_remaining_output()
        return code or _report(OutputError(f'the standard output: {error.strerror}'))
    return code


def _run(function: Callable[[Arguments], int | None], arguments: Arguments) -> int:
    try:
        return function(arguments) or 0
    except SurrealError as error:
        return _report(error)
    except KeyboardInterrupt:
        stop_server()
        _tell('interrupted; rerun the command to resume')
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE
    except Exception as error:
        known = system_error(error)
        return _report_unexpected(error) if known is None else _report(known)


def _report(error: SurrealError) -> int:
    LOGGER.debug('Raised here:', exc_info=True)
    _tell(f'error: {error}')
    return error.exit_code


def _tell(text: str) -> None:
    """Write to the standard error, if possible."""
    with suppress(OSError):
        sys.stderr.write(f'{text}\n')


def _replace_closed_streams() -> None:
    """Discard what is written to a standard stream that the shell has closed (`>&-`)."""
    for name in ('stdout', 'stderr'):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open('w', encoding='utf-8'))  # noqa: SIM115


def _report_unexpected(error: Exception) -> int:
    """Save the traceback of an unexpected error to a file and report its path."""
    traceback = ''.join(format_exception(error))
    try:
        with tempfile.NamedTemporaryFile(
            'w', encoding='utf-8', prefix='surreal_bids-', suffix='.log', delete=False
        ) as log:
            log.write(traceback)
        where = log.name
    except OSError:
        where = f'this traceback:\n{traceback}'
    _tell(
        f'error: unexpected {type(error).__name__}: {error}\n'
        f'This is a bug in surreal_bids; please report it with {where}'
    )
    return EXIT_INTERNAL


def usable_cores() -> int:
    """Count the cores that this process may use, if the system reports them; otherwise all."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _discard_remaining_output() -> None:
    """Prevent an error message when the interpreter flushes a closed pipe at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Parser(argparse.ArgumentParser):
    """A parser that suggests the most similar option for an unknown one.

    Attributes
    ----------
    is_command
        Whether it parses a command of a program. It then refuses unknown options itself, and so
        shows its own usage.
    """

    is_command = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and refuse what is not known to a command."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown and self.is_command:
            self.error(f'unrecognized arguments: {" ".join(unknown)}')
        return known, unknown

    def error(self, message: str) -> NoReturn:
        """Exit with 2 and a suggestion."""
        unknown = [word.partition('=')[0] for word in message.split() if word.startswith('--')]
        if message.startswith('unrecognized'):
            known = list(_option_names(self))
            nearest = [get_close_matches(name, known, 1, LIKENESS) for name in unknown]
            meant = [
                f'{name}: did you mean {each[0]}?' for name, each in zip(unknown, nearest) if each
            ]
            message = '; '.join([message, *meant])
        super().error(message)


def _option_names(parser: argparse.ArgumentParser) -> Iterator[str]:
    """List the names of all options of a parser and its subcommands."""
    for action in parser._actions:
        yield from (name for name in action.option_strings if name.startswith('--'))
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from _option_names(subparser)


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add `-v`, `-q` and `--version`, which every program has."""
    group = _add_verbosity(parser, 0)
    group.add_argument('--version', action='version', version=f'%(prog)s {__version__}')


def add_to_commands(commands: Any) -> None:
    """Add `-v` and `-q` to the commands of a program, to be given after their names too."""
    for parser in commands.choices.values():
        parser.is_command = True
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


QUIET = -1
"""Verbosity without progress and summaries."""


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

    Warnings are collected, and listed when the run ends.
    """
    source = ' %(name)s' if level <= logging.DEBUG else ''
    shown = logging.StreamHandler()
    shown.addFilter(lambda record: not is_caution(record))
    logging.basicConfig(format=f'%(levelname)s{source}: %(message)s', handlers=[shown], force=True)
    logging.getLogger('surreal_bids').addHandler(CHECK_LIST)
    logging.getLogger('surreal_bids').setLevel(level)


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

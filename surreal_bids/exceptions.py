"""Errors shown to users. Each message names the problem, its location and the remedy."""


class SurrealError(Exception):
    """Base class of all errors of this package, with the exit code of the command."""

    exit_code = 1


class UsageError(SurrealError, ValueError):
    """The command line is wrong."""

    exit_code = 2


class NotBIDSError(SurrealError, ValueError):
    """The input folder is not a BIDS dataset."""

    exit_code = 16


class NothingMatchedError(SurrealError, ValueError):
    """Nothing in the dataset matches the filters."""

    exit_code = 18


class DataError(SurrealError, ValueError):
    """The data cannot be used as they are."""

    exit_code = 65


class OutputError(SurrealError, OSError):
    """The output cannot be written."""

    exit_code = 73


class InUseError(OutputError):
    """Another run uses the output."""

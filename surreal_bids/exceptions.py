"""Errors that people see. Each says what was found, where, and what to do about it."""


class SurrealError(Exception):
    """Base of all errors of this package; `exit_code` is what a command returns for it."""

    exit_code = 1


class UsageError(SurrealError, ValueError):
    """The command line asks for something impossible."""

    exit_code = 2


class NotBIDSError(SurrealError, ValueError):
    """The input folder is not a BIDS dataset."""

    exit_code = 16


class NothingMatchedError(SurrealError, ValueError):
    """The dataset holds nothing that passes the filters."""

    exit_code = 18


class DataError(SurrealError, ValueError):
    """The data cannot be used as they are."""

    exit_code = 65


class MissingColumnError(DataError):
    """A table lacks a column, which another one may have."""


class OutputError(SurrealError, OSError):
    """The output cannot be written."""

    exit_code = 73

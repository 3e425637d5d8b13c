"""Warnings in one form, and the list of all warnings of a run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from surreal_bids.text import list_briefly

LOGGER = logging.getLogger(__name__)

WHAT_TO_CHECK = 'What to check'
"""Heading of the list, on the screen and in reports."""

PARTICIPANTS, HARMONIZATION, MODEL, R_INDICES = (
    'Participants',
    'Harmonization',
    'Model',
    'R-indices',
)
SEPARATION, CHANGE = 'Associations and separation', 'Change over visits'
PATTERNS = 'Patterns'
GROUP_SECTIONS = {PARTICIPANTS, HARMONIZATION, MODEL, R_INDICES, SEPARATION, CHANGE, PATTERNS}
"""Sections of the report of a group that warnings link to."""

FIGURES, VOLUMES = 'Figures', 'Volumes'
"""Sections of the report of an image that warnings link to."""


CONFOUNDED, INVALID, BIASED, MINOR = 3, 2, 1, 0
"""How severe a warning is: something else tells the groups apart as well as the disease; results
must not be interpreted; results of the groups may be biased; or anything else."""


class Caution(NamedTuple):
    """A warning. It is logged like a text: ``LOGGER.warning(Caution(...))``.

    Attributes
    ----------
    found
        What was found, and where.
    consequence
        What this means for the results.
    remedy
        What to do.
    about
        Section of the report to look at; empty: none.
    who
        Image or participant. The list of a run unites warnings that otherwise mean the same.
    severity
        Lists begin with the most severe warnings.
    """

    found: str
    consequence: str
    remedy: str
    about: str = ''
    who: str = ''
    severity: int = MINOR

    def __str__(self) -> str:
        return f'{self.statement} {self.remedy}.'

    @property
    def statement(self) -> str:
        """What was found, and what this means."""
        return f'{self.who}{": " * bool(self.who)}{self.found}. {self.consequence}.'


def unite(cautions: Iterable[Caution]) -> Iterator[Caution]:
    """Remove repetitions, and unite what several images or participants share.

    The most severe come first; warnings of the same severity stay in their order.
    """
    kinds: dict[tuple[object, ...], list[Caution]] = {}
    for each in sorted(dict.fromkeys(cautions), key=lambda caution: -caution.severity):
        kinds.setdefault(each[1:4] if each.who else each, []).append(each)
    for first, *others in kinds.values():
        who = list_briefly(dict.fromkeys(each.who for each in (first, *others)))
        differ = any(each.found != first.found for each in others)
        yield first._replace(who=who, found=first.found + ' (the first of them)' * differ)


def describe_cautions(cautions: Iterable[Caution]) -> str:
    """Write warnings as the list that ends a run; empty without warnings."""
    lines = [f'- {each.statement}\n  To do: {each.remedy}.' for each in unite(cautions)]
    return '\n'.join([WHAT_TO_CHECK, *lines, '']) if lines else ''


def log_cautions(cautions: Iterable[Caution]) -> None:
    """Log warnings that were returned, for the list that ends the run."""
    for each in cautions:
        LOGGER.warning(each)


class CheckList(logging.Handler):
    """Collects the warnings that are logged, until the run ends."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.cautions: list[Caution] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a warning."""
        if isinstance(record.msg, Caution):
            self.cautions.append(record.msg)

    def take(self) -> list[Caution]:
        """Return what was collected, and start again."""
        taken, self.cautions = self.cautions, []
        return taken


def is_caution(record: logging.LogRecord) -> bool:
    """Check whether a record belongs to the list that ends a run."""
    return isinstance(record.msg, Caution)


CHECK_LIST = CheckList()
"""The list of this process."""

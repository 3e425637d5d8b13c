"""Screen participants, volumes and sites in turn, and keep the reason for each exclusion."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from surreal_bids.bids.tabular import Table, prefix_errors
from surreal_bids.cautions import Caution
from surreal_bids.cohort.by_hand import read_exclusions
from surreal_bids.cohort.consistency import near_copies
from surreal_bids.cohort.content import refuse_codes
from surreal_bids.cohort.facts import (
    refuse_other_codes,
    refuse_placeholders,
    refuse_spellings,
    require_levels,
    require_years,
    unify_sex,
)
from surreal_bids.cohort.features import (
    GO_WITHOUT,
    VOLUME_UNIT,
    Choice,
    choose_features,
    column_features,
    judge_listed,
    listed_features,
    of_kind,
    read_features,
)
from surreal_bids.cohort.groups import Groups
from surreal_bids.cohort.plausibility import (
    MIN_AT_SITE,
    Reasons,
    check_head_size,
    check_volumes,
    empty_regions,
    far_volumes,
    implausible_values,
    missing_values,
    outlying_volumes,
    refuse_negative,
    refuse_separators,
    require_numbers,
    require_people,
    require_varying,
    sites_without_controls,
    unusable_regions,
)
from surreal_bids.cohort.reader import (
    VisitTable,
    in_order,
    of_sessions,
    require_ids,
    rows_of,
    visit_columns,
    without_rows,
)
from surreal_bids.cohort.requirements import (
    PreprocessingOptions,
    Requirements,
    expected_volumes,
    read_person_columns,
    usual_head_size,
)
from surreal_bids.cohort.visits import learns_from_visits
from surreal_bids.cohort.zscores import check_z_scores, missing_scores, unusable_scores
from surreal_bids.columns import means
from surreal_bids.config import ZSCORE, CohortOptions
from surreal_bids.exceptions import DataError, NothingMatchedError, UsageError
from surreal_bids.model.networks import MIN_FEATURES, MIN_PEOPLE
from surreal_bids.names import CONTROL, PATIENT, SINGULAR, Visit, visit_name, without_prefix
from surreal_bids.regions import FeatureList
from surreal_bids.text import alternatives, counted

MOST_LEFT = 0.5
"""Share of a group that must have a value in the columns that are used by default, and be at sites
with controls."""

ONE_SITE = 'everyone'
"""Name of the site of all participants in a dataset without a site column."""


class Screen:
    """Visits that remain, and reasons why others are excluded."""

    def __init__(self, visits: Sequence[Visit], prefix: str) -> None:
        self.prefix = prefix
        self.visits = {visit_name(visit, prefix): visit for visit in in_order(visits)}
        self.reasons: Reasons = {}

    def exclude(self, reasons: Reasons) -> None:
        """Exclude visits; an earlier reason is kept."""
        self.reasons = {**reasons, **self.reasons}
        require_people(self.remaining, self.reasons)

    def select(self, labels: Collection[str]) -> None:
        """Keep the participants with these labels only; no label: everyone."""
        wanted = {without_prefix(label, 'sub') for label in labels}
        self.visits = {
            name: visit for name, visit in self.visits.items() if not wanted or visit[0] in wanted
        }
        self.exclude({name: why for name, why in self.reasons.items() if name in self.visits})

    def order(self, names: Iterable[str]) -> None:
        """Put these visits first, in this order."""
        self.visits = {name: self.visits[name] for name in (*names, *self.visits)}

    @property
    def remaining(self) -> list[str]:
        """Names of the visits that are not excluded."""
        return [name for name in self.visits if name not in self.reasons]

    def remaining_visits(self) -> dict[str, Visit]:
        """Return the visits that are not excluded, by name."""
        return {name: self.visits[name] for name in self.remaining}

    def participants(self, chosen: pd.Series) -> set[str]:
        """Return the participants with a remaining visit that is chosen: booleans by visit."""
        return {visit[0] for name, visit in self.remaining_visits().items() if chosen.get(name)}

    def counts(self, groups: Groups | None) -> dict[str, int]:
        """Return the number of remaining participants in each group; empty without groups."""
        if groups is None:
            return {}
        return {name: len(self.participants(groups.labels == name)) for name in (CONTROL, PATIENT)}


def start_screen(
    volumes: VisitTable,
    people: VisitTable | None,
    expected: Sequence[Visit],
    options: CohortOptions,
) -> Screen:
    """Collect all visits of the wanted sessions; exclude those without volumes or without a row."""
    prefix = max(volumes.prefix, people.prefix if people else '')
    measured = [*volumes.visits, *expected]
    listed = [] if people is None else without_rows(people, volumes)
    require_labels([*measured, *listed], options.participant_label, options.session_label)
    screen = Screen(of_sessions([*measured, *listed], options.session_label), prefix)
    screen.exclude(_without_volumes(screen, volumes))
    if people is not None:
        require_ids(volumes, people)
        known = {participant for participant, _ in people.visits}
        screen.exclude(
            {
                name: f'no row in {people.source.name}'
                for name, (participant, _) in screen.visits.items()
                if participant not in known
            }
        )
    exclude_by_hand(screen, options, [*measured, *(people.visits if people else ())])
    return screen


def exclude_by_hand(
    screen: Screen,
    options: CohortOptions,
    everyone: Collection[Visit],
    knows_sessions: bool = True,
) -> Reasons:
    """Exclude the visits that the user has listed (`read_exclusions`), and return the reasons."""
    if options.exclude is None:
        return {}
    reasons = read_exclusions(
        options.exclude, screen.visits, everyone, options.id_column, knows_sessions
    )
    screen.exclude(reasons)
    return reasons


def require_labels(
    visits: Sequence[Visit], participant_label: Sequence[str], session_label: Sequence[str] = ()
) -> None:
    """Refuse labels of participants and sessions that no visit has."""
    participants, sessions = zip(*visits)
    labels = {
        '--participant-label': (participant_label, 'sub', participants),
        '--session-label': (session_label, 'ses', sessions),
    }
    for option, (wanted, entity, known) in labels.items():
        absent = [label for label in wanted if without_prefix(label, entity) not in known]
        if absent:
            raise NothingMatchedError(
                f'{option} {" ".join(absent)}: no such label; '
                f'{alternatives(absent, sorted({*filter(None, known)}))}'
            )
    of_session = {participant for participant, _ in of_sessions(visits, session_label)}
    absent = [
        label for label in participant_label if without_prefix(label, 'sub') not in of_session
    ]
    if absent:
        raise NothingMatchedError(
            f'--participant-label {" ".join(absent)}: no visit in --session-label '
            f'{" ".join(session_label)}; select other participants or sessions'
        )


def _without_volumes(screen: Screen, volumes: VisitTable) -> Reasons:
    reason = (
        f'not in {volumes.source}'
        if volumes.source.is_file()
        else 'no regional volumes: the participant level has not run or has failed (see logs)'
    )
    there = set(volumes.visits)
    return {name: reason for name, visit in screen.visits.items() if visit not in there}


def require_known(screen: Screen, people: Table, choice: Choice, groups: Groups | None) -> None:
    """Refuse columns used by default that most participants of a group lack.

    Raises
    ------
    DataError
        More than half of a group, or too many for training, would be excluded.
    """
    cells = people.text.loc[screen.remaining, list(choice.defaults)]
    counts = cells.isna().sum()
    lacking = counts.index[counts > 0]
    is_known = cells.notna().all(axis=1)
    if groups is None:
        return
    for group in (CONTROL, PATIENT):
        of_group = groups.labels[screen.remaining] == group
        everyone = screen.participants(of_group)
        left = screen.participants(of_group & is_known)
        if _are_too_few(len(left), len(everyone)):
            listed = ', '.join(f'{name} ({counts[name]})' for name in lacking)
            without = dict.fromkeys(GO_WITHOUT[choice.defaults[name]] for name in lacking)
            raise DataError(
                f'{people.source_of(lacking[0])}: missing values of {listed} would exclude '
                f'{len(everyone) - len(left)} of {counted(len(everyone), SINGULAR[group])}; fill '
                f'them in, or go without: {"; ".join(without)}'
            )


def _are_too_few(n_left: int, n_all: int) -> bool:
    """Check whether an exclusion would take most of a group, or too many to train."""
    return n_left < n_all and (n_left < n_all * MOST_LEFT or n_left < MIN_PEOPLE)


def screen_people(
    screen: Screen, people: Table, choice: Choice, model: Requirements | None
) -> tuple[pd.DataFrame, list[str]]:
    """Exclude visits without covariates, ICV or site, or with implausible ones.

    Returns
    -------
    table, notes
        Covariates, ICV and site; and the spellings that were unified.
    """
    names = {own: name for name, own in choice.columns.items()}
    hidden = [name for own, name in names.items() if name != own and name in people.columns]
    # A copy is not fragmented: pandas warns of columns that are added to fragmented frames.
    renamed = people.text.drop(columns=hidden).rename(columns=names).copy()
    if choice.one_site and choice.options.site_column:
        renamed = renamed.assign(**{choice.options.site_column: ONE_SITE})
    joined = {names.get(own, own): source for own, source in people.joined.items()}
    known = Table(people.source, renamed, joined).rows(screen.remaining)
    table, notes = _type_people(known, choice.options, model)
    screen.exclude(missing_values(table))
    rest = table.loc[screen.remaining]
    screen.exclude(implausible_values(rest, choice.options.icv_column))
    return table, notes


def _type_people(
    known: Table, options: PreprocessingOptions, model: Requirements | None
) -> tuple[pd.DataFrame, list[str]]:
    """Convert columns to numbers and categories; refuse impossible ones."""
    text, codes = (list(model.levels), model.codes) if model else (None, None)
    table = read_person_columns(known, options, text, codes)
    notes = []
    for name in options.covariates:
        levels = model.levels.get(name, ()) if model else ()
        with prefix_errors(known.source_of(name)):
            require_numbers(table[name])
            table[name], note = unify_sex(table[name], levels)
            if means(name, 'age'):
                refuse_codes(table[name])
                require_years(table[name])
        notes += [note] if note else []
    for column in table.select_dtypes(exclude='number'):
        with prefix_errors(known.source_of(str(column))):
            refuse_spellings(table[column])
            refuse_placeholders(table[column])
            if model is None:
                require_levels(table[column], column == options.site_column)
    return table, notes


class Features(NamedTuple):
    """The features, what the other columns of volumes hold, and doubts about them."""

    wanted: FeatureList
    judged: Mapping[str, str] = {}
    doubts: Sequence[Caution] = ()


def find_features(
    volumes: VisitTable,
    screen: Screen,
    used: Collection[str],
    people: Collection[str],
    options: CohortOptions,
    model: Requirements | None,
) -> Features:
    """Find the features: those of the model, those that the user listed, or all regions.

    Parameters
    ----------
    volumes, screen
        The table, and who remains.
    used, people
        Columns with another use, and those of the table of participants.
    options, model
        As of :func:`~surreal_bids.cohort.cohort.read_cohort`.
    """
    if model is not None:
        return Features(model.features)
    table = Table(volumes.source, rows_of(volumes, screen.remaining_visits()))
    if options.features is not None:
        listed = of_kind(listed_features(options.features), options.features_kind)
        return Features(listed, doubts=judge_listed(table, listed, used))
    wanted, judged = choose_features(table, {*used, *people}, options.features_kind)
    features = pd.DataFrame({name: table.numbers(name) for name in wanted.names})
    if options.features_kind == ZSCORE:
        unusable = unusable_scores(features)
    else:
        refuse_negative(features, str(volumes.source))
        unusable = unusable_regions(features)
    kept = [name for name in wanted.names if name not in unusable]
    if len(kept) < MIN_FEATURES:
        raise DataError(
            f'{volumes.source}: only {counted(len(kept), "usable region")}, at least '
            f'{MIN_FEATURES} are needed'
            + ''.join(f'; {name}: {why}' for name, why in list(unusable.items())[:3])
        )
    return Features(of_kind(column_features(kept), options.features_kind), judged | unusable)


def screen_features(
    screen: Screen,
    volumes: VisitTable,
    wanted: FeatureList,
    choice: Choice,
    people: pd.DataFrame,
    described: Table,
    model: Requirements | None,
) -> pd.DataFrame:
    """Read volumes or z-scores, refuse impossible ones, and exclude visits with missing ones.

    Missing ones are kept if they are to be imputed.
    """
    table = Table(volumes.source, rows_of(volumes, screen.remaining_visits()))
    refuse_separators(table, [name for name in table.columns if name not in people])
    features = read_features(table, wanted)
    if wanted.are_z_scores:
        if not volumes.source.is_file():
            raise UsageError(
                'the participant level measures volumes, not z-scores; use --roi-table with a '
                'table of z-scores'
            )
        check_z_scores(features.loc[screen.remaining], str(volumes.source))
    else:
        _screen_volumes(screen, volumes, features, wanted, choice, model)
    _check_people(people.loc[screen.remaining], described, features, wanted, choice, model)
    empty = features.where(features.notna(), 1.0) if choice.options.impute else features
    is_empty = missing_scores if wanted.are_z_scores else empty_regions
    screen.exclude(is_empty(empty.rename(columns=volumes.names)))
    return features


def _screen_volumes(
    screen: Screen,
    volumes: VisitTable,
    features: pd.DataFrame,
    wanted: FeatureList,
    choice: Choice,
    model: Requirements | None,
) -> None:
    """Refuse impossible volumes; exclude those of the participant level."""
    measured_here = not volumes.source.is_file()
    if measured_here:  # Users cannot correct volumes of the participant level.
        screen.exclude(far_volumes(features.rename(columns=volumes.names)))
    if model is None or choice.options.icv != 'proportion':
        expected = expected_volumes(wanted, model)
        check_volumes(
            features.loc[screen.remaining],
            expected[[]] if measured_here and model is None else expected,
            str(volumes.source),
            _unit(model.features if model else wanted),
        )
    with prefix_errors(volumes.source):
        participants = [screen.visits[name][0] for name in screen.remaining]
        screen.exclude(near_copies(features.loc[screen.remaining], participants))


def _unit(features: FeatureList) -> str:
    if features.unit == VOLUME_UNIT:
        return VOLUME_UNIT
    return 'the unit of the table that the model was trained on'


def _check_people(
    people: pd.DataFrame,
    described: Table,
    features: pd.DataFrame,
    wanted: FeatureList,
    choice: Choice,
    model: Requirements | None,
) -> None:
    """Compare the codes of the sexes and the unit of head size with the volumes."""
    for name in model.ranges if model is not None else ():
        if model is not None and means(name, 'sex') and not wanted.are_z_scores:
            with prefix_errors(described.source_of(choice.columns[name])):
                refuse_other_codes(people[name], model, features.loc[people.index])
    column = choice.options.icv_column
    if column and choice.options.uses_icv:
        own = choice.columns[column]
        with prefix_errors(described.source_of(own)):
            usual = usual_head_size(column, wanted, model)
            check_head_size(people[column].rename(own), usual)
            if model is None and choice.options.icv != 'proportion':
                require_varying(people[column].rename(own))


def outlying(features: pd.DataFrame, groups: Groups | None, wanted: FeatureList) -> Reasons:
    """Return the reasons for excluding visits with features far from those of their group."""
    if groups is None:
        return {}
    complete = features.dropna()
    return outlying_volumes(complete, groups.is_patient[complete.index], wanted.are_z_scores)


def screen_sites(
    screen: Screen,
    table: pd.DataFrame,
    groups: Groups,
    choice: Choice,
    model: Requirements | None,
) -> Choice:
    """Exclude sites without enough controls; do not harmonize if one site remains."""
    column = choice.options.site_column
    if column is None or groups.is_patient[screen.remaining].all():
        return choice
    site = table.loc[screen.remaining, column]
    person = pd.Series([screen.visits[name][0] for name in site.index], site.index)
    is_control = ~groups.is_patient[site.index]
    reasons = sites_without_controls(site, ~person.duplicated() & is_control)
    if model is None:
        of_visits = sites_without_controls(site, is_control)
        left = is_control & ~site.index.isin(list(of_visits))
        if learns_from_visits(person[left], table.loc[site.index[left]], choice.options):
            reasons = of_visits
        _refuse_small_sites(screen, groups, site, reasons)
    screen.exclude(reasons)
    if model is not None or len(set(site[screen.remaining])) > 1:
        return choice
    note = f'Harmonization: none, because column {column} has only one site'
    return replace(
        choice, options=replace(choice.options, site_column=None), notes=(*choice.notes, note)
    )


def _refuse_small_sites(screen: Screen, groups: Groups, site: pd.Series, reasons: Reasons) -> None:
    """Refuse a site column if most participants are at sites with too few controls."""
    for group in (CONTROL, PATIENT):
        of_group = groups.labels[site.index] == group
        everyone = screen.participants(of_group)
        left = screen.participants(of_group & ~site.index.isin(list(reasons)))
        if _are_too_few(len(left), len(everyone)):
            small = site[list(reasons)].nunique()
            raise DataError(
                f'column {site.name}: {small} of {counted(site.nunique(), "site")} have fewer than '
                f'{MIN_AT_SITE} controls, which would exclude {len(everyone) - len(left)} of '
                f'{counted(len(everyone), SINGULAR[group])}; merge sites, choose another column '
                'with --site-column, or do not harmonize (--site-column none)'
            )


def exclusion_table(screen: Screen) -> pd.DataFrame:
    """Return the excluded visits with the reason for each."""
    everyone = visit_columns(screen.visits.values(), screen.prefix)
    return everyone.assign(reason=pd.Series(screen.reasons, dtype=object)).dropna(subset='reason')

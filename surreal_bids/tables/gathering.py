"""From volumes and `participants.tsv` to a cohort, with a list of who is left out and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from surreal_bids.bids.labels import without_prefix
from surreal_bids.bids.participants import (
    PARTICIPANT,
    SESSION,
    Table,
    Visit,
    read_participants,
    read_visits,
)
from surreal_bids.config import AppConfig
from surreal_bids.exceptions import DataError
from surreal_bids.harmonization.empirical_bayes import FEWEST_FOR_SCALE
from surreal_bids.harmonization.tables import name_some
from surreal_bids.model.checks import FEWEST_FEATURES, FEWEST_PEOPLE
from surreal_bids.regions import VENTRICLES, recognise
from surreal_bids.tables.choices import Choice, choose_options
from surreal_bids.tables.cohort import Cohort, mark_first_visits
from surreal_bids.tables.features import (
    FeatureList,
    column_features,
    read_features,
    remaining_features,
)
from surreal_bids.tables.groups import CONTROL, PATIENT, GroupLabels, Groups, find_groups
from surreal_bids.tables.people import (
    read_person_columns,
    require_distinct,
)
from surreal_bids.tables.phenotypes import read_others
from surreal_bids.tables.preprocessing import Preprocessing
from surreal_bids.tables.screening import (
    Reasons,
    empty_regions,
    implausible_values,
    missing_values,
    outlying_volumes,
    require_numbers,
    require_people,
    sites_without_controls,
    summarise_reasons,
    unusable_regions,
)
from surreal_bids.tables.visits import ICV, Volumes, in_order, visit_columns, visit_name

GROUP_NAMES = {CONTROL: 'controls', PATIENT: 'patients'}

ONE_SITE = 'everyone'
"""Name of the only site of a dataset that does not tell its sites apart."""


@dataclass(frozen=True, eq=False)
class Gathered:
    """What was found.

    Attributes
    ----------
    cohort
        Everyone who is in.
    exclusions : frame
        `participant_id`, `session_id` if there are sessions, and `reason` of everyone else.
    volumes
        Volumes of everyone, in or out.
    """

    cohort: Cohort
    exclusions: pd.DataFrame
    volumes: Volumes


class _Screen:
    """Visits that are still in, and why the others are not."""

    def __init__(self, visits: Sequence[Visit]) -> None:
        self.visits = {visit_name(visit): visit for visit in in_order(visits)}
        self.reasons: Reasons = {}

    def exclude(self, reasons: Reasons) -> None:
        """Leave people out; whom an earlier reason has left out already keeps that one."""
        self.reasons = {**reasons, **self.reasons}
        require_people(self.remaining, self.reasons)

    @property
    def remaining(self) -> list[str]:
        return [name for name in self.visits if name not in self.reasons]


def gather_cohort(
    config: AppConfig,
    volumes: Volumes,
    expected: Sequence[Visit] = (),
    model: Preprocessing | None = None,
) -> Gathered:
    """Join volumes and people, and screen them.

    Parameters
    ----------
    config
        Columns, labels and filters.
    volumes
        Volumes of everyone there are some of.
    expected
        Visits that should have volumes: those with an image.
    model
        Preprocessing of a model to apply, which says what is needed; None: a model is trained, and
        the configuration says so.

    Raises
    ------
    DataError
        No `participants.tsv`; no controls or no patients, or too few; no such column; nobody left.
    """
    everyone = read_participants(config.bids_dir)
    screen = _Screen(_filter([*volumes.visits, *expected, *_listed(everyone, volumes)], config))
    screen.exclude(_without_volumes(screen, volumes, config))
    screen.exclude(_without_row(screen, everyone))
    described = _read_described(config, screen)
    people = _with_own_columns(described, volumes)
    groups = find_groups(people, _said(config))
    screen.exclude(_of_other_groups(groups))
    choice = choose_options(config, people, model)
    require_distinct(choice.options, groups.column)
    table = _screen_people(screen, people, choice, model)
    wanted, dropped = _find_features(volumes, screen.remaining, described, model)
    features = read_features(_rows(volumes.table, screen.remaining), wanted)
    screen.exclude(empty_regions(features.rename(columns=volumes.names)))
    features = features.loc[screen.remaining]
    screen.exclude(outlying_volumes(features, groups.is_patient[features.index]))
    choice = _screen_sites(screen, table, groups, choice, model)
    used = {groups.column, *choice.columns.values()}
    names = screen.remaining
    cohort = Cohort(
        _describe_visits(screen, groups),
        features.loc[names],
        table.loc[names, choice.options.columns],
        read_others(described, used, config.phenotype, [screen.visits[name] for name in names]),
        wanted,
        choice.options,
        (f'Groups: {groups.describe()}', *choice.notes, *_note_visits(screen), *dropped),
    )
    _require_groups(cohort, screen.reasons, training=model is None)
    return Gathered(cohort, _exclusion_table(screen), volumes)


def _filter(visits: Sequence[Visit], config: AppConfig) -> list[Visit]:
    """Visits that `--participant-label` and `--session-label` leave, each once."""
    people = {without_prefix(label, 'sub') for label in config.participant_label}
    sessions = {without_prefix(label, 'ses') for label in config.session_label}
    return [
        (participant, session)
        for participant, session in dict.fromkeys(visits)
        if (not people or participant in people)
        and (not sessions or session is None or session in sessions)
    ]


def _listed(everyone: Table, volumes: Volumes) -> list[Visit]:
    """People of `participants.tsv` of whom there is no volume at all."""
    known = {participant for participant, _ in volumes.visits}
    return [(label, None) for label in everyone.categories(PARTICIPANT) if label not in known]


def _without_volumes(screen: _Screen, volumes: Volumes, config: AppConfig) -> Reasons:
    reason = (
        f'not in {config.roi_table}'
        if config.roi_table
        else 'no regional volumes: the participant level has not run, or has failed (see logs)'
    )
    there = set(volumes.table.text.index)
    return {name: reason for name in screen.visits if name not in there}


def _without_row(screen: _Screen, everyone: Table) -> Reasons:
    known = set(everyone.categories(PARTICIPANT))
    return {
        name: 'no row in participants.tsv'
        for name, (participant, _) in screen.visits.items()
        if participant not in known
    }


def _read_described(config: AppConfig, screen: _Screen) -> Table:
    """What `participants.tsv` and `sessions.tsv` say of everyone still in."""
    names = screen.remaining
    people = read_visits(config.bids_dir, [screen.visits[name] for name in names])
    return Table(people.source, people.text.set_axis(names).drop(columns=[PARTICIPANT, SESSION]))


def _with_own_columns(described: Table, volumes: Volumes) -> Table:
    """The same, and what the table of volumes has beside; ICV is often there."""
    own = volumes.table.text.loc[described.text.index]
    new = own[[name for name in own if name not in described.columns]]
    return Table(described.source, pd.concat([described.text, new], axis=1))


def _said(config: AppConfig) -> GroupLabels:
    labels = [(label,) if label else () for label in (config.control_label, config.patient_label)]
    return GroupLabels(config.group_column, *labels)


def _of_other_groups(groups: Groups) -> Reasons:
    return {
        name: f'{groups.column} is missing'
        if value is None
        else f'{groups.column} is {value}: neither control nor patient'
        for name, value in groups.left_out.items()
    }


def _screen_people(
    screen: _Screen, people: Table, choice: Choice, model: Preprocessing | None
) -> pd.DataFrame:
    """Covariates, ICV and site of those who have all of them."""
    names = {own: name for name, own in choice.columns.items()}
    hidden = [name for own, name in names.items() if name != own and name in people.columns]
    renamed = people.text.drop(columns=hidden).rename(columns=names)
    if choice.one_site and choice.options.site_column:
        renamed[choice.options.site_column] = ONE_SITE
    known = _rows(Table(people.source, renamed), screen.remaining)
    text, codes = (model.text_covariates, model.codes) if model else (None, None)
    table = read_person_columns(known, choice.options, text, codes)
    require_numbers(table[list(choice.options.covariates)])
    screen.exclude(missing_values(table))
    screen.exclude(implausible_values(table.loc[screen.remaining]))
    return table


def _rows(table: Table, names: Sequence[str]) -> Table:
    return Table(table.source, table.text.loc[list(names)])


def _find_features(
    volumes: Volumes, names: Sequence[str], described: Table, model: Preprocessing | None
) -> tuple[FeatureList, list[str]]:
    """The features, and what was left out in words.

    Without a model to say which: the MUSE regions but ventricles, if the table has such, or else
    every column that does not describe people.
    """
    if model is not None:
        return model.features, []
    table = _rows(volumes.table, names)
    columns = _region_columns(table, described)
    unusable = unusable_regions(pd.DataFrame({name: table.numbers(name) for name in columns}))
    kept = [name for name in columns if name not in unusable]
    if len(kept) < FEWEST_FEATURES:
        raise DataError(
            f'{volumes.source}: {len(kept)} regions can be used, {FEWEST_FEATURES} are needed; '
            f'left out: {name_some([f"{name} ({why})" for name, why in unusable.items()])}'
        )
    dropped = [f'{volumes.names.get(n, n)}: left out, {why}' for n, why in unusable.items()]
    return column_features(kept), dropped


def _region_columns(table: Table, described: Table) -> list[str]:
    regions = recognise(table.columns)
    if len(regions) >= FEWEST_FEATURES:
        return [name for name, index in regions.items() if index not in VENTRICLES]
    people = [name for name in table.columns if name in described.columns or name.lower() == ICV]
    return remaining_features(table, people).names


def _screen_sites(
    screen: _Screen,
    table: pd.DataFrame,
    groups: Groups,
    choice: Choice,
    model: Preprocessing | None,
) -> Choice:
    """Leave out sites without controls; with one site left, there is nothing to harmonize."""
    column = choice.options.site_column
    if column is None or groups.is_patient[screen.remaining].all():
        return choice
    site = table.loc[screen.remaining, column]
    person = pd.Series([screen.visits[name][0] for name in site.index], site.index)
    teaches = ~person.duplicated() & ~groups.is_patient[site.index]
    screen.exclude(sites_without_controls(site, teaches))
    if model is not None or len(set(site[screen.remaining])) > 1:
        return choice
    note = f'Harmonization: none, since column {column} has one site only'
    return replace(
        choice, options=replace(choice.options, site_column=None), notes=(*choice.notes, note)
    )


def _require_groups(cohort: Cohort, reasons: Reasons, training: bool) -> None:
    """Refuse groups that are too small, and say for which reasons people were left out."""
    needed = {CONTROL: FEWEST_PEOPLE, PATIENT: FEWEST_PEOPLE}
    if not training:
        needed = {CONTROL: FEWEST_FOR_SCALE, PATIENT: 0}
    remedy = 'add people, or correct --control-label and --patient-label'
    if reasons:
        remedy = f'{len(reasons)} are excluded: {summarise_reasons(reasons.values())}'
    for group, count in cohort.counts.items():
        if count < needed[group]:
            raise DataError(
                f'{count} {GROUP_NAMES[group]} are left, but at least {needed[group]} are needed; '
                f'{remedy}'
            )


def _describe_visits(screen: _Screen, groups: Groups) -> pd.DataFrame:
    names = screen.remaining
    visits = visit_columns([screen.visits[name] for name in names])
    return mark_first_visits(visits.assign(group=groups.labels[names]))


def _note_visits(screen: _Screen) -> list[str]:
    """Which visit is learned from, where somebody has several."""
    people = [screen.visits[name][0] for name in screen.remaining]
    if len(set(people)) == len(people):
        return []
    return ['Visits: of each person the first by the name of the session is learned from']


def _exclusion_table(screen: _Screen) -> pd.DataFrame:
    """Who is left out and why; columns as in the tables of those who are not."""
    everyone = visit_columns(screen.visits.values())
    return everyone.assign(reason=pd.Series(screen.reasons, dtype=object)).dropna(subset='reason')

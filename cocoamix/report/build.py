"""Build a report from output folders of runs: sections of tables and charts, and the runs that were left out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from cocoamix.config.partition import LABEL
from cocoamix.drawing.ranges import align
from cocoamix.errors import UserError, printable

from . import ablations
from . import paper as printed
from .model import confidence, differences
from .model.differences import Baseline
from .model.parameters import parameters_chart
from .model.rows import Row, find_sources, make_rows, partition_of, show
from .model.session_parts import part_charts
from .model.sweeps import find_sweeps
from .model.tables import (
    Section,
    Table,
    all_classes_table,
    average_table,
    count_sessions,
    curves_chart,
    dataset_table,
    dots_chart,
    points_chart,
    sessions_average_table,
    sessions_table,
    shots_average_table,
    shots_kind,
    shots_table,
    sort_shots,
    transfer_table,
)
from .model.tradeoff import tradeoff_chart
from .names import is_zero_shot, list_some, natural, simplify, sort_datasets
from .readers.runs import Inventory, Problem, Run, find_runs


@dataclass(frozen=True)
class Options:
    """The options of a report."""

    baseline: str = ""
    paper: bool = False
    common: bool = False  # average over the datasets that all methods have
    names: tuple[tuple[str, str], ...] = ()
    confidence: bool = False  # tables of confidence for each dataset, not only their average
    command: str = ""  # the command line that makes the report


@dataclass
class Report:
    """The content of a report."""

    folders: list[str]
    sections: list[Section]
    runs: list[Run]
    problems: list[Problem]
    notes: list[str] = field(default_factory=list)
    command: str = ""  # the command line that made it

    @property
    def complete(self) -> bool:
        """Whether every run that was found is in it."""
        return not self.problems

    @property
    def backbones(self) -> list[str]:
        """The backbones that its runs state, including each member of an ensemble."""
        found = (str(run.protocol["backbone"]) for run in self.runs if run.protocol.get("backbone"))
        return sorted({printable(name) for names in found for name in names.split("+")}, key=natural)


def build(directories: Sequence[str | os.PathLike[str]], options: Options | None = None) -> Report:
    """Read the runs below the folders and make the report."""
    options = options or Options()
    inventory = find_runs(directories)
    runs = find_sources(inventory.runs)
    baseline = Baseline(options.baseline)
    sections = _base_to_new(runs, options, inventory, baseline)
    sections += _transfer(runs, options, inventory, baseline)
    sections += build_sessions(runs, options, inventory, baseline)
    sections += _few_shot(runs, options, inventory, baseline)
    if not sections:
        first = inventory.problems[0]
        raise UserError(
            f"None of the {len(inventory.problems)} run(s) below {', '.join(map(str, directories))} has a result. "
            f"The first: {first.folder}: {first.reason}."
        )
    baseline.check()
    notes = list(dict.fromkeys(inventory.notes))
    problems = list(dict.fromkeys(inventory.problems))
    for section in sections:
        section.charts = [chart for chart in section.charts if any(series.x for series in chart.series)]
    _make_keys_unique(sections)
    folders = [str(directory) for directory in directories]
    # Names of runs come from paths and files of any origin, and go to terminals and pages.
    folders, sections, problems, notes = (_printable(part) for part in (folders, sections, problems, notes))
    return Report(folders, sections, runs, problems, notes, printable(options.command))


def _make_keys_unique(sections: Sequence[Section]) -> None:
    """Number equal keys, such as those of the user's datasets `my birds` and `my_birds`."""
    seen: set[str] = set()
    for section in sections:
        for table in section.tables:
            table.key = _unique(table.key, seen)
        section.charts = [replace(chart, key=_unique(chart.key, seen)) for chart in section.charts]


def _unique(key: str, seen: set[str]) -> str:
    """Return the key, with a number if it was seen before, and remember it."""
    found, number = key, 1
    while found in seen:
        number += 1
        found = f"{key}-{number}"
    seen.add(found)
    return found


def _printable(part: Any) -> Any:
    """Return a part of a report with the control characters in its strings escaped."""
    if isinstance(part, str):
        return printable(part)
    if isinstance(part, (list, tuple)):
        return type(part)(map(_printable, part))
    if is_dataclass(part) and not isinstance(part, type):
        return replace(part, **{one.name: _printable(getattr(part, one.name)) for one in fields(part)})
    return part


def _shot_counts(runs: Sequence[Run]) -> list[int | None]:
    """Return the numbers of shots, each of which has its own tables. Zero-shot runs are in all of them."""
    shots = {run.shots for run in runs if not is_zero_shot(run.trainer)}
    return sorted(shots, key=lambda value: (value is None, value or 0)) or [None]


def _of_shots(runs: Sequence[Run], shots: int | None) -> list[Run]:
    return [run for run in runs if run.shots == shots or is_zero_shot(run.trainer)]


def _sort(rows: list[Row]) -> list[Row]:
    """Sort rows as papers do: zero-shot methods first, our own method last, others by name."""
    return sorted(
        rows, key=lambda row: (not is_zero_shot(row.trainer), row.trainer.startswith("CoCoA"), natural(row.label))
    )


def _setting(shots: int | None) -> str:
    return "" if shots is None else f", {shots} shot" + "s" * (shots != 1)


# ---------------------------------------------------------------------------------------- base to new


def _base_to_new(runs: Sequence[Run], options: Options, inventory: Inventory, baseline: Baseline) -> list[Section]:
    """Return the sections of CoOp's halves, then of random halves. Averages and H must not mix the two."""
    runs = [run for run in runs if run.task == "base2new"]
    random = [run for run in runs if partition_of(run) != LABEL]
    sections = _halves([run for run in runs if partition_of(run) == LABEL], options, inventory, baseline)
    names = sorted({partition_of(run) for run in random}, key=natural)
    title = f", partition {names[0]}" if len(names) == 1 else ", random halves"
    others = _halves(random, replace(options, paper=False), inventory, baseline, "-random", title)
    for section in others if len(names) > 1 else ():
        section.charts.clear()  # rows are partitions, not methods: see `cocoamix figures assumption`
    return sections + others


def _halves(
    runs: Sequence[Run], options: Options, inventory: Inventory, baseline: Baseline, suffix: str = "", title: str = ""
) -> list[Section]:
    sections = []
    for shots in _shot_counts(runs) if runs else []:
        rows = _sort(make_rows(_of_shots(runs, shots), options.names, inventory))
        key = "base2new" + ("" if shots is None else f"-{shots}") + suffix
        section = Section(key, f"Base to new{_setting(shots)}{title}")
        halves = [run.dataset for row in rows for run in row.runs if run.subset != "all"]
        datasets = sort_datasets(halves)
        averaged = _averaged(rows, datasets, options, section)
        if not options.common:
            _note_missing(rows, datasets, section)
        if datasets:
            _fill_base_to_new(section, rows, datasets, averaged, shots, options, baseline)
        whole = all_classes_table(rows, sort_datasets(run.dataset for row in rows for run in row.runs), f"{key}-all")
        section.tables += [whole] if whole else []
        shown = averaged or datasets or sort_datasets(run.dataset for row in rows for run in row.runs)
        places = confidence.halves(rows)
        section.tables += confidence.dataset_tables(rows, shown, places, key, options.confidence)
        baseline.mark(section, rows)
        sections.append(section)
    return sections


def _averaged(rows: Sequence[Row], datasets: list[str], options: Options, section: Section) -> list[str]:
    """Return the datasets to average over."""
    if not options.common:
        return datasets
    shared = _shared(rows, datasets)
    if len(shared) < len(datasets):
        left = ", ".join(one for one in datasets if one not in shared)
        section.notes.append(f"Averages are over the datasets that all methods have (--common); left out: {left}.")
    return shared


def _shared(rows: Sequence[Row], datasets: Sequence[str]) -> list[str]:
    """Return the datasets on which all methods have base and new."""
    return [one for one in datasets if all(row.by_seed(one, "base") and row.by_seed(one, "new") for row in rows)]


def _note_missing(rows: Sequence[Row], datasets: Sequence[str], section: Section) -> None:
    """Note which methods have no average because they lack datasets, and what to do."""
    lacking = {row.label: [one for one in datasets if one not in _shared([row], datasets)] for row in rows}
    lacking = {label: missing for label, missing in lacking.items() if missing}
    if len(datasets) < 2 or not lacking:
        return
    single = len(lacking) == 1
    missing = [dataset for dataset in datasets if any(dataset in lacks for lacks in lacking.values())]
    same = all(lacks == missing for lacks in lacking.values())
    what = list_some(missing) if same else f"some of {list_some(missing)}"
    shared = len(_shared(rows, datasets))
    remedy = (
        f"cocoamix report --common averages over the {shared} datasets that all methods have."
        if shared > 1
        else "There are no two datasets that all methods have."
    )
    section.notes.append(
        f"{list_some(list(lacking))} {'lacks' if single else 'lack'} base or new results of {what}, so "
        f"{'it lacks' if single else 'they lack'} averages. {remedy}"
    )


def _fill_base_to_new(
    section: Section,
    rows: list[Row],
    datasets: list[str],
    averaged: list[str],
    shots: int | None,
    options: Options,
    baseline: Baseline,
) -> None:
    key = section.key
    printed_somewhere = False
    if len(averaged) > 1:
        table = average_table(rows, averaged, f"{key}-average")
        section.tables.append(table)
        title = f"Average over {len(averaged)} datasets"
        section.charts.append(points_chart(rows, averaged, f"{key}-points", title))
        if options.paper:
            printed_somewhere |= printed.add_to_average_table(table, averaged)
        section.charts.append(tradeoff_chart(table, rows, averaged, f"{key}-tradeoff"))
        section.charts.append(parameters_chart(table, rows, averaged, f"{key}-parameters"))
    elif len(datasets) == 1:
        section.charts.append(points_chart(rows, datasets, f"{key}-points", datasets[0]))
    for dataset in datasets:
        table = dataset_table(rows, dataset, f"{key}-{simplify(dataset)}")
        section.tables.append(table)
        if options.paper:
            printed_somewhere |= printed.add_to_dataset_table(table, dataset)
        if len(datasets) == 1:
            section.charts.append(tradeoff_chart(table, rows, datasets, f"{key}-tradeoff"))
            section.charts.append(parameters_chart(table, rows, datasets, f"{key}-parameters"))
    measures = differences.base_to_new(averaged or datasets)
    compared = baseline.add_to(rows, measures, f"{key}-difference", section.notes)
    if compared:
        section.tables.insert(1, compared)  # below the averages or the only dataset
    if options.paper:
        further = ablations.compare_with_averages(rows, averaged, shots, f"{key}-paper-table")
        section.tables += further.tables
        section.tables += printed.comparison_tables(rows, datasets, f"{key}-paper", section.notes, further.matched)
        section.notes += further.notes
        others = [row for row in rows if row.label not in further.matched]
        _note_paper(section, "base_to_new", printed_somewhere, others, shots, ", ".join(datasets))
    for sweep, chart in find_sweeps(rows, averaged or datasets, key, section.notes):
        section.tables.append(sweep)
        section.charts.append(chart)
    section.charts.append(dots_chart(rows, datasets, f"{key}-dots", "H of each seed"))


def _note_paper(section: Section, part: str, found: bool, rows: list[Row], shots: int | None, what: str) -> None:
    if not found:
        section.notes.append(f"The paper has no results for {what}.")
        return
    section.notes.append(printed.source_note(part))
    differing = printed.setting_differs(part, rows, shots)
    if differing:
        section.notes.append(f"The settings differ: {'; '.join(differing)}.")


# ---------------------------------------------------------------------------------------- transfer


def _transfer(runs: Sequence[Run], options: Options, inventory: Inventory, baseline: Baseline) -> list[Section]:
    moved = [run for run in runs if run.task == "transfer"]
    zero_shot = [run for run in runs if run.task == "few-shot" and is_zero_shot(run.trainer)]
    sections = []
    for source in sort_datasets(run.source for run in moved):
        chosen = [run for run in moved if run.source == source]
        for shots in _shot_counts(chosen):
            rows = _sort(make_rows(_of_shots(chosen + zero_shot, shots), options.names, inventory))
            key = f"transfer-{simplify(source) or 'unknown'}" + ("" if shots is None else f"-{shots}")
            section = Section(key, f"Transfer from {source or 'an unknown source'}{_setting(shots)}")
            targets = sort_datasets(run.dataset for run in chosen if run.dataset != source)
            domains = [one for one in targets if source and simplify(one).startswith(simplify(source))]
            others = [one for one in targets if one not in domains]
            if others:
                table = transfer_table(rows, source, others, f"{key}-datasets", "To other datasets")
                found = options.paper and printed.add_to_transfer_table(table, source, others)
                if options.paper:
                    _note_paper(section, "transfer", found, rows, shots, "this transfer")
                section.tables.append(table)
            if domains:
                section.tables.append(
                    transfer_table(rows, source, domains, f"{key}-domains", "To other domains of the source")
                )
            for reached, name, what in ((others, "datasets", "other datasets"), (domains, "domains", "other domains")):
                shown = [row for row in rows if any(row.by_seed(target, "all") for target in reached)]
                measures = differences.transfer(source, reached)
                compared = baseline.add_to(shown, measures, f"{key}-{name}-difference", section.notes, what)
                section.tables += [compared] if compared else []
            section.tables += confidence.transfer_tables(rows, source, others, domains, key, options.confidence)
            baseline.mark(section, rows)
            sections.append(section)
    return sections


# ---------------------------------------------------------------------------------------- sessions


# Facts on which the runs in one table of sessions must agree, because their accuracies are compared.
_SESSION_FACTS = (
    *("backbone", "weights_sha256", "splits.test", "evaluated_on"),
    *("fscil.base", "fscil.way", "fscil.shots", "fscil.split"),
)


def build_sessions(runs: Sequence[Run], options: Options, inventory: Inventory, baseline: Baseline) -> list[Section]:
    """Return the section of class-incremental runs, if any, with a table for each dataset, model and session split."""
    chosen = [replace(run, subset="all") for run in runs if run.task == "fscil"]
    if not chosen:
        return []
    section = Section("fscil", "Few-shot class-incremental learning")
    datasets = sort_datasets(run.dataset for run in chosen)
    by_dataset = {
        dataset: _kinds_of_sessions([run for run in chosen if run.dataset == dataset]) for dataset in datasets
    }
    if len(datasets) > 1 and all(len(kinds) == 1 for kinds in by_dataset.values()):
        _average_sessions(section, chosen, datasets, options, inventory, baseline)
    averaged = any(table.key == "fscil-average-confidence" for table in section.tables)
    for dataset, kinds in by_dataset.items():
        for number, (title, members) in enumerate(kinds.items(), 1):
            rows = _sort(make_rows(members, options.names, inventory))
            key = f"fscil-{simplify(dataset)}" + (f"-{number}" if len(kinds) > 1 else "")
            table = sessions_table(rows, dataset, key, title)
            if options.paper:
                _add_paper_sessions(section, table, dataset, rows)
            section.tables.append(table)
            first = len(section.tables) - 1
            count = sum(column.key.startswith("session_") for column in table.columns)
            measures = differences.sessions(dataset, count)
            compared = baseline.add_to(rows, measures, f"{key}-difference", section.notes, table.title)
            section.tables += [compared] if compared else []
            backbone = members[0].protocol.get("backbone", "")
            name = title if not backbone or str(backbone) in title else f"{title}, {backbone}"
            curves = [curves_chart(table, f"{key}-curves", name, "session")]
            if not any(chart.key == "fscil-average-base" for chart in section.charts):
                curves += part_charts(rows, [dataset], key, name)
            section.charts += align(curves)
            if options.confidence or not averaged:
                section.tables += confidence.session_tables(rows, [dataset], key, title)
            baseline.mark(section, rows, section.tables[first:])
    return [section]


def _average_sessions(
    section: Section,
    runs: Sequence[Run],
    datasets: list[str],
    options: Options,
    inventory: Inventory,
    baseline: Baseline,
) -> None:
    """Put the average over datasets first, if all of them have the same number of sessions."""
    rows = _sort(make_rows(runs, options.names, inventory))
    if len({count_sessions(rows, dataset) for dataset in datasets}) > 1:
        return
    table = sessions_average_table(rows, datasets, "fscil-average")
    if any(not line.values[0].missing for line in table.lines):
        section.tables.append(table)
        curves = [curves_chart(table, "fscil-average-curves", table.title, "session")]
        section.charts += align(curves + part_charts(rows, datasets, "fscil-average", table.title))
        section.tables += confidence.session_tables(rows, datasets, table.key, table.title)
        baseline.mark(section, rows)


def _kinds_of_sessions(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Group the runs of a dataset into tables. The keys are the titles, which name the facts that differ."""
    facts = [tuple(run.protocol.get(key) for key in _SESSION_FACTS) for run in runs]
    differing = [place for place, values in enumerate(zip(*facts, strict=True)) if len(set(values)) > 1]
    kinds: dict[str, list[Run]] = {}
    for run, values in zip(runs, facts, strict=True):
        words = ", ".join(f"{_SESSION_FACTS[place]} {show(values[place])}" for place in differing)
        kinds.setdefault(f"{run.dataset} ({words})" if words else run.dataset, []).append(run)
    return kinds


def _add_paper_sessions(section: Section, table: Table, dataset: str, rows: list[Row]) -> None:
    if dataset != printed.figures()["fscil"]["dataset"]:
        section.notes.append(f"The paper has no results for {dataset}.")
        return
    count = sum(column.key.startswith("session_") for column in table.columns)
    differing = printed.sessions_differ(dataset, rows, count)
    if differing:
        section.notes.append(f"The paper's lines are not shown next to {table.title}: {'; '.join(differing)}.")
        return
    printed.add_to_sessions_table(table)
    section.notes.append(printed.source_note("fscil"))


# ---------------------------------------------------------------------------------------- few-shot


def _few_shot(runs: Sequence[Run], options: Options, inventory: Inventory, baseline: Baseline) -> list[Section]:
    chosen = [replace(run, subset=shots_kind(run.trainer, run.shots)) for run in runs if run.task == "few-shot"]
    if not chosen or (all(is_zero_shot(run.trainer) for run in chosen) and any(run.task == "transfer" for run in runs)):
        return []
    section = Section("few-shot", "Few-shot, all classes")
    rows = _sort(make_rows(chosen, options.names, inventory))
    datasets = sort_datasets(run.dataset for run in chosen)
    tables = [shots_average_table(rows, datasets, "few-shot-average")] if len(datasets) > 1 else []
    tables = [one for one in tables if not all(value.mean is None for line in one.lines for value in line.values)]
    tables += [shots_table(rows, dataset, f"few-shot-{simplify(dataset)}") for dataset in datasets]
    section.tables += tables
    kinds = sort_shots({run.subset for row in rows for run in row.runs})
    measures = differences.few_shot(datasets, kinds)
    compared = baseline.add_to(rows, measures, "few-shot-difference", section.notes)
    if compared:
        section.tables.insert(1, compared)
    places = confidence.subsets(*kinds)
    section.tables += confidence.dataset_tables(rows, datasets, places, "few-shot", options.confidence)
    baseline.mark(section, rows)
    for table in tables:
        if sum(column.key[0].isdigit() for column in table.columns) > 1:
            section.charts.append(curves_chart(table, f"{table.key}-curves", table.title, "shots"))
    return [section]

"""The tables of each task: base to new, transfer, class-incremental sessions, and few-shot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from cocoamix.config.partition import LABEL

from . import pivots
from .beside import add_published, comparison_tables
from .differences import Baseline
from .frame import Frame
from .names import is_zero_shot, list_some, natural, simplify, sort_datasets
from .published import match
from .sections import (
    CONFIDENCE,
    Options,
    Place,
    Section,
    add_confidence,
    add_confidences,
    average_title,
    by_shots,
    kinds_of_sessions,
    open_section,
    over,
)
from .stats import harmonic
from .tables import LOW, NEITHER, Column, Measures, Table, fill, stack

# The columns of tables. Each table adds the datasets that it is over.
BASE_TO_NEW = (Column("base", "base"), Column("new", "new"), Column("H", "H"))
ALL_CLASSES = (
    Column("accuracy", "all", measure="all_accuracy"),
    Column("base_accuracy", "base among all", measure="all_base_accuracy"),
    Column("new_accuracy", "new among all", measure="all_new_accuracy"),
    Column("harmonic_mean", "H", measure="all_harmonic_mean"),
)
AFTER_SESSIONS = (
    Column("mean", "mean"),
    Column("PD", "PD", better=LOW),
    Column("base_accuracy", "base", measure="all_base_accuracy"),
    Column("new_accuracy", "novel", measure="all_new_accuracy"),
    Column("harmonic_mean", "H", measure="all_harmonic_mean"),
    Column("mean_forgetting", "forgetting", measure="all_mean_forgetting", better=LOW),
)

# ---------------------------------------------------------------------------------------- base to new


def base_to_new(frame: Frame, options: Options, baseline: Baseline) -> Iterator[Section]:
    """Yield the sections of CoOp's halves, then of random halves. Averages and H must not mix the two."""
    part = frame.where(task="base2new")
    random = part.runs["draw"] != LABEL
    for runs, suffix in ((part.runs[~random], ""), (part.runs[random], "-random")):
        draws = sorted(runs["draw"].unique(), key=natural)
        draw_title = "" if not suffix else f", partition {draws[0]}" if len(draws) == 1 else ", random halves"
        own_part = part.only(runs.index)
        for chosen, shots, words in by_shots(_name_draws(own_part) if len(draws) > 1 else own_part) if draws else ():
            wide = pivots.base_to_new(chosen.values)
            halves = chosen.runs["dataset"][chosen.runs["subset"] != "all"]
            key, title = f"base2new{shots}{suffix}", f"Base to new{words}{draw_title}"
            own = replace(options, paper=options.paper and not suffix)
            section = open_section(key, title, chosen, sort_datasets(halves), own, wide)
            _fill_halves(section, options, baseline)
            yield section


def _name_draws(part: Frame) -> Frame:
    """Return runs whose methods are named after their partitions, each of which has other classes."""

    def named(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(method=rows["method"] + " [partition=" + rows["draw"] + "]")

    return replace(part, values=named(part.values), runs=named(part.runs))


def _fill_halves(section: Section, options: Options, baseline: Baseline) -> None:
    measures, datasets = section.measures, section.datasets
    having = _having(measures, datasets)
    shared = [name for name in datasets if all(name in names for names in having.values())]
    if options.common:
        section.datasets = shared
        if len(shared) < len(datasets):
            left = ", ".join(name for name in datasets if name not in shared)
            section.notes.append(f"Averages are over the datasets that all methods have (--common); left out: {left}.")
        if options.paper:  # published averages are over these datasets, too
            runs = section.part.runs
            section.published = match(section.part.only(runs.index[runs["dataset"].isin(shared)]))
    elif len(datasets) > 1 and shared != datasets:
        section.notes.append(_note_missing(having, datasets, len(shared)))
    if len(section.datasets) > 1:
        section.add(_average(section, having))
    for name in datasets:
        table = fill(measures, over(BASE_TO_NEW, [name]), f"{section.key}-{simplify(name)}", name)
        section.add(table and _add_h_of_means(add_published(table, section.published)))
    compared = section.compare(baseline, over(BASE_TO_NEW, section.datasets or datasets))
    if compared:
        section.tables.insert(1, compared)  # below the averages or the only dataset
        section.main = 2
    section.add(*comparison_tables(section.published, f"{section.key}-published"))
    every = sort_datasets(section.part.runs["dataset"])
    whole = {name: fill(measures, over(ALL_CLASSES, [name]), f"{section.key}-all", "") for name in every}
    title, known = "Base and new classes in one label space", {name: table for name, table in whole.items() if table}
    section.add(stack(known, title, len(every) > 1))
    shown = section.datasets or every
    in_all = set(section.part.runs["dataset"][section.part.runs["subset"] == "all"])
    places = [Place("base", "base", shown), Place("new", "new", shown)]
    places.append(Place("all", "all", [name for name in shown if name in in_all], columns=CONFIDENCE))
    add_confidences(section, places, shown, options.confidence)


def _having(measures: Measures, datasets: Sequence[str]) -> dict[str, list[str]]:
    """Return the datasets on which each method has base and new."""
    present = (
        measures.wide.reindex(columns=["base", "new"]).notna().groupby(level=["method", "dataset"]).any().all(axis=1)
    )
    return {row: [name for name in datasets if present.get((row, name), False)] for row in measures.rows}


def _note_missing(having: Mapping[str, Sequence[str]], datasets: Sequence[str], shared: int) -> str:
    """Return which methods have no average because they lack datasets, and what to do."""
    lacking = [row for row, names in having.items() if len(names) < len(datasets)]
    missing = [name for name in datasets if any(name not in having[row] for row in lacking)]
    remedy = (
        f"cocoamix report --common averages over the {shared} datasets that all methods have."
        if shared > 1
        else "There are no two datasets that all methods have."
    )
    return (
        f"No average, because base or new results of {list_some(missing)} are missing: {list_some(lacking)}. {remedy}"
    )


def _average(section: Section, having: Mapping[str, Sequence[str]]) -> Table | None:
    names = section.datasets
    caption = (
        "H is the mean over datasets of each dataset's H, which is the mean over seeds, as in the paper; "
        "H of means is the harmonic mean of the two averages. A method that lacks a dataset has no average."
    )
    table = fill(section.measures, over(BASE_TO_NEW, names), f"{section.key}-average", average_title(names), caption)
    if table:
        _add_h_of_means(add_published(table, section.published))
        counts = {
            row: f"{len([name for name in known if name in names])} of {len(names)}" for row, known in having.items()
        }
        words = [counts.get(row, "") for row in table.rows]
        table.add(Column("datasets", "datasets", better=NEITHER), words=words)
    return table


def _add_h_of_means(table: Table) -> Table:
    """Add the harmonic mean of the two averages, the other common way to average H."""
    mean, n = harmonic(table.mean["base"], table.mean["new"]), table.n[["base", "new"]].min(axis=1)
    table.add(Column("H_of_means", "H of means", better=NEITHER), mean, n=n.where(mean.notna(), 0))
    return table


# ---------------------------------------------------------------------------------------- transfer


def transfer(frame: Frame, options: Options, baseline: Baseline) -> Iterator[Section]:
    """Yield a section for each source and number of shots. Zero-shot runs on all classes are in all of them."""
    moved = frame.runs["task"] == "transfer"
    untrained = (frame.runs["task"] == "few-shot") & frame.runs["trainer"].map(is_zero_shot).astype(bool)
    for source in sort_datasets(frame.runs["source"][moved]):
        part = frame.only(frame.runs.index[(moved & (frame.runs["source"] == source)) | untrained])
        targets = sort_datasets(
            name for name in part.runs["dataset"][part.runs["task"] == "transfer"] if name != source
        )
        domains = [name for name in targets if source and simplify(name).startswith(simplify(source))]
        others = [name for name in targets if name not in domains]
        for chosen, shots, words in by_shots(part):
            key, title = (
                f"transfer-{simplify(source) or 'unknown'}{shots}",
                f"Transfer from {source or 'an unknown source'}",
            )
            section = open_section(key, f"{title}{words}", chosen, targets, options)
            section.measures.wide["both"] = _with_source(section.measures.wide["all_accuracy"], source)
            for names, kind, what in ((others, "datasets", "other datasets"), (domains, "domains", "other domains")):
                _add_transfers(section, source, names, kind, what, baseline)
            section.add(*comparison_tables(section.published, f"{section.key}-published"))
            start = Place("source", f"{source} (source)" if source else "source", [source], "all")
            averages = [("target", "target average", others), ("domain", "domain average", domains)]
            places = [start, *(Place(*place, "all") for place in averages)]
            if not add_confidence(section, places, f"{section.key}-confidence", "Confidence") or options.confidence:
                places = [start, *(Place(name, name, [name], "all") for name in (*others, *domains))]
                add_confidence(section, places, f"{section.key}-confidence-each", "Confidence on each target")
            yield section


def _with_source(accuracy: pd.Series, source: str) -> pd.Series:
    """Return H of each accuracy and that of the same method and seed on the source."""
    known = accuracy[accuracy.index.get_level_values("dataset") == source].droplevel("dataset")
    return pd.Series(harmonic(known.reindex(accuracy.index.droplevel("dataset")).to_numpy(), accuracy), accuracy.index)


def _add_transfers(
    section: Section, source: str, targets: Sequence[str], kind: str, what: str, baseline: Baseline
) -> None:
    """Add the accuracies on source and targets, their average, and the mean of H(source, target)."""
    wide = section.measures.wide
    reaching = set(wide.index[wide.index.isin(targets, level="dataset")].get_level_values("method"))
    measures = replace(section.measures, rows=[row for row in section.measures.rows if row in reaching])
    first = Column("source", f"{source} (source)" if source else "source", (source,), "all_accuracy")
    each = [Column(target, target, (target,), "all_accuracy") for target in targets]
    last = [
        Column("target", "target average", tuple(targets), "all_accuracy"),
        Column("H", "H", tuple(targets), "both"),
    ]
    caption = "H is the mean over targets of the harmonic mean of source and target, as in the paper."
    title = "To other datasets" if kind == "datasets" else "To other domains of the source"
    if measures.rows:
        table = fill(measures, [first, *each, *last], f"{section.key}-{kind}", title, caption)
        section.add(table and add_published(table, section.published))
        columns = [replace(column, title=column.key) for column in (first, *last)]
        section.add(replace(section, measures=measures).compare(baseline, columns, f"{section.key}-{kind}", what))


# ---------------------------------------------------------------------------------------- sessions


def sessions(frame: Frame, options: Options, baseline: Baseline) -> Iterator[Section]:
    """Yield the section of class-incremental runs, with a table for each dataset, model and session split."""
    part = frame.where(task="fscil")
    if part.runs.empty:
        return
    datasets = sort_datasets(part.runs["dataset"])
    title = "Few-shot class-incremental learning"
    section = _open_sessions("fscil", title, part, datasets, replace(options, paper=False))
    kinds = {name: kinds_of_sessions(part.where(dataset=name)) for name in datasets}
    counts = {_count_sessions(chosen) for tables in kinds.values() for chosen in tables.values()}
    alike = len(datasets) > 1 and len(counts) == 1 and all(len(tables) == 1 for tables in kinds.values())
    averaged = False
    if alike and section.measures.has_mean(*over([Column("session_0", "0")], datasets)):
        _add_sessions(section, datasets, "fscil-average", average_title(datasets), baseline=None)
        title = f"Confidence after the last session: {average_title(datasets)}"
        averaged = add_confidence(section, [Place("all", "", datasets)], "fscil-average-confidence", title)
    for name, tables in kinds.items():
        for number, (title, chosen) in enumerate(tables.items(), start=1):
            key = f"fscil-{simplify(name)}" + (f"-{number}" if len(tables) > 1 else "")
            own = _open_sessions(key, title, chosen, [name], options)
            _add_sessions(own, [name], key, title, baseline)
            own.add(*comparison_tables(own.published, f"{key}-published"))
            if options.confidence or not averaged:
                title = f"Confidence after the last session: {title}"
                add_confidence(own, [Place("all", "", [name])], f"{key}-confidence", title)
            section.tables += own.tables
            section.notes += own.notes
    yield section


def _count_sessions(part: Frame) -> int:
    return int(part.values["session"].max()) + 1


def _open_sessions(key: str, title: str, part: Frame, datasets: Sequence[str], options: Options) -> Section:
    """Open a section with the accuracy after each session. What follows the last session needs all of them."""
    wide = pivots.over_sessions(part.values)
    wide = wide.rename(columns=lambda name: name if isinstance(name, str) else f"session_{name}")
    section = open_section(key, title, part, datasets, options, wide)
    measures = section.measures.wide
    measures.loc[measures["mean"].isna(), [name for name in measures if name.startswith("all_")]] = float("nan")
    return section


def _add_sessions(section: Section, datasets: Sequence[str], key: str, title: str, baseline: Baseline | None) -> None:
    numbers = range(_count_sessions(section.part))
    stated = [column for column in AFTER_SESSIONS if section.measures.has_mean(*over([column], datasets))]
    columns = over([*(Column(f"session_{number}", str(number)) for number in numbers), *stated], datasets)
    words = "Accuracy on all classes seen so far after each session. PD is the first minus the last: lower is better."
    after = [column.title for column in stated if column.key not in ("mean", "PD")]
    caption = f"{words} After the last session: {', '.join(after)}." if after else words
    table = fill(section.measures, columns, key, title, caption)
    section.add(table and add_published(table, section.published))
    if baseline:
        last = Column("last", "last session", tuple(datasets), f"session_{numbers[-1]}")
        section.add(section.compare(baseline, [last, *over(AFTER_SESSIONS[:2], datasets)], key, title))


# ---------------------------------------------------------------------------------------- few-shot


def few_shot(frame: Frame, options: Options, baseline: Baseline) -> Iterator[Section]:
    """Yield the section of runs on all classes, with a column for each number of shots."""
    part = frame.where(task="few-shot")
    untrained = part.runs["trainer"].map(is_zero_shot).astype(bool)
    if part.runs.empty or (untrained.all() and frame.runs["task"].eq("transfer").any()):
        return  # zero-shot runs are in the tables of transfers
    kinds = (
        part.runs["shots"].map(lambda n: "shots unknown" if pd.isna(n) else f"{n} shot{'s' * (n != 1)}").astype(object)
    )
    kinds[untrained] = "zero-shot"
    order = sorted(kinds.unique(), key=lambda kind: (kind != "zero-shot", not kind[0].isdigit(), natural(kind)))
    part = replace(part, values=part.values.assign(subset=part.values["run"].map(kinds)))
    datasets = sort_datasets(part.runs["dataset"])
    section = open_section("few-shot", "Few-shot, all classes", part, datasets, replace(options, paper=False))
    measures = section.measures
    columns = [Column(kind, kind, measure=f"{kind}_accuracy") for kind in order]
    if len(datasets) > 1 and any(measures.has_mean(column) for column in over(columns, datasets)):
        section.add(fill(measures, over(columns, datasets), "few-shot-average", average_title(datasets)))
    for name in datasets:
        here = set(kinds[part.runs["dataset"] == name])
        shown = over([column for column in columns if column.key in here], [name])
        section.add(fill(measures, shown, f"few-shot-{simplify(name)}", name))
    trained = [column for column in columns if column.key != "zero-shot"]
    compared = _with_zero_shot(section, trained).compare(baseline, over(trained or columns, datasets))
    if compared:
        section.tables.insert(1, compared)
        section.main = 2
    named = len(order) > 1
    add_confidences(
        section, [Place(kind, kind if named else "", datasets) for kind in order], datasets, options.confidence
    )
    yield section


def _with_zero_shot(section: Section, columns: Sequence[Column]) -> Section:
    """Return a section whose zero-shot methods have their value for every number of shots."""
    wide = section.measures.wide.copy()
    untrained = wide.index.isin(section.measures.zero_shot, level="method")
    for column in columns:
        wide.loc[untrained, column.measure] = wide.loc[untrained, "zero-shot_accuracy"] if untrained.any() else None
    return replace(section, measures=replace(section.measures, wide=wide))

"""The tables of each task: base to new, transfer, class-incremental sessions, and few-shot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from cocoamix.config.partition import LABEL

from . import pivots
from .beside import comparison_tables
from .frame import Frame
from .names import is_zero_shot, list_some, natural, simplify, sort_datasets
from .sections import Options, Place, Section, average_title, by_shots, kinds_of_sessions, open_section, over
from .stats import harmonic
from .tables import LOW, NEITHER, Column, Table

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
    Column("base_accuracy", "base after the last", measure="all_base_accuracy"),
    Column("new_accuracy", "novel after the last", measure="all_new_accuracy"),
    Column("harmonic_mean", "H after the last", measure="all_harmonic_mean"),
    Column("mean_forgetting", "forgetting", measure="all_mean_forgetting", better=LOW),
)

# ---------------------------------------------------------------------------------------- base to new


def base_to_new(frame: Frame, options: Options) -> Iterator[Section]:
    """Yield the sections of CoOp's halves, then of random halves. Averages and H must not mix the two."""
    part = frame.where(task="base2new")
    random = part.runs["draw"] != LABEL
    for runs, suffix in ((part.runs[~random], ""), (part.runs[random], "-random")):
        draws = sorted(runs["draw"].unique(), key=natural)
        words = "" if not suffix else f", partition {draws[0]}" if len(draws) == 1 else ", random halves"
        own = part.only(runs.index)
        for chosen, shots, title in by_shots(_name_draws(own) if len(draws) > 1 else own) if draws else ():
            yield _halves(f"base2new{shots}{suffix}", f"Base to new{title}{words}", chosen, options)


def _name_draws(part: Frame) -> Frame:
    """Return runs whose methods are named after their partitions, each of which has other classes."""

    def named(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(method=rows["method"] + " [partition=" + rows["draw"] + "]")

    return replace(part, values=named(part.values), runs=named(part.runs))


def _halves(key: str, title: str, part: Frame, options: Options) -> Section:
    """Return the section of base and new classes, and of both in one label space."""
    wide, every = pivots.base_to_new(part.values), sort_datasets(part.runs["dataset"])
    datasets = sort_datasets(part.runs["dataset"][part.runs["subset"] != "all"])
    cells = wide[["base", "new"]].notna().groupby(level=["method", "dataset"]).any().all(axis=1)
    lacking = {
        row: [name for name in datasets if not cells.get((row, name), False)] for row in part.runs["method"].unique()
    }
    missing = sort_datasets(name for names in lacking.values() for name in names)
    shared = [name for name in datasets if name not in missing]
    section = open_section(key, title, part, shared if options.common else datasets, options, wide)
    if missing and options.common:
        left = ", ".join(missing)
        section.notes.append(f"Averages are over the datasets that all methods have (--common); left out: {left}.")
    elif missing and len(datasets) > 1:
        rows = list_some([row for row, names in lacking.items() if names])
        remedy = f" cocoamix report --common averages over the {len(shared)} datasets that all methods have."
        reason = f"No average, because base or new results of {list_some(missing)} are missing: {rows}."
        section.notes.append(reason + remedy * (len(shared) > 1))
    caption = (
        "H is computed for each seed and averaged over seeds, then over datasets, as in the paper; "
        "H of means is the harmonic mean of the two means. A method that lacks a dataset has no average."
    )
    section.add_means(BASE_TO_NEW, caption, every=datasets)
    for table in section.tables:
        _add_h_of_means(table)
    for name in every:
        section.add(
            f"all-{simplify(name)}", f"{name}: base and new classes in one label space", over(ALL_CLASSES, [name])
        )
    section.add_confidence([Place(name, name, name, section.datasets or every) for name in ("base", "new", "all")])
    return section


def _add_h_of_means(table: Table) -> None:
    """Add the harmonic mean of the two means, the other common way to average H."""
    if {"base", "new", "seeds"} <= set(table.mean):
        mean, n = harmonic(table.mean["base"], table.mean["new"]), table.n[["base", "new"]].min(axis=1)
        table.add(Column("H_of_means", "H of means", better=NEITHER), mean, n=n.where(mean.notna(), 0))


# ---------------------------------------------------------------------------------------- transfer


def transfer(frame: Frame, options: Options) -> Iterator[Section]:
    """Yield a section for each source and number of shots. Zero-shot runs on all classes are in all of them."""
    moved = frame.runs["task"] == "transfer"
    untrained = (frame.runs["task"] == "few-shot") & frame.runs["trainer"].map(is_zero_shot).astype(bool)
    for source in sort_datasets(frame.runs["source"][moved]):
        reached = sort_datasets(frame.runs["dataset"][moved & (frame.runs["source"] == source)])
        targets = [name for name in reached if name != source]
        domains = [name for name in targets if source and simplify(name).startswith(simplify(source))]
        others = [name for name in targets if name not in domains]
        part = frame.only(frame.runs.index[(moved & (frame.runs["source"] == source)) | untrained])
        for chosen, shots, words in by_shots(part):
            title = f"Transfer from {source or 'an unknown source'}{words}"
            key = f"transfer-{simplify(source) or 'unknown'}{shots}"
            section = open_section(key, title, chosen, sort_datasets(chosen.runs["dataset"]), options)
            section.measures.wide["both"] = _with_source(section.measures.wide["all_accuracy"], source)
            _add_transfers(section, source, others, "datasets", "To other datasets")
            _add_transfers(section, source, domains, "domains", "To other domains of the source")
            section.tables += comparison_tables(section.published, f"{key}-published")
            places = {"source": [source], "target": others, "domain": domains}
            section.add_confidence([Place(name, name, "all", names) for name, names in places.items()])
            yield section


def _with_source(accuracy: pd.Series, source: str) -> pd.Series:
    """Return H of each accuracy and that of the same method and seed on the source."""
    known = accuracy[accuracy.index.get_level_values("dataset") == source].droplevel("dataset")
    return pd.Series(harmonic(known.reindex(accuracy.index.droplevel("dataset")).to_numpy(), accuracy), accuracy.index)


def _add_transfers(section: Section, source: str, targets: Sequence[str], key: str, title: str) -> None:
    """Add the accuracies on source and targets, their average, and the mean of H(source, target)."""
    if not targets:
        return
    first = Column("source", f"{source} (source)" if source else "source", (source,), "all_accuracy")
    each = [Column(target, target, (target,), "all_accuracy") for target in targets]
    last = [
        Column("target", "target average", tuple(targets), "all_accuracy"),
        Column("H", "H", tuple(targets), "both"),
    ]
    caption = "H is the mean over targets of the harmonic mean of source and target, as in the paper."
    section.add(key, title, [first, *each, *last], caption)
    columns = [replace(column, title=column.key) for column in (first, *last)]
    section.add_differences(columns, f"{key}-difference", title[0].lower() + title[1:])


# ---------------------------------------------------------------------------------------- sessions


def sessions(frame: Frame, options: Options) -> Iterator[Section]:
    """Yield the average over class-incremental datasets, then a section of each dataset, model and session split."""
    part = frame.where(task="fscil")
    datasets = sort_datasets(part.runs["dataset"])
    parts = [
        (title, [name], own) for name in datasets for title, own in kinds_of_sessions(part.where(dataset=name)).items()
    ]
    counts = {int(own.values["session"].max()) for _, _, own in parts}
    averaged = len(parts) == len(datasets) > 1 and len(counts) == 1
    if averaged:
        yield _sessions("fscil", average_title(datasets), part, datasets, replace(options, paper=False, baseline=""))
    for number, (title, names, own) in enumerate(parts, start=1 + averaged):
        yield _sessions("fscil" if number == 1 else f"fscil-{number}", title, own, names, options)


def _sessions(key: str, title: str, part: Frame, datasets: Sequence[str], options: Options) -> Section:
    """Return a section with the accuracy after each session. What follows the last session needs all of them."""
    wide = pivots.over_sessions(part.values)
    numbers = [name for name in wide if not isinstance(name, str)]
    wide = wide.rename(columns={number: f"session_{number}" for number in numbers})
    section = open_section(key, f"Few-shot class-incremental learning, {title}", part, datasets, options, wide)
    measures = section.measures.wide
    measures.loc[measures["mean"].isna(), [name for name in measures if name.startswith("all_")]] = float("nan")
    columns = [*(Column(f"session_{number}", str(number)) for number in numbers), *AFTER_SESSIONS]
    caption = "Accuracy on all classes seen so far after each session. PD is the first minus the last: lower is better."
    last = Column("last", "last session", measure=f"session_{numbers[-1]}")
    if len(datasets) == 1:
        section.add_means(columns, caption, [last, *AFTER_SESSIONS[:2]])
    else:
        section.add("average", title, over(columns, datasets), caption)
    section.add_confidence([Place("all", "", "all", datasets)], "Confidence after the last session")
    return section


# ---------------------------------------------------------------------------------------- few-shot


def few_shot(frame: Frame, options: Options) -> Iterator[Section]:
    """Yield the section of runs on all classes, with a column for each number of shots; zero-shot runs are in all."""
    part = frame.where(task="few-shot")
    if part.runs.empty or (part.runs["trainer"].map(is_zero_shot).all() and frame.runs["task"].eq("transfer").any()):
        return  # zero-shot runs are in the tables of transfers
    shots = {words.removeprefix(", ") or "accuracy": own for own, _, words in by_shots(part)}
    part = replace(part, values=pd.concat([own.values.assign(subset=title) for title, own in shots.items()]))
    datasets = sort_datasets(part.runs["dataset"])
    section = open_section("few-shot", "Few-shot, all classes", part, datasets, replace(options, paper=False))
    section.add_means([Column(title, title, measure=f"{title}_accuracy") for title in shots])
    section.add_confidence([Place(title, title if len(shots) > 1 else "", title, datasets) for title in shots])
    yield section

"""The tables of each task: base to new, transfer, class-incremental sessions, and few-shot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from cocoamix.config.partition import LABEL

from . import pivots
from .frame import Frame
from .names import is_zero_shot, list_some, natural, simplify, sort_datasets
from .sections import Options, Section, average_title, by_shots, kinds_of_sessions
from .stats import harmonic
from .tables import HIGH, LOW, Cell, Column, Table, over

# The columns of tables. Each table adds the datasets that it is over.
_BASE_TO_NEW = (Column("base", "base"), Column("new", "new"), Column("H", "H"))
_ALL_CLASSES = (
    Column("accuracy", "all", measure="all_accuracy"),
    Column("base_accuracy", "base among all", measure="all_base_accuracy"),
    Column("new_accuracy", "new among all", measure="all_new_accuracy"),
    Column("harmonic_mean", "H", measure="all_harmonic_mean"),
)
_AFTER_SESSIONS = (
    Column("mean", "mean"),
    Column("PD", "PD", better=LOW),
    Column("base_accuracy", "base after the last", measure="all_base_accuracy"),
    Column("new_accuracy", "novel after the last", measure="all_new_accuracy"),
    Column("harmonic_mean", "H after the last", measure="all_harmonic_mean"),
    Column("mean_forgetting", "forgetting", measure="all_mean_forgetting", better=LOW),
)
_ABOUT_H = (
    "H is computed for each seed and averaged over seeds, then over datasets, as in the paper; "
    "H of means is the harmonic mean of the two means. A method that lacks a dataset has no average."
)
_ABOUT_TRANSFER = "H is the mean over targets of the harmonic mean of source and target, as in the paper."
_ABOUT_SESSIONS = (
    "Accuracy on all classes seen so far after each session. PD is the first minus the last: lower is better."
)
_CONFIDENCE = (("ece", "ECE", LOW, 2), ("nll", "NLL", LOW, 3), ("auroc", "AUROC", HIGH, 2))
_ABOUT_CONFIDENCE = (
    "ECE is the expected calibration error in percent (15 bins of equal width), and NLL the mean negative "
    "log-likelihood in nats: lower is better. AUROC, in percent, measures how well confidence, the highest "
    "probability, separates images of trained classes from images of other classes."
)


def _add_confidence(section: Section, options: Options, places: Sequence[Column]) -> None:
    """Add the calibration on some subsets: averages, and each dataset by option or if there are no averages."""
    columns = [
        Column(f"{place.key}_{name}", f"{place.title} {words}".strip(), place.datasets, f"{place.source}_{name}", *form)
        for place in places
        for name, words, *form in _CONFIDENCE
    ]
    names = sort_datasets(name for place in places for name in place.datasets)
    title = "Confidence" + (f", average over {len(names)} datasets" if len(names) > 1 else "")
    averaged = section.add("confidence", title, columns, _ABOUT_CONFIDENCE)
    for name in names if len(names) > 1 and (options.confidence or not averaged) else ():
        here = over([column for column in columns if name in column.datasets], [name])
        section.add(f"confidence-{simplify(name)}", f"Confidence on {name}", here, _ABOUT_CONFIDENCE)


# ---------------------------------------------------------------------------------------- base to new


def base_to_new(frame: Frame, options: Options) -> Iterator[Section]:
    """Yield the sections of CoOp's halves, then of random halves. Averages and H must not mix the two."""
    part = frame.where(task="base2new")
    for is_random, runs in part.runs.groupby(part.runs["draw"].ne(LABEL)):
        draws = sorted(runs["draw"].unique(), key=natural)
        own = part.only(runs.index)
        if len(draws) > 1:  # a row for each partition, which has other classes
            own = replace(own, values=_name_draws(own.values), runs=_name_draws(own.runs))
        words = f", partition {draws[0]}" if len(draws) == 1 else ", random halves"
        for chosen, shots, title in by_shots(own):
            key = f"base2new{shots}" + "-random" * is_random
            yield _halves(key, f"Base to new{title}{words * is_random}", chosen, options)


def _name_draws(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(method=rows["method"] + " [partition=" + rows["draw"] + "]")


def _halves(key: str, title: str, part: Frame, options: Options) -> Section:
    """Return the section of base and new classes, and of both in one label space."""
    wide, every = pivots.base_to_new(part.values), sort_datasets(part.runs["dataset"])
    datasets = sort_datasets(part.runs["dataset"][part.runs["subset"] != "all"])
    both = wide[["base", "new"]].notna().groupby(level=["method", "dataset"]).any().all(axis=1).unstack("dataset")
    known = both.reindex(index=part.runs["method"].unique(), columns=datasets).eq(True)
    missing, lacking = list(known.columns[~known.all()]), list(known.index[~known.all(axis=1)])
    shared = [name for name in datasets if name not in missing]
    section = Section(key, title, part, shared if options.common else datasets, options, wide)
    if missing and options.common:
        left = ", ".join(missing)
        section.notes.append(f"Averages are over the datasets that all methods have (--common); left out: {left}.")
    elif missing and len(datasets) > 1:
        reason = f"No average, because base or new results of {list_some(missing)} are missing: {list_some(lacking)}."
        remedy = f" cocoamix report --common averages over the {len(shared)} datasets that all methods have."
        section.notes.append(reason + remedy * (len(shared) > 1))
    section.add_means(_BASE_TO_NEW, _ABOUT_H, every=datasets)
    for table in section.tables:
        _add_h_of_means(table)
    for name in every:
        about = f"{name}: base and new classes in one label space"
        section.add(f"all-{simplify(name)}", about, over(_ALL_CLASSES, [name]))
    places = [Column(name, name) for name in ("base", "new", "all")]
    _add_confidence(section, options, over(places, section.datasets or every))
    return section


def _add_h_of_means(table: Table) -> None:
    """Add the harmonic mean of the two means, the other common way to average H."""
    if {"base", "new"} <= {column.key for column in table.columns}:
        table.columns.insert(-1, Column("H_of_means", "H of means"))
        for row in table.rows.values():
            base, new = row.cells["base"], row.cells["new"]
            if base.text and new.text:
                mean = float(harmonic(base.mean, new.mean))
                row.cells["H_of_means"] = Cell(mean, n=min(base.n, new.n), text=f"{mean:.2f}")


# ---------------------------------------------------------------------------------------- transfer


def transfer(frame: Frame, options: Options) -> Iterator[Section]:
    """Yield a section for each source and number of shots. Zero-shot runs on all classes are in all of them."""
    moved = frame.runs["task"] == "transfer"
    untrained = (frame.runs["task"] == "few-shot") & frame.runs["trainer"].map(is_zero_shot).astype(bool)
    for source in sort_datasets(frame.runs["source"][moved]):
        own = moved & (frame.runs["source"] == source)
        targets = [name for name in sort_datasets(frame.runs["dataset"][own]) if name != source]
        domains = [name for name in targets if source and simplify(name).startswith(simplify(source))]
        others = [name for name in targets if name not in domains]
        for part, shots, words in by_shots(frame.only(frame.runs.index[own | untrained])):
            key = f"transfer-{simplify(source) or 'unknown'}{shots}"
            title = f"Transfer from {source or 'an unknown source'}{words}"
            section = Section(key, title, part, sort_datasets(part.runs["dataset"]), options)
            accuracy = section.measures.wide["all_accuracy"]
            on_source = accuracy[accuracy.index.isin([source], level="dataset")].droplevel("dataset")
            aligned = on_source.reindex(accuracy.index.droplevel("dataset")).to_numpy()
            section.measures.wide["both"] = harmonic(aligned, accuracy)
            _add_targets(section, source, others, "datasets", "To other datasets")
            _add_targets(section, source, domains, "domains", "To other domains of the source")
            places = {"source": (source,), "target": tuple(others), "domain": tuple(domains)}
            _add_confidence(section, options, [Column(name, name, names, "all") for name, names in places.items()])
            yield section


def _add_targets(section: Section, source: str, targets: Sequence[str], key: str, title: str) -> None:
    """Add the accuracies on source and targets, their average, and the mean of H(source, target)."""
    if targets:
        first = Column("source", f"{source} (source)" if source else "source", (source,), "all_accuracy")
        each = [Column(target, target, (target,), "all_accuracy") for target in targets]
        average = Column("target", "target average", tuple(targets), "all_accuracy")
        both = Column("H", "H", tuple(targets), "both")
        compared = [replace(column, title=column.key) for column in (first, average, both)]
        section.add(key, title, [first, *each, average, both], _ABOUT_TRANSFER, compared)


# ---------------------------------------------------------------------------------------- sessions


def sessions(frame: Frame, options: Options) -> Iterator[Section]:
    """Yield the average over class-incremental datasets, then a section of each dataset, model and session split."""
    part = frame.where(task="fscil")
    datasets = sort_datasets(part.runs["dataset"])
    kinds = [
        (title, [name], own) for name in datasets for title, own in kinds_of_sessions(part.where(dataset=name)).items()
    ]
    averaged = len(kinds) == len(datasets) > 1 and len({int(own.values["session"].max()) for _, _, own in kinds}) == 1
    if averaged:
        yield _sessions("fscil", average_title(datasets), part, datasets, replace(options, paper=False, baseline=""))
    for number, (title, names, own) in enumerate(kinds, start=1 + averaged):
        yield _sessions("fscil" if number == 1 else f"fscil-{number}", title, own, names, options)


def _sessions(key: str, title: str, part: Frame, datasets: Sequence[str], options: Options) -> Section:
    """Return a section with the accuracy after each session. What follows the last session needs all of them."""
    wide = pivots.over_sessions(part.values)
    numbers = [name for name in wide if not isinstance(name, str)]
    wide = wide.rename(columns={number: f"session_{number}" for number in numbers})
    section = Section(key, f"Few-shot class-incremental learning, {title}", part, datasets, options, wide)
    measures = section.measures.wide
    measures.loc[measures["mean"].isna(), [name for name in measures if name.startswith("all_")]] = float("nan")
    columns = [*(Column(f"session_{number}", str(number)) for number in numbers), *_AFTER_SESSIONS]
    last = Column("last", "last session", measure=f"session_{numbers[-1]}")
    name = "average" if len(datasets) > 1 else simplify(datasets[0])
    compared = over([last, *_AFTER_SESSIONS[:2]], datasets)
    section.add(name, average_title(datasets), over(columns, datasets), _ABOUT_SESSIONS, compared)
    _add_confidence(section, options, [Column("all", "", tuple(datasets))])
    return section


# ---------------------------------------------------------------------------------------- few-shot


def few_shot(frame: Frame, options: Options) -> Iterator[Section]:
    """Yield the section of accuracies on all classes, a column for each number of shots."""
    part = frame.where(task="few-shot")
    if part.runs.empty or (part.runs["trainer"].map(is_zero_shot).all() and frame.runs["task"].eq("transfer").any()):
        return  # zero-shot runs are in the tables of transfers
    shots = {words.removeprefix(", ") or "accuracy": own for own, _, words in by_shots(part)}
    part = replace(part, values=pd.concat([own.values.assign(subset=title) for title, own in shots.items()]))
    datasets = sort_datasets(part.runs["dataset"])
    section = Section("few-shot", "Few-shot, all classes", part, datasets, replace(options, paper=False))
    section.add_means([Column(title, title, measure=f"{title}_accuracy") for title in shots], "")
    places = [Column(title, title if len(shots) > 1 else "", measure=title) for title in shots]
    _add_confidence(section, options, over(places, datasets))
    yield section

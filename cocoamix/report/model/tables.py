"""Tables of means, deviations and counts from the rows of runs, and the data of the figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from cocoamix.drawing.chart import Chart, Series
from cocoamix.report.names import is_zero_shot

from .rows import Row
from .stats import deviation, harmonic, mean

Seeds = dict[int | None, float]  # a measure by seed

HIGH, LOW, PLAIN = "high", "low", "plain"  # whether high or low values of a column are better, or neither


@dataclass(frozen=True)
class Value:
    """One cell: a mean over seeds, or a string."""

    mean: float | None = None
    std: float | None = None
    n: int = 0
    values: tuple[float, ...] = ()
    text: str = ""
    best: bool = False
    decimals: int | None = None  # of a number that the paper prints with fewer decimals than the column has
    against: float | None = None  # the difference from the reference method, if the two can be compared

    @property
    def missing(self) -> bool:
        """Whether the cell is empty."""
        return self.mean is None and not self.text


@dataclass(frozen=True)
class Column:
    """A column; `better` is HIGH, LOW or PLAIN."""

    key: str
    title: str
    better: str = HIGH
    decimals: int = 2
    signed: bool = False


@dataclass
class Line:
    """A line of a table."""

    label: str
    values: list[Value]
    kind: str = "own"  # or paper


@dataclass
class Table:
    """A table, independent of the output format."""

    key: str
    title: str
    columns: list[Column]
    lines: list[Line]
    first: str = "method"
    caption: str = ""

    def mark_best(self) -> Table:
        """Mark the best of our own values in each column, ties included, if there are at least two."""
        for place, column in enumerate(self.columns):
            own = [line for line in self.lines if line.kind == "own" and line.values[place].mean is not None]
            if column.better == PLAIN or len(own) < 2:
                continue
            shown = [round(line.values[place].mean or 0.0, column.decimals) for line in own]
            best = max(shown) if column.better == HIGH else min(shown)
            for line, value in zip(own, shown, strict=True):
                line.values[place] = replace(line.values[place], best=value == best)
        return self


@dataclass
class Section:
    """One task in one setting."""

    key: str
    title: str
    tables: list[Table] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reference: str = ""  # the method that cells are marked against as better or worse


# ---------------------------------------------------------------------------------------- measures


def summarise(seeds: Seeds) -> Value:
    """Return the mean and deviation over seeds; a single run has no deviation."""
    if not seeds:
        return Value()
    values = tuple(seeds.values())
    return Value(mean(values), deviation(values) if len(values) > 1 else None, len(values), values)


def measure(row: Row, dataset: str) -> dict[str, Seeds]:
    """Return base, new and H of a row on a dataset by seed. H is computed for each seed, as in the paper."""
    base = {seed: run.accuracy for seed, run in row.by_seed(dataset, "base").items()}
    new = {seed: run.accuracy for seed, run in row.by_seed(dataset, "new").items()}
    both = {seed: harmonic(base[seed], new[seed]) for seed in base if seed in new}
    return {"base": base, "new": new, "H": both}


def average(measures: Sequence[Seeds]) -> Value:
    """Average a measure over datasets. The result is missing if a dataset is; the deviation is over seeds' averages."""
    if not measures or not all(measures):
        return Value()
    centre = mean([mean(list(seeds.values())) for seeds in measures])
    shared = [seed for seed in measures[0] if all(seed in seeds for seeds in measures)]
    values = tuple(mean([seeds[seed] for seeds in measures]) for seed in shared)
    whole = all(len(seeds) == len(shared) for seeds in measures)  # otherwise their mean would differ
    spread = deviation(values) if whole and len(values) > 1 else None
    return Value(centre, spread, len(values) if whole else 0, values if whole else ())


def h_of_means(base: Value, new: Value) -> Value:
    """Return the harmonic mean of two averages, the other common way to average H."""
    if base.mean is None or new.mean is None:
        return Value()
    return Value(harmonic(base.mean, new.mean), None, min(base.n, new.n))


def count_text(counts: Iterable[int]) -> Value:
    """Return the number of seeds as a cell: `3`, `2 to 3` if it varies, or empty."""
    present = sorted({count for count in counts if count})
    if not present:
        return Value()
    return Value(text=str(present[0]) if len(present) == 1 else f"{present[0]} to {present[-1]}")


# ---------------------------------------------------------------------------------------- base to new

METRICS = (Column("base", "base"), Column("new", "new"), Column("H", "H"))
H_OF_MEANS = Column("H_of_means", "H of means")
SEEDS = Column("seeds", "seeds", PLAIN)


def dataset_table(rows: Sequence[Row], dataset: str, key: str) -> Table:
    """Return base, new and H of all methods on one dataset."""
    lines = []
    for row in rows:
        measures = measure(row, dataset)
        values = [summarise(measures[column.key]) for column in METRICS]
        if all(value.missing for value in values):
            continue
        counts = count_text(len(seeds) for seeds in measures.values())
        lines.append(Line(row.label, [*values, h_of_means(values[0], values[1]), counts]))
    return Table(key, dataset, [*METRICS, H_OF_MEANS, SEEDS], lines).mark_best()


def average_table(rows: Sequence[Row], datasets: Sequence[str], key: str) -> Table:
    """Return base, new and H averaged over datasets, with H as in the paper (mean of H) and as H of means."""
    lines = []
    for row in rows:
        measures = [measure(row, dataset) for dataset in datasets]
        values = [average([one[column.key] for one in measures]) for column in METRICS]
        present = sum(bool(one["base"]) and bool(one["new"]) for one in measures)
        counts = count_text(len(seeds) for one in measures for seeds in one.values())
        found = Value(text=f"{present} of {len(datasets)}")
        lines.append(Line(row.label, [*values, h_of_means(values[0], values[1]), found, counts]))
    columns = [*METRICS, H_OF_MEANS, Column("datasets", "datasets", PLAIN), SEEDS]
    caption = (
        "H is the mean over datasets of each dataset's H, which is the mean over seeds, as in the paper; "
        "H of means is the harmonic mean of the two averages. A method that lacks a dataset has no average."
    )
    return Table(key, f"Average over {len(datasets)} datasets", columns, lines, caption=caption).mark_best()


def all_classes_table(rows: Sequence[Row], datasets: Sequence[str], key: str) -> Table | None:
    """Return the accuracies of evaluations in which base and new classes share one label space."""
    columns = [
        Column("accuracy", "all"),
        Column("base_accuracy", "base among all"),
        Column("new_accuracy", "new among all"),
        Column("harmonic_mean", "H"),
        SEEDS,
    ]
    lines = []
    for dataset in datasets:
        for row in rows:
            runs = row.by_seed(dataset, "all")
            if not runs:
                continue
            values = [
                summarise({seed: run.metrics[column.key] for seed, run in runs.items() if column.key in run.metrics})
                for column in columns[:-1]
            ]
            label = row.label if len(datasets) == 1 else f"{dataset}: {row.label}"
            lines.append(Line(label, [*values, count_text([len(runs)])]))
    if not lines:
        return None
    table = Table(key, "Base and new classes in one label space", columns, lines)
    return table.mark_best() if len(datasets) == 1 else table


def points_chart(rows: Sequence[Row], datasets: Sequence[str], key: str, title: str) -> Chart:
    """Return base, new and H of each method, with the deviation over seeds and each seed as a dot."""
    shown = []
    for row in rows:
        measures = [measure(row, dataset) for dataset in datasets]
        values = [average([one[column.key] for one in measures]) for column in METRICS]
        if not all(value.missing for value in values):
            shown.append((row.label, values))
    series = []
    for place, column in enumerate(METRICS):
        points = [(x, values[place]) for x, (_, values) in enumerate(shown) if values[place].mean is not None]
        series.append(
            Series(
                column.title,
                tuple(float(x) for x, _ in points),
                tuple(value.mean or 0.0 for _, value in points),
                tuple(value.std or 0.0 for _, value in points),
                tuple(value.values if value.n > 1 else () for _, value in points),
            )
        )
    words = "; ".join(
        f"{label}: " + ", ".join(f"{c.title} {v.mean:.1f}" for c, v in zip(METRICS, values, strict=True) if v.mean)
        for label, values in shown
    )
    return Chart(key, "points", title, words, tuple(series), tuple(label for label, _ in shown))


def dots_chart(rows: Sequence[Row], datasets: Sequence[str], key: str, title: str) -> Chart:
    """Return H of each method on each dataset: the mean, and each seed as a dot."""
    series = []
    for row in rows:
        points = [(y, summarise(measure(row, dataset)["H"])) for y, dataset in enumerate(datasets)]
        points = [(y, value) for y, value in points if value.mean is not None]
        if points:
            series.append(
                Series(
                    row.label,
                    tuple(value.mean or 0.0 for _, value in points),
                    tuple(float(y) for y, _ in points),
                    dots=tuple(value.values if value.n > 1 else () for _, value in points),
                )
            )
    # Rows of a sweep over a few datasets would stretch the figure; they have a separate figure.
    most = max((len(one.x) for one in series), default=0)
    series = [one for one in series if 2 * len(one.x) >= most]
    words = (
        f"H of {len(series)} methods on {len(datasets)} datasets, one dot for each seed; the tables have the numbers."
    )
    return Chart(key, "dots", title, words, tuple(series), tuple(datasets), x_label="H (%)", y_label="")


# ---------------------------------------------------------------------------------------- other tasks


def transfer_table(rows: Sequence[Row], source: str, targets: Sequence[str], key: str, title: str) -> Table:
    """Return accuracies on the source and on each target, their average, and the mean of H(source, target)."""
    columns = [
        Column("source", f"{source} (source)" if source else "source"),
        *(Column(target, target) for target in targets),
        Column("target", "target average"),
        Column("H", "H"),
        SEEDS,
    ]
    lines = []
    for row in rows:
        reached = [{seed: run.accuracy for seed, run in row.by_seed(target, "all").items()} for target in targets]
        trained = {seed: run.accuracy for seed, run in row.by_seed(source, "all").items()}
        if not any(reached):
            continue
        both = [{seed: harmonic(trained[seed], seeds[seed]) for seed in seeds if seed in trained} for seeds in reached]
        values = [summarise(trained), *(summarise(seeds) for seeds in reached), average(reached), average(both)]
        lines.append(Line(row.label, [*values, count_text(len(seeds) for seeds in [trained, *reached])]))
    caption = "H is the mean over targets of the harmonic mean of source and target, as in the paper."
    return Table(key, title, columns, lines, caption=caption).mark_best()


AFTER_LAST = (
    Column("base_accuracy", "base"),
    Column("new_accuracy", "novel"),
    Column("harmonic_mean", "H"),
    Column("mean_forgetting", "forgetting", LOW),
)


def sessions_table(rows: Sequence[Row], dataset: str, key: str, title: str = "") -> Table:
    """Return the accuracy after each session of class-incremental learning, its mean, and PD (first minus last).

    The measures in AFTER_LAST are added if runs state them.
    """
    columns = _session_columns(rows, [dataset])
    lines = []
    for row in rows:
        values = [summarise(seeds) for seeds in _session_measures(row, dataset, columns)]
        lines.append(Line(row.label, [*values, count_text([len(row.by_seed(dataset, "all"))])]))
    return Table(key, title or dataset, [*columns, SEEDS], lines, caption=_session_caption(columns)).mark_best()


def sessions_average_table(rows: Sequence[Row], datasets: Sequence[str], key: str) -> Table:
    """Return the columns of `sessions_table`, averaged over datasets with equal numbers of sessions."""
    columns = _session_columns(rows, datasets)
    lines = []
    for row in rows:
        measures = [_session_measures(row, dataset, columns) for dataset in datasets]
        values = [average(list(of_datasets)) for of_datasets in zip(*measures, strict=True)]
        counts = count_text(len(row.by_seed(dataset, "all")) for dataset in datasets)
        lines.append(Line(row.label, [*values, counts]))
    title = f"Average over {len(datasets)} datasets"
    return Table(key, title, [*columns, SEEDS], lines, caption=_session_caption(columns)).mark_best()


def count_sessions(rows: Sequence[Row], dataset: str) -> int:
    """Return the number of sessions of the longest run on a dataset."""
    return max((len(run.sessions) for row in rows for run in row.by_seed(dataset, "all").values()), default=0)


def _session_columns(rows: Sequence[Row], datasets: Sequence[str]) -> list[Column]:
    count = max(count_sessions(rows, dataset) for dataset in datasets)
    stated = [column for column in AFTER_LAST if any(column.key in run.metrics for row in rows for run in row.runs)]
    sessions = [Column(f"session_{number}", str(number)) for number in range(count)]
    return [*sessions, Column("mean", "mean"), Column("PD", "PD", LOW), *stated]


def _session_measures(row: Row, dataset: str, columns: Sequence[Column]) -> list[Seeds]:
    """Return each column's measure by seed. The mean, PD and measures after the last session need all sessions."""
    runs = row.by_seed(dataset, "all")
    count = sum(column.key.startswith("session_") for column in columns)
    whole = {seed: run.sessions for seed, run in runs.items() if len(run.sessions) == count}
    found: list[Seeds] = []
    for place, column in enumerate(columns):
        if place < count:
            found.append({seed: run.sessions[place] for seed, run in runs.items() if place < len(run.sessions)})
        elif column.key == "mean":
            found.append({seed: mean(sessions) for seed, sessions in whole.items()})
        elif column.key == "PD":
            found.append({seed: sessions[0] - sessions[-1] for seed, sessions in whole.items()})
        else:
            found.append({seed: runs[seed].metrics[column.key] for seed in whole if column.key in runs[seed].metrics})
    return found


def _session_caption(columns: Sequence[Column]) -> str:
    caption = "Accuracy on all classes seen so far after each session. PD is the first minus the last: lower is better."
    stated = [column.title for column in columns if column in AFTER_LAST]
    return f"{caption} After the last session: {', '.join(stated)}." if stated else caption


def shots_table(rows: Sequence[Row], dataset: str, key: str) -> Table:
    """Return the accuracy on all classes for each number of shots."""
    kinds = sort_shots({run.subset for row in rows for run in row.runs if run.dataset == dataset})
    columns = [Column(kind, kind) for kind in kinds]
    lines = []
    for row in rows:
        values = [summarise({seed: run.accuracy for seed, run in row.by_seed(dataset, kind).items()}) for kind in kinds]
        if not all(value.missing for value in values):
            lines.append(Line(row.label, [*values, count_text(value.n for value in values)]))
    return Table(key, dataset, [*columns, SEEDS], lines).mark_best()


def shots_average_table(rows: Sequence[Row], datasets: Sequence[str], key: str) -> Table:
    """Return the columns of `shots_table`, averaged over datasets."""
    kinds = sort_shots({run.subset for row in rows for run in row.runs})
    lines = []
    for row in rows:
        values = [
            average([{seed: run.accuracy for seed, run in row.by_seed(one, kind).items()} for one in datasets])
            for kind in kinds
        ]
        lines.append(Line(row.label, [*values, count_text(value.n for value in values)]))
    columns = [*(Column(kind, kind) for kind in kinds), SEEDS]
    return Table(key, f"Average over {len(datasets)} datasets", columns, lines).mark_best()


def shots_kind(trainer: str, shots: int | None) -> str:
    """Return the name of the column that a few-shot run belongs to."""
    if is_zero_shot(trainer):
        return "zero-shot"
    return "shots unknown" if shots is None else f"{shots} shot" + "s" * (shots != 1)


def sort_shots(kinds: Iterable[str]) -> list[str]:
    """Return the columns in order: zero-shot first, then by the number of shots."""
    return sorted(kinds, key=lambda kind: (not kind.startswith("zero"), not kind[0].isdigit(), _number(kind), kind))


def _number(kind: str) -> int:
    first = kind.split()[0]
    return int(first) if first.isdigit() else 0


def curves_chart(table: Table, key: str, title: str, x_label: str) -> Chart:
    """Return one curve for each line of a table of sessions or shots."""
    places = [
        place
        for place, column in enumerate(table.columns)
        if column.key.startswith("session_") or column.key.endswith(("shot", "shots"))
    ]
    series = []
    for line in table.lines:
        points = [(x, line.values[place]) for x, place in enumerate(places) if line.values[place].mean is not None]
        if points:
            series.append(
                Series(
                    line.label,
                    tuple(float(x) for x, _ in points),
                    tuple(value.mean or 0.0 for _, value in points),
                    tuple(value.std or 0.0 for _, value in points),
                    tuple(value.values if value.n > 1 else () for _, value in points),
                    paper=line.kind == "paper",
                )
            )
    words = "; ".join(f"{one.label}: from {one.y[0]:.1f} to {one.y[-1]:.1f}" for one in series)
    ticks = tuple(table.columns[place].title for place in places)
    return Chart(key, "curves", title, words, tuple(series), ticks, x_label)

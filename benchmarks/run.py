"""Speed and memory relative to the plain CoOp path, measured in one run.

    python benchmarks/run.py [--classes 10 50 100] [--json FILE] [--quick]

At ViT-B/16 size with random weights, ImageNet's class names and fp32. Times are CPU seconds of all threads, the two
paths timed in turn; a ratio is the median of its repetitions, followed by the range. Memory is the peak of a separate
process, without weights and prompts. Tables go to the terminal, numbers to --json, plots into the folder of that file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks import measure, trainers
from cocoamix.clip import FrozenCLIP
from cocoamix.io.files import write_json

CLASSES = (10, 50, 100, 500, 1000)
PLAIN_MEMORY = 200  # classes; for more, the plain path needs too much memory
LIMITS = (4, 8, 16)  # GB
MOST_CLASSES = 16_000  # more take minutes and are not realistic
WAYS = ("text_forward", "text_forward_backward", "iteration")


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a Markdown table."""
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |", flush=True)


def measure_times(clip: FrozenCLIP, numbers: Sequence[int], repetitions: int) -> dict[str, dict[str, float]]:
    """Compare text passes and whole iterations for each number of classes."""
    results: dict[str, dict[str, float]] = {name: {} for name in WAYS}
    results |= {f"{name}_seconds": {} for name in WAYS} | {"over_arithmetic": {}}
    rows, rate = [], measure.multiplication_rate()
    for classes in numbers:
        case = measure.Case(clip, classes)
        pairs = (
            (case.plain_forward, case.forward),
            (case.plain_forward_backward, case.forward_backward),
            (case.plain_iteration, case.iteration),
        )
        row: list[Any] = [classes]
        for name, pair in zip(WAYS, pairs, strict=True):
            found = measure.compare(*pair, repetitions=1 if classes > measure.PLAIN_AT_ONCE else repetitions)
            results[name][str(classes)] = round(found.ratio, 2)
            results[f"{name}_seconds"][str(classes)] = round(found.ours, 4)
            row.append(found)
        least = measure.token_work(clip, classes) / rate
        over = results["text_forward_backward_seconds"][str(classes)] / least
        results["over_arithmetic"][str(classes)] = round(over, 2)
        rows.append([*row, f"{results['iteration_seconds'][str(classes)]:.2f} s", f"{over:.1f}x"])
    head = [
        "classes",
        "text forward",
        "forward + backward",
        "iteration, batch 32",
        "ours, iteration",
        "relative to matrix products",
    ]
    table("How many times faster than the plain path", head, rows)
    print(
        f"\nMore than {measure.PLAIN_AT_ONCE} classes: the plain path in parts of as many, each once.\n"
        "Relative to matrix products: the time of our forward + backward divided by that of the products of all tokens "
        f"that cannot be shared, at the rate of a large matrix product ({rate / 1e9:.0f} GFLOP per CPU second)."
    )
    return results


def measure_memory(name: str, numbers: Sequence[int]) -> dict[str, dict[str, float]]:
    """Measure our peak memory, and compare it with the plain path if that fits."""
    results: dict[str, dict[str, float]] = {"text_memory": {}, "text_memory_mb": {}, "text_memory_plain_mb": {}}
    rows = []
    for classes in numbers:
        key, ours = str(classes), measure.peak_memory(name, "ours", classes)
        results["text_memory_mb"][key] = round(ours, 1)
        row = [classes, "not run", f"{ours:,.0f} MB", ""]
        if classes <= PLAIN_MEMORY:
            plain = measure.peak_memory(name, "plain", classes)
            results["text_memory_plain_mb"][key] = round(plain, 1)
            results["text_memory"][key] = round(plain / ours, 2)
            row = [classes, f"{plain:,.0f} MB", f"{ours:,.0f} MB", f"{plain / ours:.1f}x"]
        rows.append(row)
    table("Peak memory of a text forward + backward pass", ["classes", "plain", "ours", "less"], rows)
    return results


def largest_within(name: str, way: str, gigabytes: float, sizes: tuple[int, int]) -> str:
    """Return the largest number of classes that fits, extrapolated from two sizes and then tested."""
    small, large = sizes
    first, second = (measure.whole_memory(name, way, size) for size in sizes)
    growth = max((second - first) / (large - small), 1e-3)  # MB per class
    classes = min(MOST_CLASSES, int(small + (gigabytes * 1024 - first) / growth))
    if classes >= MOST_CLASSES:
        return (
            f"over {MOST_CLASSES:,}" if measure.whole_memory(name, way, MOST_CLASSES) <= gigabytes * 1024 else "unsure"
        )
    while measure.whole_memory(name, way, classes) > gigabytes * 1024:  # the extrapolation may be too high
        classes = int(classes * 0.97)
    return f"{classes:,}"


def measure_scaling(clip: FrozenCLIP, repetitions: int, quick: bool) -> dict[str, dict[str, float]]:
    """Measure how our time and memory grow with the length of the context and the size of the batch."""
    contexts, batches = ((4,), (4,)) if quick else ((2, 4, 8, 16, 32), (4, 32, 128))
    classes = 4 if quick else 100
    results: dict[str, dict[str, float]] = {"context_seconds": {}, "context_memory_mb": {}, "batch_seconds": {}}
    for context in contexts:
        case = measure.Case(clip, classes, context=context)
        results["context_seconds"][str(context)] = round(_median(case.forward_backward, repetitions), 4)
        results["context_memory_mb"][str(context)] = round(measure.peak_memory(clip.name, "ours", classes, context), 1)
    for batch in batches:
        case = measure.Case(clip, classes, batch=batch)
        results["batch_seconds"][str(batch)] = round(_median(case.iteration, repetitions), 4)
    rows = [
        [f"{context} context vectors", f"{seconds:.3f} s", f"{results['context_memory_mb'][context]:,.0f} MB"]
        for context, seconds in results["context_seconds"].items()
    ] + [[f"batch of {batch}", f"{seconds:.3f} s", ""] for batch, seconds in results["batch_seconds"].items()]
    table(f"Ours at {classes} classes", ["", "forward + backward", "peak memory"], rows)
    return results


def _median(call: Callable[[], object], repetitions: int) -> float:
    call()
    return sorted(measure.cpu_time(call) for _ in range(repetitions))[repetitions // 2]


def draw_plots(results: dict[str, Any], folder: Path, stem: str) -> list[str]:
    """Plot ratios of time, and memory, over the number of classes; return the names of the files."""
    import pandas as pd

    from cocoamix.experiments.figures.style import PAGE, Drawing, Style, save

    title = "Speed and memory by number of classes"
    lines = {key: values for key, values in results.items() if isinstance(values, dict)}
    drawing = Drawing(stem, title, f"{title}.", partial(_draw, results), pd.DataFrame(lines).reset_index())
    return save(drawing, folder, Style(PAGE, titles=False))


def _draw(results: dict[str, Any], style: Any) -> Any:
    from matplotlib.ticker import LogLocator

    from cocoamix.experiments.figures.style import look

    times = {"text_forward": "text forward", "text_forward_backward": "forward + backward", "iteration": "iteration"}
    memory = {"text_memory_plain_mb": "plain path", "text_memory_mb": "ours"}
    panels = (("times faster than the plain path", times), ("peak memory of a pass, MB", memory))
    figure, both = style.panels(2, 3.0)
    for axes, (title, lines) in zip(both, panels, strict=True):
        for place, (name, label) in enumerate(lines.items()):
            shape = look(place + (3 if lines is memory else 0))
            numbers = [int(key) for key in results[name]]
            axes.plot(numbers, list(results[name].values()), marker=shape.marker, color=shape.colour, label=label)
        axes.set(xscale="log", yscale="log", title=title, xlabel="classes")
        axes.set_xticks([int(key) for key in results["text_memory_mb"]])
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:,g}")
        axes.minorticks_off()
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=len(lines))
    return figure


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, nargs="+", default=None, help=f"numbers of classes; {CLASSES}")
    parser.add_argument("--json", type=Path, default=None, help="file for the numbers; plots are written next to it")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="once, with a tiny model, only to test the script")
    args = parser.parse_args()
    numbers = args.classes or ((4,) if args.quick else CLASSES)
    repetitions = 1 if args.quick else args.repetitions
    name = measure.BACKBONES[args.quick]
    clip = measure.load_backbone(name)
    print(f"{name}, random weights, fp32, torch {torch.__version__}, {torch.get_num_threads()} threads")
    results: dict[str, Any] = measure_times(clip, numbers, repetitions)
    results |= measure_memory(name, numbers)
    results |= measure_scaling(clip, repetitions, args.quick)
    results["evaluation"] = {}
    classes = 10 if args.quick else 1000
    case = measure.Case(clip, classes)
    found = measure.compare(case.plain_evaluation, case.evaluation, 1)
    results["evaluation"][str(classes)] = round(found.ratio, 2)
    print(f"\nEvaluation of {classes} classes, 2 batches of {measure.BATCH}, test features stored: {found.ratio:.0f}x")
    reading, encoding = measure.loading_rates(clip)
    results["images_per_cpu_second"] = {"read and augmented": round(reading, 1), "encoded": round(encoding, 1)}
    print(f"\nA CPU second reads and augments {reading:.0f} images of 500 x 375, and encodes {encoding:.1f}")
    results["mix_over_coop"], results["step_seconds"] = trainers.compare_steps(repetitions, args.quick)
    if not args.quick:
        rows = []
        results["classes_within_gb"] = {}
        for way, sizes in (("plain", (20, 60)), ("ours", (1000, 4000))):
            counts = [largest_within(name, way, limit, sizes) for limit in LIMITS]
            results["classes_within_gb"][way] = dict(zip(map(str, LIMITS), counts, strict=True))
            rows.append([way, *counts])
        table("Largest number of classes that trains", ["", *(f"{limit} GB" for limit in LIMITS)], rows)
    if args.json:
        write_json(args.json, results)
        plots = draw_plots(results, args.json.parent, args.json.stem)
        print(f"\nWritten: {args.json} and, next to it, {', '.join(plots)}")


if __name__ == "__main__":
    main()

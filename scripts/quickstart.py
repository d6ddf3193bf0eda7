"""The main job on the embedded default: train on base classes, evaluate on base and new, three seeds, one table.

    bash scripts/quickstart.sh            # makes the environment, then runs this
    bash scripts/quickstart.sh --fresh    # runs everything again
    bash scripts/quickstart.sh --methods all               # the baselines, too, on all classes as well
    bash scripts/quickstart.sh --methods CoOp KgCoOp       # these rows

Runs that are finished are not repeated. Everything is written below output/quickstart, in CoOp's layout.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "output" / "quickstart"
DATASET, SHOTS, SEEDS = "shapes", 4, (1, 2, 3)


@dataclass(frozen=True)
class Method:
    """A row of the table."""

    title: str
    trainer: str
    trained: bool = True
    config: str = "tiny"

    @property
    def seeds(self) -> tuple[int, ...]:
        return SEEDS if self.trained else SEEDS[:1]  # nothing that is not trained depends on the seed


METHODS = (
    Method("CLIP", "ZeroshotCLIP", trained=False),
    Method("CLIP, 8 templates", "ZeroshotCLIP2", trained=False),
    Method("CoOp", "CoOp"),
    Method("CoA-loss (uniform)", "CoCoAMix", config="tiny_uniform"),
    Method("CoCoA-Mix", "CoCoAMix"),
)
BASELINES = (  # run on demand
    Method("CoOp (uniform)", "CoOp", config="tiny_uniform"),
    Method("CoCoOp", "CoCoOp"),
    Method("KgCoOp", "KgCoOp"),
    Method("ProGrad", "ProGrad"),
    Method("MaPLe", "MaPLe"),
    Method("DePT on CoOp", "DePT"),
    Method("DePT on KgCoOp", "DePTKgCoOp"),
    Method("T_En", "TuneEn"),
)


def choose(titles: list[str]) -> tuple[Method, ...]:
    """Return the rows of these titles; without any, those of the quick start."""
    known = {method.title: method for method in (*METHODS, *BASELINES)}
    if titles == ["all"]:
        return tuple(known.values())
    unknown = [title for title in titles if title not in known]
    if unknown:
        sys.exit(f"error: there is no method {unknown[0]!r}. There are: {', '.join(known)}.")
    return tuple(known[title] for title in titles) or METHODS


def folder(method: Method, seed: int, subset: str) -> Path:
    """Return where CoOp's scripts would put the run."""
    kind = "train_base" if subset == "base" else f"test_{subset}"
    return OUTPUT / "base2new" / kind / DATASET / f"shots_{SHOTS}" / method.trainer / method.config / f"seed{seed}"


def hash_inputs(method: Method) -> str:
    """Hash what a result depends on, so that one of another configuration or version is not taken for it."""
    digest = hashlib.sha256()
    files = [ROOT / f"configs/datasets/{DATASET}.yaml"]
    files += [ROOT / f"configs/trainers/{method.trainer}/{method.config}.yaml"]
    files += [ROOT / "cocoamix/assets/tiny.safetensors", ROOT / "train.py", ROOT / "requirements.txt"]
    files += [
        path for folder in ("cocoamix", "trainers", "datasets") for path in sorted(ROOT.glob(f"{folder}/**/*.py"))
    ]
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def run(method: Method, seed: int, subset: str) -> float:
    """Run train.py unless its result is there; return the accuracy."""
    output = folder(method, seed, subset)
    results, stamp = output / "results.json", output / "quickstart.stamp"
    inputs = hash_inputs(method)
    if not results.is_file() or not stamp.is_file() or stamp.read_text() != inputs:
        shutil.rmtree(output, ignore_errors=True)
        command = [sys.executable, str(ROOT / "train.py"), "--trainer", method.trainer, "--seed", str(seed)]
        command += ["--dataset-config-file", str(ROOT / f"configs/datasets/{DATASET}.yaml")]
        command += ["--config-file", str(ROOT / f"configs/trainers/{method.trainer}/{method.config}.yaml")]
        command += ["--output-dir", str(output)]
        if not method.trained:
            command += ["--eval-only"]
        elif subset != "base":
            command += ["--eval-only", "--model-dir", str(folder(method, seed, "base"))]
        command += ["DATASET.NUM_SHOTS", str(SHOTS), "DATASET.SUBSAMPLE_CLASSES", subset]
        command += ["CACHE.DIR", str(OUTPUT / "features")]  # pictures are encoded once for all methods
        # The models are too small to share among threads; the runs share the cores instead.
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}\n{(done.stdout + done.stderr)[-2000:]}")
        stamp.write_text(inputs)
    accuracy: float = json.loads(results.read_text())["metrics"]["accuracy"]
    return accuracy


def base_and_new(method: Method, seed: int, everywhere: bool) -> tuple[float, float]:
    start = time.monotonic()
    accuracies = run(method, seed, "base"), run(method, seed, "new")
    if everywhere:
        run(method, seed, "all")
    seconds = time.monotonic() - start
    name = f"{method.title} seed {seed}" if method.trained else method.title
    print(f"  {name:28} base {accuracies[0]:5.1f}  new {accuracies[1]:5.1f}  ({seconds:.0f} s)", flush=True)
    return accuracies


def harmonic(base: float, new: float) -> float:
    """Return the harmonic mean."""
    return 2 * base * new / (base + new) if base + new else 0.0


def cell(values: list[float]) -> str:
    mean = statistics.fmean(values)
    return f"{mean:.2f}" if len(values) == 1 else f"{mean:.2f} ± {statistics.pstdev(values):.2f}"


def table(rows: dict[str, list[tuple[float, float]]]) -> str:
    """Return a Markdown table that also reads well on a terminal."""
    cells = [["method", "base", "new", "H"]]
    for title, pairs in rows.items():
        columns = [list(column) for column in zip(*pairs, strict=True)] + [[harmonic(*pair) for pair in pairs]]
        cells.append([title, *(cell(column) for column in columns)])
    widths = [max(len(row[i]) for row in cells) for i in range(4)]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true", help="delete earlier results and run everything again")
    parser.add_argument("--methods", nargs="+", default=[], help="titles of rows, or all; on all classes, too")
    args = parser.parse_args()
    methods = choose(args.methods)
    if args.fresh:
        shutil.rmtree(OUTPUT, ignore_errors=True)
    start = time.monotonic()
    print(f"{DATASET}, {SHOTS} shots, seeds {', '.join(map(str, SEEDS))}: training on base, evaluating on base and new")
    jobs = [(method, seed) for method in methods for seed in method.seeds]
    rows: dict[str, list[tuple[float, float]]] = {method.title: [] for method in methods}
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        futures = [(method, pool.submit(base_and_new, method, seed, bool(args.methods))) for method, seed in jobs]
        try:
            for method, future in futures:
                rows[method.title].append(future.result())
        except (RuntimeError, KeyboardInterrupt) as error:
            pool.shutdown(cancel_futures=True)
            print(f"error: a run failed: {error}", file=sys.stderr)
            return 1
    text = table(rows)
    title = f"Accuracy (%) on {DATASET} with the tiny CLIP, {SHOTS} shots; mean ± deviation over {len(SEEDS)} seeds"
    print(f"\n{title}\n\n{text}\n")
    print(f"{time.monotonic() - start:.0f} s. Runs, logs and this table are in {OUTPUT.relative_to(ROOT)}")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / "table.md").write_text(f"{title}\n\n{text}\n", encoding="utf-8")
    (OUTPUT / "table.json").write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`sessions`, and curves over shots: their data recomputed from results."""

from __future__ import annotations

import json
from pathlib import Path

from cocoamix.experiments import frame, pivots
from cocoamix.experiments.figures import sessions
from cocoamix.experiments.figures.style import Style
from tests.experiments.figures.conftest import Draw
from tests.experiments.trees import write_results

SEEN = {1: [90.0, 80.0, 75.0], 2: [88.0, 82.0, 73.0]}
BASE = {1: [90.0, 85.0, 80.0], 2: [88.0, 87.0, 76.0]}
NOVEL = {1: [None, 50.0, 40.0], 2: [None, 54.0, 48.0]}


def write_sessions(root: Path, dataset: str, shift: float = 0.0) -> None:
    for seed, seen in SEEN.items():
        about = {"trainer": "CoOpFSCIL", "dataset": dataset, "subset": "all", "seed": seed}
        folder = root / f"fscil/{dataset}/CoOpFSCIL/tiny/seed{seed}"
        path = write_results(folder, seen[-1] + shift, **about, sessions=[accuracy + shift for accuracy in seen])
        content = json.loads(path.read_text())
        for number, entry in enumerate(content["sessions"]):
            entry["base"], entry["novel"] = BASE[seed][number], NOVEL[seed][number]
        path.write_text(json.dumps(content))


def test_sessions_match_the_results(tmp_path: Path, draw: Draw) -> None:
    write_sessions(tmp_path / "tree", "WarmCool")
    rows = draw("sessions", tmp_path / "tree")["sessions"]
    for panel, values in (("all classes so far", SEEN), ("base classes", BASE), ("novel classes", NOVEL)):
        shown = {int(row["session"]): row for row in rows if row["panel"] == panel}
        pairs = {k: pair for k, pair in enumerate(zip(values[1], values[2], strict=True)) if None not in pair}
        assert shown.keys() == pairs.keys()
        for session, (first, second) in pairs.items():
            row = shown[session]
            assert (float(row["mean"]), float(row["std"])) == ((first + second) / 2, abs(first - second) / 2)
            assert row["by_seed"] == f"{first} {second}"


def test_datasets_are_averaged_if_their_sessions_are_alike(tmp_path: Path, draw: Draw) -> None:
    for dataset, shift in (("WarmCool", 0.0), ("ColourShape", 4.0)):
        write_sessions(tmp_path / "tree", dataset, shift)
    assert [float(row["mean"]) for row in draw("sessions", tmp_path / "tree")["sessions"][:3]] == [91.0, 83.0, 76.0]
    about = {"trainer": "CoOpFSCIL", "dataset": "X", "subset": "all"}
    write_results(tmp_path / "tree/fscil/x/CoOpFSCIL/tiny/seed1", 9.0, **about, sessions=[9.0])
    drawn = draw("sessions", tmp_path / "tree")
    assert {stem: len(rows) for stem, rows in drawn.items()} == {"sessions": 8, "sessions-2": 8, "sessions-3": 2}


def test_curves_over_shots_have_a_place_for_each_number(tmp_path: Path) -> None:
    for shots, accuracy in ((1, 60.0), (16, 80.0)):
        for seed in (1, 2):
            folder = tmp_path / f"eurosat/CoOp/vit_b16_{shots}shots/seed{seed}"
            write_results(folder, accuracy + seed, subset="all", shots=shots, seed=seed)
    write_results(tmp_path / "eurosat/ZeroshotCLIP/vit_b16/seed1", 50.0, subset="all", trainer="ZeroshotCLIP")
    lines = sessions.curves(pivots.few_shot(frame.read([tmp_path]).values), ["EuroSAT"])
    means = {(row.method, row.x): row.mean for row in lines.itertuples()}
    assert means == {("CLIP", 0): 50.0, ("CoOp", 1): 61.5, ("CoOp", 16): 81.5}
    (axes,) = sessions.draw_curves("shots", {"all": lines}, "Title", "shots").draw(Style()).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["zero-shot", "1", "16"]

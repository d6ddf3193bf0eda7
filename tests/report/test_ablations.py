"""The paper's tables that contain only averages: as printed, and next to the runs of the corresponding plans."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from cocoamix.bench.plan import load_plan
from cocoamix.bench.runs import Run, expand
from cocoamix.report.build import Options, Report, build
from cocoamix.report.model.stats import harmonic
from cocoamix.report.model.tables import Table
from cocoamix.report.paper import figures
from tests.conftest import SHARED, needs
from tests.report.test_peers import line, near
from tests.experiments.trees import write_results

TABLES = figures()["ablations"]["tables"]
ROWS = [(key, name) for key, table in TABLES.items() for name in table["rows"]]
ELEVEN = [name for name in figures()["base_to_new"]["datasets"] if name != "Average"]


# ---------------------------------------------------------------------------------------- the figures


def printed(key: str, name: str) -> dict[str, float]:
    return {metric: value for metric, value in TABLES[key]["rows"][name].items() if metric in ("base", "new", "H")}


@pytest.mark.parametrize(("key", "name"), ROWS)
def test_figures_agree_with_each_other(key: str, name: str) -> None:
    """A mean of H is at most the H of the means, and not far below it; figures have the stated decimals."""
    values, decimals = printed(key, name), TABLES[key]["decimals"]
    assert all(round(value, decimals) == value for value in values.values())
    if "H" in values:
        rounding = 10**-decimals
        assert -rounding <= harmonic(values["base"], values["new"]) - values["H"] < 0.7
        assert min(values["base"], values["new"]) < values["H"] < max(values["base"], values["new"])


@pytest.mark.parametrize(("key", "name"), [(key, name) for key, name in ROWS if "repeats" in TABLES[key]["rows"][name]])
def test_repeated_figures_match_the_base_to_new_table(key: str, name: str) -> None:
    average = figures()["base_to_new"]["datasets"]["Average"][TABLES[key]["rows"][name]["repeats"]]
    for metric, value in printed(key, name).items():
        assert abs(value - average[metric]["mean"]) <= 0.5 * 10 ** -TABLES[key]["decimals"] + 1e-9


@needs("paper/tables.json")
def test_figures_match_the_paper_source() -> None:
    tables = json.loads((SHARED / "paper" / "tables.json").read_text())
    ensembles = [
        {"backbone": entry["backbone"], "method": name.replace(" (four backbones)", ""), **printed("ensembles", name)}
        for name, entry in TABLES["ensembles"]["rows"].items()
    ]
    assert ensembles == tables["ensembles"]
    kinds = {"neither": (False, False), "pi^in": (True, False), "pi^in and pi^out": (True, True)}
    weights = [
        {"pi_in": kinds[name][0], "pi_out": kinds[name][1], **printed("weights", name)}
        for name in TABLES["weights"]["rows"]
    ]
    assert weights == tables["weights_ablation"]
    stages = {name.split("-")[0].lower(): printed("stages", name) for name in TABLES["stages"]["rows"]}
    assert stages == tables["stages"]
    names = {"None": "none", "Random String": "string", "Random String and Word": "both", "Random Word": "word"}
    found = {names[name]: entry["new"] for name, entry in TABLES["outclasses"]["rows"].items()}
    assert found == tables["out_class_ablation_new"]


LABELS = {
    "ensembles": "tab:ensemble_strategy",
    "weights": "tab:ablation_temp",
    "stages": "tab:optimization",
    "outclasses": "tab:ablation_generation_unseen",
}


@needs("paper/cocoa-mix.tex")
@pytest.mark.parametrize("key", TABLES)
def test_figures_match_the_paper_text(key: str) -> None:
    """The same, read from the paper's own text: all its figures in their order, with their decimals."""
    source = (SHARED / "paper" / "cocoa-mix.tex").read_text()
    text = re.sub(r"(?<!\\)%.*", "", source)  # comments contain older figures
    start = text.index(rf"\label{{{LABELS[key]}}}")
    body = text[text.index(r"\midrule" if key != "ensembles" else r"\multirow{5}", start) :]
    found = re.findall(r"(?<![\d.])\d\d\.\d+", body[: body.index(r"\end{tabular}")])
    decimals = TABLES[key]["decimals"]
    rows = [printed(key, name) for name in TABLES[key]["rows"]]
    assert [f"{value:.{decimals}f}" for row in rows for value in row.values()] == found


# ---------------------------------------------------------------------------------------- next to our runs


BASE, NEW = 80.0, 70.0


@lru_cache
def runs_of(plan: str) -> list[tuple[Run, dict[str, Any]]]:
    """Return the runs of a plan on one dataset with one seed, and the configuration that each would write."""
    from cocoamix.bench.ledger import plan_settings

    settings_of = plan_settings()
    small = load_plan(plan, datasets=["eurosat"], seeds=[1])
    return [(run, dict(settings_of(run))) for run in expand(replace(small, root="data", output=Path("output")))]


def write_plan(
    root: Path, plan: str, datasets: list[str] = ELEVEN, methods: tuple[str, ...] = (), **changes: Any
) -> None:
    """Write results as the runs of a plan would, on other datasets.

    Args:
        root: The folder to write to.
        plan: The name of the plan.
        datasets: The datasets.
        methods: Some methods of the plan; all if empty.
        changes: Settings that are changed in all runs.
    """
    for run, settings in runs_of(plan):
        if methods and run.method not in methods:
            continue
        config = {**settings, **changes}
        trainer = str(config["TRAINER.NAME"])
        several = {"CoCoAMix": "TRAINER.COCOAMIX.BACKBONES", "TuneEn": "TRAINER.ENLEARN.BACKBONES"}
        names = config.get(several.get(trainer, "")) or [config["MODEL.BACKBONE.NAME"]]
        facts = {"trainer": trainer, "subset": run.subset, "config": config, "protocol": {"backbone": "+".join(names)}}
        for dataset in datasets:
            parts = [dataset if part == "eurosat" else part for part in run.folder.parts[1:]]
            write_results(root.joinpath(*parts), BASE if run.subset == "base" else NEW, dataset=dataset, **facts)


def tables_of(report: Report) -> dict[str, Table]:
    found = [one for section in report.sections for one in section.tables if one.title.startswith("Ours next to")]
    return {one.key.rsplit("-", 1)[1]: one for one in found}


def matched_rows(table: Table) -> dict[str, str]:
    return {one.label: one.values[0].text for one in table.lines}


def texts(table: Table, label: str) -> dict[str, str]:
    (found,) = (one for one in table.lines if one.label == label)
    return {column.key: value.text for column, value in zip(table.columns, found.values, strict=True)}


def test_runs_of_the_weights_plan_are_shown_next_to_the_papers(tmp_path: Path) -> None:
    write_plan(tmp_path, "weights")
    report = build([tmp_path], Options(paper=True))
    tables = tables_of(report)
    assert list(tables) == ["weights", "stages", "outclasses"]
    named = "CoCoA-Mix (vit_b16_ep50{})"
    assert matched_rows(tables["weights"]) == {
        "neither": named.format("_uniform"),
        "pi^in": named.format("_pi_in"),
        "pi^in and pi^out": named.format(""),
    }
    assert matched_rows(tables["stages"]) == {
        "One-Stage Optimization": named.format(""),
        "Two-Stage Optimization": named.format("_two_stage"),
    }
    kinds = {"None": "_pi_in", "Random String": None, "Random String and Word": None, "Random Word": ""}
    expected = {name: "" if tail is None else named.format(tail) for name, tail in kinds.items()}
    assert matched_rows(tables["outclasses"]) == expected
    values = line(tables["weights"], "pi^in")
    assert (values["base"], values["base_paper"], values["base_gap"]) == (near(80), near(79.3), near(0.7))
    assert (values["new"], values["new_paper"], values["new_gap"]) == (near(70), near(73.81), near(-3.81))
    assert values["H_gap"] == near(2 * 80 * 70 / 150 - 76.32)
    assert texts(tables["weights"], "pi^in")["datasets"] == "11"
    # Rows that only the paper has are shown, too.
    assert line(tables["outclasses"], "Random String")["new_paper"] == near(75)
    assert "base_paper" not in line(tables["outclasses"], "Random String")


def test_one_configuration_with_two_figures_is_noted(tmp_path: Path) -> None:
    write_plan(tmp_path, "outclasses")
    report = build([tmp_path], Options(paper=True))
    tables = tables_of(report)
    assert line(tables["weights"], "pi^in")["new_paper"] == near(73.81)
    assert line(tables["outclasses"], "None")["new_paper"] == near(74.12)
    assert line(tables["weights"], "pi^in")["new"] == line(tables["outclasses"], "None")["new"]
    # One note: 75.1 in three tables is one figure.
    (note,) = (note for note in report.sections[0].notes if "matches several rows of the paper" in note)
    assert note == (
        "CoCoA-Mix (vit_b16_ep50_pi_in) matches several rows of the paper, which print different values of new: "
        "73.81 (table of weights, pi^in) and 74.12 (table of kinds of out-classes, None)."
    )
    assert all(matched_rows(tables["outclasses"]).values())


def test_runs_of_the_ensembles_plan_are_shown_next_to_the_papers(tmp_path: Path) -> None:
    write_plan(tmp_path, "ensembles")
    report = build([tmp_path], Options(paper=True))
    table = tables_of(report)["ensembles"]
    found = matched_rows(table)
    assert list(tables_of(report)) == ["ensembles"]
    expected = {
        "CLIP": "CLIP",
        "CLIP (w/ Ensemble)": "CLIP, ensemble of templates",
        "CoA-loss (w/o Ensemble)": "CoCoA-Mix (vit_b16_ep50_none)",
        "CoA-loss (w/ Ensemble)": "CoCoA-Mix (vit_b16_ep50_uniform)",
        "CoCoA-Mix": "CoCoA-Mix (vit_b16_ep50)",
        "T_En + CoCoOp": "TuneEn (ensemble_ep50_cocoop)",
        "T_En + CoA-loss": "TuneEn (ensemble_ep50_coa)",
        "CoCoA-Mix (four backbones)": "CoCoA-Mix (ensemble_ep50)",
    }
    assert found == expected
    one, four = line(table, "CoA-loss (w/o Ensemble)"), line(table, "T_En + CoA-loss")
    assert one["base_gap"] == near(1.4)
    # The paper does not name its ten datasets: both figures, but no difference.
    assert (four["base"], four["base_paper"], four["base_gap"]) == (near(80), near(85.3), None)
    assert texts(table, "T_En + CoA-loss")["datasets"] == "11 here, 10 in the paper"
    assert any("over 10 datasets that it does not name" in note for note in report.sections[0].notes)
    notes = [note for note in report.sections[0].notes if "not compared" in note]
    assert [note.split(" is not")[0] for note in notes] == ["CoCoA-Mix (ensemble_ep50_none)"]


def test_backbones_of_the_paper_are_not_a_difference(tmp_path: Path) -> None:
    write_plan(tmp_path, "ensembles", methods=("CoCoA-Mix", "CoCoA-Mix (four backbones)"))
    report = build([tmp_path], Options(paper=True))
    assert matched_rows(tables_of(report)["ensembles"])["CoCoA-Mix (four backbones)"]
    assert not any("settings differ" in note for note in report.sections[0].notes)


def test_the_order_of_backbones_does_not_matter(tmp_path: Path) -> None:
    order = ["ViT-B/32", "RN101", "ViT-B/16", "RN50"]
    changed = {"TRAINER.COCOAMIX.BACKBONES": order}
    write_plan(tmp_path, "ensembles", methods=("CoCoA-Mix (four backbones)",), **changed)
    found = matched_rows(tables_of(build([tmp_path], Options(paper=True)))["ensembles"])
    assert found["CoCoA-Mix (four backbones)"] == "CoCoA-Mix"


def test_ten_datasets_are_compared_only_with_rows_of_ten(tmp_path: Path) -> None:
    write_plan(tmp_path, "ensembles", ELEVEN[1:])
    report = build([tmp_path], Options(paper=True))
    table = tables_of(report)["ensembles"]
    assert [name for name, own in matched_rows(table).items() if own] == [
        "T_En + CoCoOp",
        "T_En + CoA-loss",
        "CoCoA-Mix (four backbones)",
    ]
    assert line(table, "CoCoA-Mix (four backbones)")["new_gap"] is None
    assert line(table, "CoCoA-Mix")["new_paper"] == near(75.1)
    words = "The paper prints only averages over 11 datasets in its tables of ensembles; yours are over 10, so"
    assert any(note.startswith(words) for note in report.sections[0].notes)


def test_fewer_datasets_have_no_paper_table(tmp_path: Path) -> None:
    write_plan(tmp_path, "weights", ELEVEN[:2])
    report = build([tmp_path], Options(paper=True))
    assert not tables_of(report)
    (note,) = (note for note in report.sections[0].notes if "only averages over 11 datasets" in note)
    assert "tables of weights, stages, kinds of out-classes;" in note
    assert note.endswith("yours are over 2, so they are not compared.")
    # The rows are not shown, so the reason is given as for any variant.
    assert any("OUT_CLASSES is none here, word in the paper" in note for note in report.sections[0].notes)


def test_rows_of_the_base_to_new_table_add_no_second_table(tmp_path: Path) -> None:
    write_plan(tmp_path, "base2new")
    assert not tables_of(build([tmp_path], Options(paper=True)))


def test_without_the_flag_the_paper_is_not_shown(tmp_path: Path) -> None:
    write_plan(tmp_path, "weights")
    assert not tables_of(build([tmp_path]))


@pytest.mark.parametrize(
    ("key", "value", "lost"),
    [
        ("OPTIM.MAX_EPOCH", 10, {"stages", "weights", "outclasses"}),
        ("TRAINER.COCOAMIX.W", 7.0, {"stages", "weights", "outclasses"}),
        ("TRAINER.COCOAMIX.W_OUT", 10.0, {"stages"}),  # of one stage; the paper's two have 8
        ("TRAINER.COCOAMIX.WEIGHT_FIT", "heldout", {"stages"}),  # beyond the paper; means nothing in one stage
        ("MODEL.BACKBONE.NAME", "RN50", {"stages", "weights", "outclasses"}),
    ],
)
def test_other_settings_are_not_compared(tmp_path: Path, key: str, value: object, lost: set[str]) -> None:
    write_plan(tmp_path, "weights", **{key: value})
    assert set(tables_of(build([tmp_path], Options(paper=True)))) == {"stages", "weights", "outclasses"} - lost


def test_unrecorded_settings_count_as_different(tmp_path: Path) -> None:
    write_plan(tmp_path, "weights")
    for path in tmp_path.glob("base2new/*/*/*/*/vit_b16_ep50_pi_in/*/results.json"):
        content = json.loads(path.read_text())
        del content["config"]["OPTIM.LR"]
        path.write_text(json.dumps(content))
    assert set(tables_of(build([tmp_path], Options(paper=True)))) == {"stages"}


def test_other_shots_are_not_compared(tmp_path: Path) -> None:
    write_plan(tmp_path, "weights")
    for path in tmp_path.glob("base2new/*/*/*/*/*/*/results.json"):
        content = json.loads(path.read_text())
        content["shots"] = content["protocol"]["shots"] = 16
        path.write_text(json.dumps(content))
    report = build([tmp_path], Options(paper=True))
    assert not tables_of(report)
    assert any("16 shots here, 4 in the paper" in note for note in report.sections[0].notes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"TRAINER.COCOAMIX.LOSS": "ce"}, "in its prompts, TRAINER.COCOAMIX.LOSS is ce here, ce+coa in the paper"),
        (None, "the runs of its prompts, CoCoAMix/ensemble_ep50_none, are not in this report"),
    ],
)
def test_prompts_of_other_runs_match_the_paper(tmp_path: Path, change: dict[str, str] | None, words: str) -> None:
    """T_En's own settings do not include the prompts it builds on: they are read from the runs that it names."""
    write_plan(tmp_path, "ensembles")
    for path in tmp_path.glob("base2new/*/*/*/CoCoAMix/ensemble_ep50_none/*/results.json"):
        content = json.loads(path.read_text())
        content["config"].update(change or {})
        path.write_text(json.dumps(content))
        if change is None:
            path.unlink()
    report = build([tmp_path], Options(paper=True))
    found = matched_rows(tables_of(report)["ensembles"])
    assert found["T_En + CoCoOp"]
    assert not found["T_En + CoA-loss"]
    (note,) = (note for note in report.sections[0].notes if "not compared with T_En" in note)
    assert "T_En + CoA-loss in the paper's table of ensembles" in note
    assert words in note


def test_row_names_do_not_matter(tmp_path: Path) -> None:
    write_plan(tmp_path, "weights")
    report = build([tmp_path], Options(paper=True, names=(("CoCoAMix/vit_b16_ep50_pi_in", "mine"),)))
    assert matched_rows(tables_of(report)["weights"])["pi^in"] == "mine"


def test_every_row_of_the_paper_has_a_plan(tmp_path: Path) -> None:
    for plan in ("weights", "outclasses", "ensembles"):
        write_plan(tmp_path / plan, plan)
    tables = tables_of(build([tmp_path / plan for plan in ("weights", "outclasses", "ensembles")], Options(paper=True)))
    for key, table in tables.items():
        assert all(one.values[0].text for one in table.lines), key
    assert list(tables) == list(TABLES)

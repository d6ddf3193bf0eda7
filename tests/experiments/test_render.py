"""Each format shows the cells of a table, its marks and captions, and escapes every name."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from cocoamix.experiments import render
from cocoamix.experiments.report import build, main
from tests.experiments.trees import write_pair, write_results

SPECIAL = r"[a] 50% & _b_ #1 $2 {x} ~^ <y> |z| \input{w} π -3 `c` **d** αβ"
HOSTILE = "=cmd|' /C calc'!A0"
DOCUMENT = r"""\documentclass{article}
\usepackage{booktabs,graphicx}
\begin{document}
\input{tables}
\end{document}
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the report on runs with hostile names in each format."""
    root = tmp_path_factory.mktemp("render")
    for dataset in ("EuroSAT", "DTD"):
        for seed in (1, 2, 3):
            write_pair(root / "tree", 80.0 + seed, 60.0, dataset=dataset, seed=seed)
            if seed < 3:
                write_pair(root / "tree", 70.0 + seed, 59.0, dataset=dataset, seed=seed, trainer="KgCoOp")
            write_pair(root / "tree", 60.0 + seed, 55.0, dataset=dataset, seed=seed, trainer="ProGrad")
        write_pair(root / "tree", 60.0, 55.0, dataset=dataset, trainer="CoCoAMix", config={"OPTIM": {"MAX_EPOCH": 7}})
    broken = root / "tree" / "broken_50%_\x1b[31m"
    broken.mkdir()
    (broken / "results.json").write_text("{")
    kinds = ("markdown", "latex", "csv", "json", "html")
    flags = [word for kind in kinds for word in (f"--{kind}", str(root / kind))]
    names = ["--name", f"KgCoOp/*={SPECIAL}", "--name", f"ProGrad/*={HOSTILE}"]
    assert main([str(root / "tree"), "--quiet", "--baseline", "CoOp", "--paper", *names, *flags]) == 1
    return {kind: (root / kind).read_text(encoding="utf-8") for kind in kinds}


def test_no_control_character_reaches_a_file(files: dict[str, str]) -> None:
    for text in files.values():
        assert "\x1b" not in text
        assert "broken_50" in text or text is files["csv"]


def test_latex_shows_names_as_text(files: dict[str, str]) -> None:
    rows = [line for line in files["latex"].splitlines() if "textasciitilde" in line and line.endswith(r"\\")]
    assert rows
    for line in rows:
        assert line.startswith(r"{[}a{]} 50\% \& \_b\_ \#1 \$2 \{x\} \textasciitilde{}\textasciicircum{} \textless{}y")
        assert r"\input" not in line
    comments = [line for line in files["latex"].splitlines() if "broken" in line]
    assert comments
    assert all(line.startswith("%") for line in comments)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_the_latex_document_compiles(files: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "tables.tex").write_text(files["latex"], encoding="utf-8")
    (tmp_path / "main.tex").write_text(DOCUMENT, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout


def test_markdown_rows_have_as_many_cells_as_the_header(files: dict[str, str]) -> None:
    for block in re.findall(r"(?:^\|.*\n)+", files["markdown"], re.MULTILINE):
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(counts) == 1
    assert "<y>" not in files["markdown"]
    assert r"\`c\` \*\*d\*\*" in files["markdown"]


def test_no_cell_of_the_csv_is_a_formula(files: dict[str, str]) -> None:
    rows = list(csv.reader(io.StringIO(files["csv"])))
    assert any(HOSTILE in cell for row in rows for cell in row)
    for cell in (cell for row in rows for cell in row):
        assert not re.match(r"\s*[=@]", cell)
        assert not re.match(r"\s*[+-]", cell) or re.fullmatch(r"[+-][\d.]+", cell)


def test_csv_has_every_mean(files: dict[str, str]) -> None:
    cells = pd.read_csv(io.StringIO(files["csv"]))
    chosen = cells[(cells["table"] == "EuroSAT") & (cells["line"] == "CoOp") & (cells["column"] == "base")]
    assert chosen[["mean", "n"]].to_numpy().tolist() == [[82, 3]]


@pytest.mark.parametrize("kind", ["markdown", "latex", "csv", "json", "html"])
def test_remarks_and_sources_are_in_every_format(files: dict[str, str], kind: str) -> None:
    for text in ("fewer seeds", "not the paper's settings", "ICML"):
        assert text in files[kind].replace("&#39;", "'")


def test_caveats_of_all_rows_are_in_every_format(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 60.0, caveats=["random weights"])
    report = build([tmp_path])
    texts = (render.markdown(report), render.latex(report), render.csv(report), render.html(report, {}))
    assert all("random weights" in text for text in texts)
    assert "random weights" in render.json(report)["sections"][0]["tables"][0]["lines"][0]["remarks"]


def test_missing_values_are_shown_as_missing(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 70.0)
    write_results(tmp_path / "base2new/train_base/eurosat/shots_4/KgCoOp/vit_b16/seed1", 60.0, trainer="KgCoOp")
    report = build([tmp_path])
    assert re.search(rf"\| KgCoOp +\| +60.00 \| +{render.MISSING} \|", render.markdown(report))
    _, line = render.json(report)["sections"][0]["tables"][0]["lines"]
    assert (line["base"]["mean"], line["new"]) == (60, None)

"""The LaTeX tables: escaped names, widths that fit, and a document that compiles if pdflatex is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cocoamix.report.command import main
from cocoamix.report.render.latex import escape
from tests.experiments.trees import write_pair, write_results

DOCUMENT = r"""\documentclass%s{article}
\usepackage{booktabs,graphicx}
\begin{document}
\input{tables}
\end{document}
"""
SPECIAL = "[a] 50% & _b_ #1 $2 {x} ~^ <y> |z| \\w π"
TARGETS = "Caltech101 OxfordPets StanfordCars Flowers102 Food101 FGVCAircraft SUN397 DTD EuroSAT UCF101 ImageNetV2"


def write_tree(root: Path) -> None:
    """Write runs of base to new, a sweep, transfer and sessions, some of them missing."""
    for seed in (1, 2):
        for dataset in ("EuroSAT", "DTD"):
            same = {"seed": seed, "dataset": dataset}
            write_pair(root, 80.0 + seed, 60.0, **same)
            write_pair(root, 81.0, 59.0 + seed, trainer="KgCoOp", **same)
            for w in (0.5, 5.0):
                trainer = {"NAME": "CoCoAMix", "COCOAMIX": {"W": w}}
                write_pair(
                    root, 82.0 + w, 61.0, trainer="CoCoAMix", config_name=f"w{w}", config={"TRAINER": trainer}, **same
                )
        for trainer_name in ("CoOp", "CoCoAMix"):
            same = {"trainer": trainer_name, "subset": "all", "shots": 16, "seed": seed}
            write_results(root / f"imagenet/{trainer_name}/v_16shots/seed{seed}", 70.0, dataset="ImageNet", **same)
            for target in TARGETS.split():
                folder = root / f"evaluation/{trainer_name}/v_16shots/{target.lower()}/seed{seed}"
                if (trainer_name, target) != ("CoOp", "Food101"):
                    write_results(folder, 65.0 + seed, dataset=target, **same)
            same["trainer"] += "FSCIL"
            sessions = [90.0 - 2 * number - seed for number in range(9)]
            folder = root / f"fscil/cifar100/{trainer_name}FSCIL/v/seed{seed}"
            write_results(folder, 70.0, dataset="CIFAR100", sessions=sessions, **same)
    write_results(root / "base2new/train_base/eurosat/shots_4/Half_done/v/seed1", 80.0, trainer="Half_done")


def write_latex(folder: Path) -> str:
    """Write the report on the tree to tables.tex, and return it."""
    write_tree(folder / "tree")
    path = folder / "tables.tex"
    names = ["--name", f"KgCoOp/*={SPECIAL}"]
    assert main([str(folder / "tree"), "--quiet", "--baseline", "CoOp", "--paper", "--latex", str(path), *names]) == 0
    return path.read_text(encoding="utf-8")


def test_special_characters_are_escaped() -> None:
    assert escape("a_b 5% & c") == r"a\_b 5\% \& c"
    assert escape("π λ Δ |x| two\nlines") == r"$\pi$ $\lambda$ $\Delta$ \textbar{}x\textbar{} two lines"


def test_wide_tables_are_divided_and_names_escaped(tmp_path: Path) -> None:
    latex = write_latex(tmp_path)
    assert "    {}[a] 50" in latex  # otherwise LaTeX would read [a] as an option of the row before it
    assert r"Half\_done & 80.00 & -- & -- & -- & 1 \\" in latex
    tables = {re.findall(r"\\label\{tab:(.*)\}", one)[0]: one for one in latex.split(r"\begin{table}")[1:]}
    assert {"base2new-4-average", "base2new-4-sweep-w", "transfer-imagenet-16-datasets", "fscil-cifar100"} <= set(
        tables
    )
    # Every column is in one of the parts of a wide table, and each part names its rows.
    wide = tables["transfer-imagenet-16-datasets"]
    parts = wide.split(r"\toprule")[1:]
    assert len(parts) > 1
    heads = [part.strip().splitlines()[0].removesuffix(r" \\").split(" & ") for part in parts]
    assert {head[0] for head in heads} == {"method"}
    assert [title for head in heads for title in head[1:]] == [
        "ImageNet (source)",
        *TARGETS.split()[:-1],
        "target average",
        "H",
        "seeds",
    ]
    assert wide.count("    CoCoA-Mix & ") == len(parts)
    assert tables["base2new-4-eurosat"].count(r"\toprule") == 1


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.parametrize("options", ["", "[twocolumn]"])
def test_document_compiles(tmp_path: Path, options: str) -> None:
    write_latex(tmp_path)
    (tmp_path / "main.tex").write_text(DOCUMENT % options, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert "multiply defined" not in done.stdout
    if shutil.which("pdftotext"):
        subprocess.run(["pdftotext", "-layout", "main.pdf"], cwd=tmp_path, check=True)
        text = (tmp_path / "main.txt").read_text(encoding="utf-8")
        for word in ("[a] 50% &", "#1 $2 {x}", "<y> |z| \\w π", "Half", "\N{EN DASH}"):
            assert word in text

"""A table of images becomes a dataset, or gives a message with the line number."""

from __future__ import annotations

from pathlib import Path

import pytest

from cocoamix.errors import UserError
from tests.conftest import ROOT, Runner
from tests.datasets.own import below, classes, table, write_image


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return classes(tmp_path / "images", "a", "b", count=10)


def write(root: Path, header: str, row: str, name: str = "list.csv", encoding: str = "utf-8") -> Path:
    """Write a table of all images; `row` is a format of path, folder, label and number."""
    lines = [header]
    for label, folder in enumerate(("a", "b")):
        lines += [row.format(path=f"{folder}/{n}.png", folder=folder, label=label, n=n) for n in range(10)]
    (root / name).write_bytes("\n".join(lines).encode(encoding))
    return root


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_delimiters_and_byte_order_marks_are_recognised(root: Path, delimiter: str, encoding: str) -> None:
    rows = delimiter.join(("{path}", "black {folder}", "x"))
    data = table(write(root, delimiter.join(("Path", "ClassName", "note")), rows, encoding=encoding))
    assert data.classnames == ["black a", "black b"]
    assert (len(data.train_x), len(data.val), len(data.test)) == (10, 4, 6)


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("path,label,classname", "{path},{label},{folder}_x"),
        ("classname,filename,label", "{folder} x,{path},{label}"),
        ("path,label,classname", '{path},{label},"{folder}  x"'),
        ("image,label", "{path},{folder} x"),  # a column `label` of class names
        ("path,class", "{path},{folder} x"),
        ("path,label,classname", "{folder}\\{n}.png,{label},{folder} x"),  # from Windows
        ("\npath,label,classname\n", "\n{path},{label},{folder} x"),
    ],
)
def test_columns_are_recognised_by_name(root: Path, header: str, row: str) -> None:
    data = table(write(root, header, row))
    assert data.classnames == ["a x", "b x"]
    for item in [*data.train_x, *data.val, *data.test]:
        assert Path(item.impath).parent.name == "ab"[item.label]


def test_labels_determine_class_order(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{c}/{n}.png,{label},{name}" for c, label, name in (("a", 9, "ant"), ("b", 4, "zebra")) for n in range(4)]
    (root / "list.csv").write_text("\n".join(["path,label,classname", *lines]))
    data = table(root)
    assert data.classnames == ["zebra", "ant"]
    assert {Path(i.impath).parent.name for i in data.train_x if i.label == 0} == {"b"}
    assert "from 4 to 9" in capsys.readouterr().out


def test_numeric_labels_need_class_names(root: Path) -> None:
    write(root, "path,label", "{path},{label}")
    with pytest.raises(UserError, match=r"prompts need names.*DATASET\.CLASSNAMES"):
        table(root)
    (root / "names.txt").write_text("1,emu\n0,ape\n")
    assert table(root, classnames="names.txt").classnames == ["ape", "emu"]


def test_split_column_assigns_the_images(root: Path) -> None:
    lines = ["path,class,split"]
    for folder in "ab":
        lines += [
            f"{folder}/{n}.png,{folder},{'Training' if n < 5 else 'valid' if n < 7 else 'test'}" for n in range(10)
        ]
    (root / "list.csv").write_text("\n".join(lines))
    data = table(root)
    assert sorted(below(data.val, root)) == ["a/5.png", "a/6.png", "b/5.png", "b/6.png"]
    assert (len(data.train_x), len(data.test)) == (10, 6)


def test_the_only_or_the_named_table_is_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"DATASET\.CSV FILE.* has 0"):
        table(root)
    write(root, "path\tclass", "{path}\t{folder}", name="one.tsv")
    assert table(root).classnames == ["a", "b"]
    write(root, "path,class", "{path},{folder} two", name="two.csv")
    with pytest.raises(UserError, match=r"has 2 .*one\.tsv, two\.csv"):
        table(root)
    assert table(root, csv="two.csv").classnames == ["a two", "b two"]
    elsewhere = root.parent / "three.csv"
    elsewhere.write_text((root / "two.csv").read_text())
    assert table(root, csv=str(elsewhere)).classnames == ["a two", "b two"]
    with pytest.raises(UserError, match=r"four\.csv, which is neither"):
        table(root, csv="four.csv")


def test_paths_are_relative_to_the_table(root: Path) -> None:
    write(root, "path,class", "{path},{folder}")
    assert table(root.parent, folder="images").classnames == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["first line that names the columns"]),
        ("a/1.png,cat\nb/1.png,dog\n", ["first line that names the columns", "a/1.png,cat"]),
        ("path,weight\na/1.png,3\n", ["first line that names the columns", "path,weight"]),
        ("path,class\n", ["no images"]),
        (f"path,class,{'x' * 200_000}\na/1.png,cat,1\n", ["first line that names the columns"]),
        (f"path,label,class\na/1.png,0,cat\na/2.png,{'9' * 5000},dog\n", ["line 3", "'999", "whole number"]),
        ("path,class\na/1.png,cat\na/2.png\n", ["line 3", "1 cells", "2"]),
        ("path,class\na/1.png,cat\na/2.png,cat,dog\n", ["line 3", "3 cells"]),
        ("path,class\na/1.png,cat\n\na/2.png,\n", ["line 4", "the name is empty"]),
        ("path,class,split\na/1.png,cat,train\na/2.png,cat,tset\n", ["line 3", "'tset'", "Did you mean test?"]),
        ("path,class,split\na/1.png,cat,train\na/2.png,cat,\n", ["line 3", "the split is empty"]),
        ("path,label,class\na/1.png,0,cat\na/2.png,x,dog\n", ["line 3", "'x'", "whole number"]),
        ("path,label\na/1.png,0\na/2.png,dog\n", ["line 3", "'dog'", "whole number"]),
        ("path,label,class\na/1.png,0,cat\na/2.png,0,dog\n", ["line 3", "'dog'", "'cat'", "line 2"]),
        ("path,label,class\na/1.png,0,cat\na/2.png,1,cat\n", ["line 3", "label 1", "0 in line 2"]),
        ("path,class\na/1.png,cat\na/./1.png,dog\n", ["line 3", "line 2"]),
        ("path,class\na/1.png,cat\nc/1.png,dog\nc/2.png,dog\n", ["2 of 3", "c/1.png (line 3)", "below"]),
        ('path,class\na/1.png,"cat\ntom"\nc/1.png,dog\n', ["c/1.png (line 4)"]),
        ('path,class\na/1.png,cat\na/2.png,"dog\n', ["line 3", "list.csv"]),
        ("path,class\na/1.png,cat\na/2.png,cat\n", ["one class", "'cat'"]),
        ("path,class\na/1.png,cat\na/2.png,Cat\n", ["'Cat'", "same class name"]),
        ("path,class\na/1.png,cat\na/2.png,dog\n", ["'cat' has one image"]),
        ("path,class,split\na/1.png,cat,train\na/2.png,dog,test\n", ["'dog'", "no train images"]),
    ],
)
def test_errors_name_the_line(root: Path, text: str, words: list[str]) -> None:
    (root / "list.csv").write_text(text)
    with pytest.raises(UserError) as caught:
        table(root)
    for word in words:
        assert word in str(caught.value)


def test_other_encodings_are_refused(root: Path) -> None:
    (root / "list.csv").write_bytes("path,class\na/1.png,cat\na/2.png,émeu\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"not UTF-8: see line 3"):
        table(root)
    (root / "list.csv").write_text("path,class\na/1.png,cat\n", encoding="utf-16")
    with pytest.raises(UserError, match="UTF-16"):
        table(root)


def test_commas_spaces_and_non_ascii_letters_are_allowed_in_names(root: Path) -> None:
    write_image(root / "mes photos" / "été, 1.png")
    write_image(root / "mes photos" / "été, 2.png")
    lines = [
        '"mes photos/été, 1.png","Þór, the god"',
        '"mes photos/été, 2.png","Þór, the god"',
        "a/1.png,猫",
        "a/2.png,猫",
    ]
    (root / "list.csv").write_text("\n".join(["path,class", *lines]), encoding="utf-8")
    assert table(root).classnames == ["Þór, the god", "猫"]


def test_few_shots_of_a_half_are_drawn(root: Path) -> None:
    data = table(write(root, "path,class", "{path},{folder}"), num_shots=2, subsample_classes="base")
    assert (data.classnames, len(data.train_x)) == (["a"], 2)


def test_a_saved_draw_under_other_labels_is_refused(root: Path) -> None:
    """Other class names do not matter, but the labels of the images do."""
    images = sorted(path.relative_to(root) for path in root.glob("*/*.png"))
    folders = sorted({path.parent.name for path in images})

    def listed(order: list[str], suffix: str) -> None:
        rows = [f"{path},{order.index(path.parent.name)},{path.parent.name}{suffix}" for path in images]
        (root / "list.csv").write_text("\n".join(["path,label,classname", *rows]))

    listed(folders, "")
    table(root, num_shots=2)
    listed(folders, " bird")
    assert table(root, num_shots=2).classnames == [f"{name} bird" for name in folders]
    listed(folders[::-1], "")
    with pytest.raises(UserError, match=r"shot_2-seed_1\.pkl does not fit .* under the same label; the first"):
        table(root, num_shots=2)


def test_training_needs_only_a_configuration(run: Runner, root: Path) -> None:
    write(root, "path,class", "{path},colour {folder}")
    dataset = ["--dataset-config-file", str(ROOT / "configs" / "datasets" / "csv.yaml")]
    done = run(*dataset, "DATASET.NUM_SHOTS", "2", "OPTIM.MAX_EPOCH", "1", data=root)
    assert done.status == 0, done.output[-2000:]
    assert done.results["dataset"] == "CSVDataset"


def test_images_outside_the_folder_are_refused(tmp_path: Path) -> None:
    write_image(tmp_path / "elsewhere" / "a.png")
    write_image(tmp_path / "root" / "b.png")
    for path in ("../elsewhere/a.png", str(tmp_path / "elsewhere" / "a.png")):
        (tmp_path / "root" / "list.csv").write_text(f"path,classname\nb.png,bee\n{path},ant\n")
        with pytest.raises(UserError, match=r"line 3 names .*, which is outside"):
            table(tmp_path / "root")

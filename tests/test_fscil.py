"""The mixture over sessions, its cut of the classes, and what is reported of it."""

from __future__ import annotations

import builtins
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from cocoamix import curves, incremental
from cocoamix.errors import UserError
from cocoamix.fscil import SessionWeights, mixed_features, session_owners, session_weights
from cocoamix.mixture import mix
from cocoamix.sessions import Cut, cut_into_sessions, label_ranges
from tests.report.trees import write_results


def log_weights(sessions: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(sessions)
    return torch.randn(sessions, generator=draw), torch.randn(sessions, generator=draw)


class TestWeights:
    @pytest.mark.parametrize("kind", ["coa", "uniform", "none"])
    @pytest.mark.parametrize("sessions", range(1, 10))
    def test_sum_to_one(self, kind: str, sessions: int) -> None:
        owner = session_owners([60, *[5] * (sessions - 1)])
        pi = session_weights(kind, *log_weights(sessions), owner)
        assert pi.shape == (sessions + 1, 60 + 5 * (sessions - 1))
        assert torch.allclose(pi.sum(dim=0), torch.ones(pi.shape[1]), atol=1e-6)
        assert (pi >= 0).all()
        assert (pi[0] > 0).all() == (kind != "none")  # the hand-crafted prompt is always in the mixture

    def test_own_and_other_classes(self) -> None:
        """Each entry against the definition, written out."""
        inside, outside = log_weights(3)
        sizes = [4, 2, 2]
        pi = session_weights("coa", inside, outside, session_owners(sizes))
        label = 0
        for session, size in enumerate(sizes):
            for _ in range(size):
                raw = [1.0] + [float((inside if i == session else outside)[i].exp()) for i in range(3)]
                wanted = torch.tensor(raw) / sum(raw)
                assert torch.allclose(pi[:, label], wanted, atol=1e-6)
                label += 1

    def test_only_the_new_session_learns(self) -> None:
        earlier = [(torch.tensor([0.3]), torch.tensor([-0.7])), (torch.tensor([1.1]), torch.tensor([0.2]))]
        before = [(a.clone(), b.clone()) for a, b in earlier]
        weights = SessionWeights(100.0, earlier)
        assert {name for name, _ in weights.named_parameters()} == {"inside", "outside"}
        sims = torch.rand(4, 6, 5, generator=torch.Generator().manual_seed(0))
        loss = torch.nn.functional.cross_entropy(weights.in_logits(sims), torch.arange(6) % 5)
        loss = loss + weights.out_loss(sims[[0, -1]], 0.1)
        optimizer = torch.optim.SGD(weights.parameters(), lr=1.0)
        loss.backward()
        optimizer.step()
        assert float(weights.inside.detach()) != 0
        assert float(weights.outside.detach()) != 0
        assert all(torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(earlier, before, strict=True))
        assert torch.equal(weights.earlier_inside, torch.tensor([0.3, 1.1]))
        assert torch.equal(weights.earlier_outside, torch.tensor([-0.7, 0.2]))

    def test_own_classes_in_training_weigh_as_in_the_matrix(self) -> None:
        earlier = [(torch.tensor([0.3]), torch.tensor([-0.7]))]
        weights = SessionWeights(100.0, earlier)
        with torch.no_grad():
            weights.inside.fill_(0.5)
            weights.outside.fill_(-0.1)
        sims = torch.rand(3, 6, 2, generator=torch.Generator().manual_seed(0))
        pi = session_weights("coa", torch.tensor([0.3, 0.5]), torch.tensor([-0.7, -0.1]), session_owners([4, 2]))
        assert torch.allclose(weights.in_logits(sims), 100 * mix(sims, pi[:, 4:]), atol=1e-5)

    def test_entropy_loss_of_the_third_session(self) -> None:
        """Against the definition, written out with plain numbers: pi^out of all prompts, the new one's last."""
        earlier = [(torch.tensor([0.3]), torch.tensor([-0.7])), (torch.tensor([1.1]), torch.tensor([0.4]))]
        weights = SessionWeights(20.0, earlier)
        with torch.no_grad():
            weights.inside.fill_(0.9)
            weights.outside.fill_(-1.3)
        sims = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0))
        raw = [1.0, math.exp(-0.7), math.exp(0.4), math.exp(-1.3)]  # of t_0 and the three sessions, for nobody's class

        def uncertainty(row: list[float], share: float) -> float:
            powers = [math.exp(20.0 * share * value) for value in row]
            return -sum(p / sum(powers) * math.log(p / sum(powers)) for p in powers) / math.log(4)

        pairs = zip(*sims.tolist(), strict=True)
        lost = [
            max(0.0, uncertainty(first, raw[0] / sum(raw)) - uncertainty(last, raw[3] / sum(raw)) + 0.6)
            for first, last in pairs
        ]
        assert min(lost) > 0
        assert float(weights.out_loss(sims, 0.6).detach()) == pytest.approx(sum(lost) / 3, abs=1e-5)

    def test_without_out_classes(self) -> None:
        weights = SessionWeights(100.0, tied=True)
        assert [name for name, _ in weights.named_parameters()] == ["inside"]
        with torch.no_grad():
            weights.inside.fill_(2.0)
        assert torch.equal(*weights.relative())

    def test_weights_of_earlier_sessions_have_no_gradient(self) -> None:
        earlier = [(torch.tensor(0.3, requires_grad=True), torch.tensor(-0.7, requires_grad=True))]
        weights = SessionWeights(100.0, earlier)
        assert not weights.earlier_inside.requires_grad
        assert [tuple(side.detach().tolist()) for side in weights.relative()] == [
            (pytest.approx(0.3), 0.0),
            (pytest.approx(-0.7), 0.0),
        ]

    def test_an_unknown_mixture_is_refused(self) -> None:
        with pytest.raises(UserError, match=r"^ENSEMBLE is 'mean'"):
            session_weights("mean", *log_weights(2), session_owners([1, 1]))

    @pytest.mark.parametrize("kind", ["coa", "uniform", "none"])
    def test_weights_are_made_on_the_device_of_the_classes(self, kind: str) -> None:
        inside, outside = (side.to("meta") for side in log_weights(2))
        assert session_weights(kind, inside, outside, session_owners([2, 1]).to("meta")).device.type == "meta"

    def test_mixed_features_are_in_full_precision(self) -> None:
        text, pi = torch.ones(2, 3, 4).half(), torch.full((2, 3), 0.5, dtype=torch.float64)
        assert mixed_features(text, pi).dtype == torch.float32
        assert mixed_features(text, pi.half()).dtype == torch.float32

    def test_mixed_features_are_the_mixture(self) -> None:
        draw = torch.Generator().manual_seed(0)
        text, images = torch.randn(4, 8, 16, generator=draw), torch.randn(5, 16, generator=draw)
        pi = session_weights("coa", *log_weights(3), session_owners([4, 2, 2]))
        wanted = mix(torch.einsum("bd,kcd->kbc", images, text), pi)
        assert torch.allclose(images @ mixed_features(text, pi).t(), wanted, atol=1e-5)


@dataclass(frozen=True)
class Item:
    label: int
    number: int

    @property
    def classname(self) -> str:
        return f"class {self.label}"


class Data:
    """Ten classes of six images."""

    def __init__(self) -> None:
        self.train_x = [Item(label, number) for label in range(10) for number in range(6)]
        self.classnames = [f"class {label}" for label in range(10)]


class TestCut:
    test = tuple(Item(label, 100 + number) for label in range(10) for number in range(3))

    def cut(self, **changes: Any) -> Any:
        return cut_into_sessions(Data(), self.test, Cut(**{"base": 4, "way": 2, "shots": 3, "seed": 1, **changes}))

    def test_classes_and_images(self) -> None:
        sessions = self.cut()
        assert [list(one.labels) for one in sessions] == [[0, 1, 2, 3], [4, 5], [6, 7], [8, 9]]
        assert [one.seen for one in sessions] == [4, 6, 8, 10]
        assert len(sessions[0].train) == 24
        for one in sessions[1:]:
            assert [item.label for item in one.train] == [label for label in one.labels for _ in range(3)]
            assert len(set(one.train)) == 6
        for one in sessions:
            assert [item.label for item in one.test] == [label for label in one.labels for _ in range(3)]
            assert one.classnames == [f"class {label}" for label in one.labels]

    def test_the_draw(self) -> None:
        """By seed, and of a class whatever the others are."""
        assert self.cut() == self.cut()
        assert self.cut() != self.cut(seed=2)
        small, large = self.cut(), self.cut(way=3)
        assert small[1].train == large[1].train[:6]

    def test_refusals(self) -> None:
        with pytest.raises(UserError, match=r"10 classes .* FSCIL.WAY 4"):
            self.cut(way=4)
        with pytest.raises(UserError, match="not as many"):
            label_ranges(3, Cut(4, 1, 1))
        with pytest.raises(UserError, match=r"FSCIL.SHOTS is 7, but the class class 4 has 6"):
            self.cut(shots=7)
        assert len(self.cut(shots=7, fewer=True)[1].train) == 12
        with pytest.raises(UserError, match=r"classes of session 2 \(labels 6 to 7\)"):
            cut_into_sessions(Data(), [item for item in self.test if item.label not in (6, 7)], Cut(4, 2, 3))
        with pytest.raises(UserError, match=r"FSCIL.SPLIT is cec, but no images of Data"):
            self.cut(split="cec")
        with pytest.raises(UserError, match="Did you mean random"):
            self.cut(split="randon")


ROWS = [
    incremental.Row(60, (90,), (100,)),
    incremental.Row(65, (80, 15), (100, 20)),
    incremental.Row(70, (85, 10, 6), (100, 20, 20)),
]


class TestReport:
    def test_figures(self) -> None:
        told = incremental.summary(ROWS)
        assert [one["accuracy"] for one in told["sessions"]] == pytest.approx([90, 95 / 1.2, 101 / 1.4])
        last = told["sessions"][-1]
        assert last["base"] == 85
        assert last["novel_sessions"] == [50, 30]
        assert last["novel"] == 40
        assert last["harmonic_mean"] == pytest.approx(2 * 85 * 40 / 125)
        assert last["forgetting"] == [5, 25]  # base was best in session 0, session 1 in itself
        assert last["mean_forgetting"] == 15
        assert told["sessions"][0]["novel"] is None
        assert told["mean"] == pytest.approx((90 + 95 / 1.2 + 101 / 1.4) / 3)
        assert told["pd"] == pytest.approx(90 - 101 / 1.4)

    def test_forgetting_is_from_the_best_session(self) -> None:
        """Base is best in the middle, and so is session 1."""
        rows = [
            incremental.Row(60, (70,), (100,)),
            incremental.Row(65, (90, 10), (100, 20)),
            incremental.Row(70, (60, 16, 6), (100, 20, 20)),
            incremental.Row(75, (75, 12, 8, 20), (100, 20, 20, 20)),
        ]
        assert [incremental.forgetting(rows, at) for at in range(4)] == [[], [-20], [30, -30], [15, 20, -10]]

    def test_text_and_csv(self) -> None:
        text = incremental.text_table(ROWS)
        assert "session  classes" in text
        assert "forgetting after the last session: base 5.00, s1 25.00" in text
        lines = incremental.csv_text(ROWS).splitlines()
        assert lines[0] == "session,classes,all,base,s1,s2,novel,H,forgetting,f_base,f_s1"
        assert lines[1] == "0,60,90.0000,90.0000,,,,,,,"
        assert lines[2].endswith(",10.0000,10.0000,")
        assert lines[3].startswith("2,70,72.1429,85.0000,50.0000,30.0000,40.0000,")
        assert lines[3].endswith(",15.0000,5.0000,25.0000")
        assert {line.count(",") for line in lines} == {10}
        assert incremental.summary_csv(ROWS).splitlines() == [
            "sessions,mean,PD,base,novel,H,forgetting",
            "3,80.4365,17.8571,85.0000,40.0000,54.4000,15.0000",
        ]
        assert incremental.summary_csv(ROWS[:1]).splitlines()[1] == "1,90.0000,0.0000,90.0000,,,"


CUT = {"base": 60, "way": 5, "shots": 5, "split": "cec"}
PAPER = {"backbone": "ViT-L/14", "fscil": CUT}  # the paper's setting


def write_run(folder: Path, method: str, seed: int = 1, count: int = 9, **changes: Any) -> None:
    """Write the results of a run on CIFAR-100 whose accuracy falls by one in every session."""
    sessions = [{"session": number, "accuracy": 90.0 - number + seed} for number in range(count)]
    metrics = {"accuracy": sessions[-1]["accuracy"], "base_accuracy": 80.0, "new_accuracy": 40.0}
    metrics |= {"harmonic_mean": 160 / 3, "mean_forgetting": 3.0}
    told = {"trainer": "CoCoAMixFSCIL", "method": method, "dataset": "CIFAR100FSCIL", "subset": "all"}
    told |= {"protocol": PAPER}
    told |= {"seed": seed, "sessions": sessions, "metrics": metrics, **changes}
    write_results(folder / f"seed{seed}", 80.0, **told)


class TestCurves:
    def lines(self, folder: Path) -> dict[str, dict[str, float | None]]:
        (section,) = curves.read([folder]).sections
        (table,) = section.tables
        return {
            line.label: {column.key: value.mean for column, value in zip(table.columns, line.values, strict=True)}
            for line in table.lines
        }

    def notes(self, folder: Path) -> str:
        report = curves.read([folder])
        return " ".join([*report.notes, *(note for section in report.sections for note in section.notes)])

    def test_methods_and_seeds(self, tmp_path: Path) -> None:
        for seed in (1, 2):
            write_run(tmp_path / "a", "A", seed)
        write_run(tmp_path / "b", "B", protocol={**PAPER, "backbone": "ViT-L/14"})
        found = self.lines(tmp_path)
        assert found["A"]["session_8"] == 83.5
        assert found["A"]["mean"] == 87.5
        assert found["B"]["PD"] == 8
        wanted = {"base_accuracy": 80, "new_accuracy": 40, "harmonic_mean": 160 / 3, "mean_forgetting": 3}
        assert {key: found["B"][key] for key in wanted} == pytest.approx(wanted)

    def test_published_lines_are_of_the_paper(self, tmp_path: Path) -> None:
        write_run(tmp_path, "A")
        found = {name: line for name, line in self.lines(tmp_path).items() if name.endswith(" (paper)")}
        assert len(found) == 6
        assert found["CoCoA-Mix (paper)"]["session_8"] == 80.8
        assert found["CLIP-ZSL (paper)"]["mean"] == 77.9
        for name, line in found.items():
            if name != "CLIP-ZSL (paper)":
                sessions = [line[f"session_{number}"] for number in range(9)]
                assert line["PD"] == pytest.approx(sessions[0] - sessions[-1], abs=0.06)
                assert line["mean"] == pytest.approx(sum(sessions) / 9, abs=0.06)
        assert "printed figures of CoCoA-Mix" in self.notes(tmp_path)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"protocol": {**PAPER, "fscil": {**CUT, "split": "random"}}}, "fscil.split is random here, cec there"),
            ({"protocol": {**PAPER, "fscil": {**CUT, "shots": 10}}}, "fscil.shots is 10 here, 5 there"),
            ({"protocol": {**PAPER, "backbone": "ViT-B/16"}}, "backbone is ViT-B/16 here, ViT-L/14 there"),
            ({"protocol": {"backbone": "ViT-L/14"}}, "fscil.split is not said here, cec there"),
            ({"count": 4}, "there are 4 sessions here, 9 there"),
            ({"dataset": "Shapes"}, "The paper has no figures for Shapes"),
        ],
    )
    def test_published_lines_stand_beside_their_setting_alone(
        self, tmp_path: Path, changes: dict[str, Any], said: str
    ) -> None:
        write_run(tmp_path, "A", **changes)
        assert list(self.lines(tmp_path)) == ["A"]
        assert said in self.notes(tmp_path)

    def test_seeds_of_other_settings_are_not_averaged(self, tmp_path: Path) -> None:
        for seed, rate in ((1, 0.002), (2, 0.01)):
            write_run(tmp_path, "A", seed, config={"OPTIM": {"LR": rate}})
        own = [name for name in self.lines(tmp_path) if "paper" not in name]
        assert own == ["A [LR=0.002]", "A [LR=0.01]"]
        assert "OPTIM.LR is 0.002 in" in self.notes(tmp_path)

    def test_other_models_and_cuts_have_tables_of_their_own(self, tmp_path: Path) -> None:
        write_run(tmp_path / "a", "A")
        write_run(tmp_path / "b", "B", protocol={"backbone": "RN50", "fscil": {**CUT, "way": 10}})
        (section,) = curves.read([tmp_path]).sections
        assert [table.title for table in section.tables] == [
            "CIFAR100 (backbone ViT-L/14, fscil.way 5)",
            "CIFAR100 (backbone RN50, fscil.way 10)",
        ]
        assert len({table.key for table in section.tables}) == 2

    def test_shorter_runs_have_no_mean(self, tmp_path: Path) -> None:
        write_run(tmp_path, "A", 1, count=4)
        write_run(tmp_path, "B", 2, config={"SEED": 2})
        found = self.lines(tmp_path)
        assert found["A"]["session_3"] == 88
        assert found["A"]["mean"] is found["A"]["base_accuracy"] is None
        assert found["B"]["mean"] == 88

    def test_command(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        for seed in (1, 2):
            write_run(tmp_path / "runs", "A", seed, dataset="Shapes")
        original = builtins.__import__

        def without_matplotlib(name: str, *rest: Any, **more: Any) -> Any:
            if name.startswith("matplotlib"):
                raise ImportError(name)
            return original(name, *rest, **more)

        monkeypatch.setattr(builtins, "__import__", without_matplotlib)
        stem = tmp_path / "my.run.v1"
        assert curves.main([str(tmp_path / "runs"), "--out", str(stem)]) == 0
        assert "matplotlib is not installed" in capsys.readouterr().out
        written = sorted(path.name for path in tmp_path.glob("my*"))
        assert written == ["my.run.v1.csv", "my.run.v1.json", "my.run.v1.md"]
        assert "91.50 ± 0.50" in Path(f"{stem}.md").read_text()
        assert json.loads(Path(f"{stem}.json").read_text())["sections"][0]["key"] == "fscil"

    def test_command_without_runs(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert curves.main([str(tmp_path / "nothing")]) == 2
        write_results(tmp_path / "other", 80.0)
        assert curves.main([str(tmp_path)]) == 2
        assert "There is no run in sessions below" in capsys.readouterr().err
        (tmp_path / "other" / "results.json").write_text('{"finished": true}')
        assert curves.main([str(tmp_path)]) == 2
        assert "results.json cannot be used (it has no 'trainer')" in capsys.readouterr().err

    def test_plot(self, tmp_path: Path) -> None:
        plots = pytest.importorskip("cocoamix.report.plots")
        for seed in (1, 2):
            write_run(tmp_path, "A", seed)
        (section,) = curves.read([tmp_path]).sections
        (chart,) = section.charts
        figure = plots.draw(chart)
        labels = [text.get_text() for text in figure.legends[0].get_texts()]
        assert labels[0] == "A"
        assert sorted(labels[1:]) == [
            *("CoCoA-Mix (paper)", "CoOp-FSCIL (paper)", "FACT w/ CLIP (paper)", "FSPT-FSCIL (paper)", "L2P (paper)"),
        ]
        assert chart.title == "CIFAR100, ViT-L/14"
        assert curves.main([str(tmp_path), "--out", str(tmp_path / "plot")]) == 0
        assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")

    def test_plot_of_one_run(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Of the folder itself, whatever else is below it."""
        pytest.importorskip("matplotlib")
        write_run(tmp_path, "A", 1)
        write_run(tmp_path / "seed1", "B", 2, dataset="Shapes")
        assert curves.draw_run(tmp_path / "seed1", tmp_path / "plot.png")
        assert "Shapes" not in capsys.readouterr().out
        assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")

"""The mixture over sessions, its cut of the classes, and what is reported of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from cocoamix import curves, incremental
from cocoamix.errors import UserError
from cocoamix.fscil import SessionWeights, mixed_features, session_owners, session_weights
from cocoamix.mixture import mix
from cocoamix.sessions import Cut, cut_into_sessions, label_ranges


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

    def test_without_out_classes(self) -> None:
        weights = SessionWeights(100.0, tied=True)
        assert [name for name, _ in weights.named_parameters()] == ["inside"]
        with torch.no_grad():
            weights.inside.fill_(2.0)
        assert torch.equal(*weights.relative())

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

    def test_text_and_csv(self) -> None:
        text = incremental.text_table(ROWS)
        assert "session  classes" in text
        assert "forgetting after the last session: base 5.00, s1 25.00" in text
        lines = incremental.csv_text(ROWS).splitlines()
        assert lines[0] == "session,classes,all,base,s1,s2,novel,H,forgetting"
        assert lines[1] == "0,60,90.0000,90.0000,,,,,"
        assert lines[3].startswith("2,70,72.1429,85.0000,50.0000,30.0000,40.0000,")


def report(method: str, seed: int = 1, dataset: str = "Shapes", **fscil: Any) -> dict[str, Any]:
    cut = {"base": 60, "way": 5, "shots": 5, "split": "random", **fscil}
    told = {"method": method, "dataset": dataset, "backbone": "tiny", "seed": seed, "fscil": cut, "finished": True}
    return {**told, **incremental.summary(ROWS)}


class TestCurves:
    def test_published_lines_are_of_the_paper_and_only_beside_its_sessions(self) -> None:
        lines = curves.published_lines(report("x", dataset="CIFAR100FSCIL"))
        assert lines["CoCoA-Mix"]["sessions"][-1] == 80.8
        for line in lines.values():
            if "sessions" in line:
                assert len(line["sessions"]) == 9
                assert line["PD"] == pytest.approx(line["sessions"][0] - line["sessions"][-1], abs=0.06)
                assert line["mean"] == pytest.approx(sum(line["sessions"]) / 9, abs=0.06)
        assert not curves.published_lines(report("x"))
        assert not curves.published_lines(report("x", dataset="CIFAR100FSCIL", shots=10))

    def test_table(self) -> None:
        groups = curves.by_method([report("A", 1), report("A", 2), report("B")])
        lines = curves.table(groups)
        assert [line[0] for line in lines] == ["method", "A", "B"]
        assert lines[1][1] == "90.00 ± 0.00"
        assert lines[2][-2] == "54.40"
        whole = lines + curves.published_table({"C": {"mean": 77.9}}, 3)
        assert len({len(line) for line in whole}) == 1

    def test_refuses_what_does_not_compare(self) -> None:
        with pytest.raises(UserError, match="dataset is Shapes in one and Night"):
            curves.by_method([report("A"), report("B", dataset="Night")])
        with pytest.raises(UserError, match="several runs of one seed"):
            curves.by_method([report("A"), report("A")])

    def test_command(self, tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        import builtins
        import json

        for seed in (1, 2):
            (tmp_path / f"seed{seed}").mkdir()
            (tmp_path / f"seed{seed}" / "fscil.json").write_text(json.dumps(report("A", seed)))
        original = builtins.__import__

        def without_matplotlib(name: str, *rest: Any, **more: Any) -> Any:
            if name.startswith("matplotlib"):
                raise ImportError(name)
            return original(name, *rest, **more)

        monkeypatch.setattr(builtins, "__import__", without_matplotlib)
        assert curves.main([str(tmp_path), "--out", str(tmp_path / "curves")]) == 0
        assert "matplotlib is not installed" in capsys.readouterr().out
        assert "90.00 ± 0.00" in (tmp_path / "curves.md").read_text()
        assert (tmp_path / "curves.csv").is_file()
        assert not (tmp_path / "curves.png").exists()
        assert curves.main([str(tmp_path / "nothing")]) == 2

    def test_plot(self, tmp_path: Any) -> None:
        pytest.importorskip("matplotlib")
        runs = [report("A", seed, dataset="CIFAR100FSCIL") for seed in (1, 2)]
        assert curves.try_to_draw(runs, tmp_path / "plot.png")
        assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")

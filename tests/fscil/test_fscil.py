"""The mixture over sessions, its sets of classes, and its report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from cocoamix.coa.mixture import mix_text, weights_of_kind
from cocoamix.errors import UserError
from cocoamix.fscil import metrics as incremental
from cocoamix.fscil.mixture import SessionWeights, session_owners
from cocoamix.fscil.split import SessionSplit, label_ranges, split_into_sessions


def log_weights(sessions: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(sessions)
    return torch.randn(sessions, generator=draw), torch.randn(sessions, generator=draw)


class TestWeights:
    @pytest.mark.parametrize("kind", ["coa", "uniform", "none"])
    @pytest.mark.parametrize("sessions", range(1, 10))
    def test_sum_to_one(self, kind: str, sessions: int) -> None:
        owner = session_owners([60, *[5] * (sessions - 1)])
        pi = weights_of_kind(kind, *log_weights(sessions), owner)
        assert pi.shape == (sessions + 1, 60 + 5 * (sessions - 1))
        assert torch.allclose(pi.sum(dim=0), torch.ones(pi.shape[1]), atol=1e-6)
        assert (pi >= 0).all()
        assert (pi[0] > 0).all() == (kind != "none")  # the hand-crafted prompt is always in the mixture

    def test_only_the_new_session_is_trained(self) -> None:
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

    def test_weights_of_earlier_sessions_have_no_gradient(self) -> None:
        earlier = [(torch.tensor(0.3, requires_grad=True), torch.tensor(-0.7, requires_grad=True))]
        weights = SessionWeights(100.0, earlier)
        assert not weights.earlier_inside.requires_grad
        assert torch.equal(*SessionWeights(100.0, tied=True).relative())
        assert [tuple(side.detach().tolist()) for side in weights.relative()] == [
            (pytest.approx(0.3), 0.0),
            (pytest.approx(-0.7), 0.0),
        ]

    def test_an_unknown_mixture_is_refused(self) -> None:
        with pytest.raises(UserError, match=r"^ENSEMBLE is 'mean'"):
            weights_of_kind("mean", *log_weights(2), session_owners([1, 1]))

    @pytest.mark.parametrize("kind", ["coa", "uniform", "none"])
    def test_weights_are_made_on_the_device_of_the_classes(self, kind: str) -> None:
        inside, outside = (side.to("meta") for side in log_weights(2))
        assert weights_of_kind(kind, inside, outside, session_owners([2, 1]).to("meta")).device.type == "meta"

    def test_mixed_features_are_in_full_precision(self) -> None:
        text, pi = torch.ones(2, 3, 4).half(), torch.full((2, 3), 0.5, dtype=torch.float64)
        assert mix_text(text, pi).dtype == torch.float32
        assert mix_text(text, pi.half()).dtype == torch.float32


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


class TestSplit:
    test = tuple(Item(label, 100 + number) for label in range(10) for number in range(3))

    def split(self, **changes: Any) -> Any:
        return split_into_sessions(
            Data(), self.test, SessionSplit(**{"base": 4, "way": 2, "shots": 3, "seed": 1, **changes})
        )

    def test_sessions_divide_classes_and_images(self) -> None:
        sessions = self.split()
        assert [list(one.labels) for one in sessions] == [[0, 1, 2, 3], [4, 5], [6, 7], [8, 9]]
        assert [one.seen for one in sessions] == [4, 6, 8, 10]
        assert len(sessions[0].train) == 24
        for one in sessions[1:]:
            assert [item.label for item in one.train] == [label for label in one.labels for _ in range(3)]
            assert len(set(one.train)) == 6
        for one in sessions:
            assert [item.label for item in one.test] == [label for label in one.labels for _ in range(3)]
            assert one.classnames == [f"class {label}" for label in one.labels]

    def test_draw_depends_only_on_the_seed_and_the_class(self) -> None:
        """The images of a class do not depend on other classes."""
        assert self.split() == self.split()
        assert self.split() != self.split(seed=2)
        small, large = self.split(), self.split(way=3)
        assert small[1].train == large[1].train[:6]

    def test_invalid_splits_are_refused(self) -> None:
        with pytest.raises(UserError, match=r"10 classes .* FSCIL.WAY 4"):
            self.split(way=4)
        with pytest.raises(UserError, match="there are too few"):
            label_ranges(3, SessionSplit(4, 1, 1))
        with pytest.raises(UserError, match=r"FSCIL.SHOTS is 7, but the class class 4 has 6"):
            self.split(shots=7)
        assert len(self.split(shots=7, fewer=True)[1].train) == 12
        with pytest.raises(UserError, match=r"classes of session 2 \(class 6, class 7\)"):
            split_into_sessions(Data(), [item for item in self.test if item.label not in (6, 7)], SessionSplit(4, 2, 3))
        with pytest.raises(UserError, match=r"FSCIL.SPLIT is cec, but Data"):
            self.split(split="cec")
        with pytest.raises(UserError, match="Did you mean random"):
            self.split(split="randon")


ROWS = [
    incremental.Row(60, (90,), (100,)),
    incremental.Row(65, (80, 15), (100, 20)),
    incremental.Row(70, (85, 10, 6), (100, 20, 20)),
]


class TestReport:
    def test_summary_matches_manual_calculation(self) -> None:
        summary = incremental.summary(ROWS)
        assert [one["accuracy"] for one in summary["sessions"]] == pytest.approx([90, 95 / 1.2, 101 / 1.4])
        last = summary["sessions"][-1]
        assert last["base"] == 85
        assert last["novel_sessions"] == [50, 30]
        assert last["novel"] == 40
        assert last["harmonic_mean"] == pytest.approx(2 * 85 * 40 / 125)
        assert last["forgetting"] == [5, 25]  # base was best in session 0, session 1 in session 1
        assert last["mean_forgetting"] == 15
        assert summary["sessions"][0]["novel"] is None
        assert summary["mean"] == pytest.approx((90 + 95 / 1.2 + 101 / 1.4) / 3)
        assert summary["pd"] == pytest.approx(90 - 101 / 1.4)

    def test_forgetting_is_measured_from_the_best_session(self) -> None:
        """Base is best in the middle, and so is session 1; but PD is the first accuracy minus the last."""
        rows = [
            incremental.Row(60, (70,), (100,)),
            incremental.Row(65, (90, 10), (100, 20)),
            incremental.Row(70, (60, 16, 6), (100, 20, 20)),
            incremental.Row(75, (75, 12, 8, 20), (100, 20, 20, 20)),
        ]
        assert [incremental.forgetting(rows, at) for at in range(4)] == [[], [-20], [30, -30], [15, 20, -10]]
        first, *_, last = (row.accuracy for row in rows)
        assert first < max(row.accuracy for row in rows)
        assert incremental.summary(rows)["pd"] == pytest.approx(first - last)

    def test_text_table_shows_the_summary(self) -> None:
        lines = incremental.text_table(ROWS).splitlines()
        assert lines[0].split() == ["session", "classes", "all", "base", "s1", "s2", "novel", "H", "forgetting"]
        assert lines[1].split() == ["0", "60", "90.00", "90.00"]
        assert lines[3].split() == ["2", "70", "72.14", "85.00", "50.00", "30.00", "40.00", "54.40", "15.00"]
        assert lines[4] == "mean 80.44, PD 17.86 (first minus last)"
        assert lines[5] == "forgetting after the last session: base 5.00, s1 25.00"
        assert "forgetting after" not in incremental.text_table(ROWS[:1])

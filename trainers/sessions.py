"""The loop of class-incremental learning: session after session, each on its own images alone.

A method defines what it builds for a session (`build_prompts`, with `classnames` those of the session) and, for the
evaluation, `classifier`. What a session learned is kept in `sessions/session-<n>.pth`; of the images of an earlier
session nothing is read again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from dassl.evaluation import build_evaluator
from torch import Tensor

from cocoamix import calibration, curves, incremental
from cocoamix.errors import UserError
from cocoamix.files import write_json, write_text
from cocoamix.registry import plain_name
from cocoamix.sessions import Session

from . import protocol
from .saving import trained
from .session_saving import SessionSaving

REPORT = "fscil"  # stem of the report's files


class SessionTrainer(SessionSaving):
    """A trainer that goes through sessions."""

    def title(self) -> str:
        """Return the method's name in tables and plots."""
        return type(self).__name__

    def classifier(self, session: int) -> Tensor:
        """Return (C, embedding) vectors of all classes seen up to `session`, by what was learned up to it.

        Their products with image features, times CLIP's scale, are the logits.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no classifier")

    # ------------------------------------------------------------------ training

    def build_model(self) -> None:
        self.kept, self.origins = [], []
        self.rows: list[incremental.Row] = []  # their evaluations
        super().build_model()

    def begin(self, number: int) -> None:
        """Make session `number` the present one. The first is built with the trainer."""
        shown = self.sessions[number]
        print(
            f"** Session {number} of {len(self.sessions) - 1}: {len(shown.classnames)} classes, {len(shown.train):,} "
            f"images **"
        )
        if number != self.session:
            self.session = number
            self._show_session()
            self.build_session()

    def train(self) -> None:  # type: ignore[override]
        """Go through the sessions that are not finished."""
        self._began = time.time()
        self.kept = self._finished()
        if not self._models or len(self.kept) > self.last_session:
            self.session = self.last_session
            if self._models:
                print(f"All sessions up to {self.last_session} are finished")
            self._finish()
            return
        for number in range(len(self.kept), self.last_session + 1):
            self.begin(number)
            super().train()

    def after_train(self) -> None:
        found = {name: trained(model) for name, model in self._models.items()}
        self.kept.append({name: {key: value.clone() for key, value in one.items()} for name, one in found.items()})
        self.origins.append(self.provenance())
        if self.session == self.last_session:
            self._finish()
        elif not self.cfg.TEST.NO_TEST:
            self.test()

    def _finish(self) -> None:
        self.time_start = self._began  # of all sessions
        super().after_train()

    def write_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
        super().write_scalar(f"session{self.session}/{tag}", scalar_value, global_step)

    # ------------------------------------------------------------------ evaluation

    @torch.no_grad()
    def test(self, split: str | None = None) -> float:
        """Evaluate the sessions that are not evaluated yet, each on all classes seen up to it, in one pass."""
        name = split or self.cfg.TEST.SPLIT
        due = range(len(self.rows), self.session + 1)
        print(f"Evaluate on the *{name}* set after session{'s' if len(due) > 1 else ''} {_listed(due)}")
        self.set_model_mode("eval")
        start = time.monotonic()
        classifiers = {number: self.classifier(number) for number in due}
        evaluators = {number: build_evaluator(self.cfg, lab2cname=self.lab2cname) for number in due}
        hits = {number: [0] * (number + 1) for number in due}
        parts: dict[int, list[calibration.Predictions]] = {number: [] for number in due}
        for block, loader in enumerate(self._tests[: self.session + 1]):
            for inputs, labels in self.batches_of(loader, name):
                features = self.encode(inputs)
                for number in due[max(0, block - due.start) :]:
                    logits = self.logits(features, classifiers[number])
                    if not torch.isfinite(logits).all():
                        raise UserError(f"The logits after session {number} are not finite: the model has diverged.")
                    evaluators[number].process(logits, labels)
                    parts[number].append(calibration.predict(logits, labels))
                    hits[number][block] += int(parts[number][-1].correct.sum())
        images_of = [self._readable(session) for session in self.sessions]
        metrics: dict[str, float] = {}
        for number in due:
            seen = self.sessions[number].seen
            print(f"After session {number}, {seen} classes:")
            metrics = dict(evaluators[number].evaluate())
            confidence = self.tell(calibration.confidence_metrics(calibration.join(parts[number])))
            metrics.update(confidence)
            images_so_far = tuple(images_of[: number + 1])
            self.rows.append(incremental.Row(seen, tuple(hits[number]), images_so_far, confidence))
            for key, value in {"accuracy": self.rows[-1].accuracy, **confidence}.items():
                super().write_scalar(f"{name}/{key}", value, number)
        dataset = plain_name(self.cfg.DATASET.NAME)
        text = f"{self.title()} on {dataset}, accuracy (%)\n\n{incremental.text_table(self.rows)}"
        print(f"\n{text}")
        if not self._is_shorter():
            self._write_report(text)
            if self.session == self.last_session:
                self.num_classes = self.sessions[self.session].seen
                self._write_results(name, {**metrics, **self._last_metrics()}, time.monotonic() - start)
                curves.draw_run(Path(self.output_dir), Path(self.output_dir, f"{REPORT}.png"))
        return self.rows[-1].accuracy

    def _readable(self, session: Session) -> int:
        return sum(item.impath not in self.unreadable for item in session.test)

    def _last_metrics(self) -> dict[str, float]:
        last, told = self.rows[-1], incremental.summary(self.rows)
        found = {
            "accuracy": last.accuracy,
            "mean_accuracy": told["mean"],
            "pd": told["pd"],
            "base_accuracy": last.blocks[0],
            "new_accuracy": last.novel,
            "harmonic_mean": last.harmonic_mean,
            "mean_forgetting": told["sessions"][-1]["mean_forgetting"],
        }
        return {key: value for key, value in found.items() if value is not None}

    @property
    def finished(self) -> bool:
        """Whether all sessions of the cut are evaluated, not only those up to FSCIL.LAST_SESSION."""
        return len(self.rows) == len(self.sessions)

    def _run_facts(self) -> dict[str, Any]:
        """Return what the report tells of the run. Reports that agree in it differ in their length alone."""
        return {
            "method": self.title(),
            "dataset": plain_name(self.cfg.DATASET.NAME),
            "backbone": self.clip.name,
            "seed": self.seed,
            "fscil": self.protocol["fscil"],
            "fingerprint": protocol.fingerprint(self.protocol),
            "settings": protocol.digest(protocol.training_settings(self.cfg, self.section)),
        }

    def _is_shorter(self) -> bool:
        """Say whether the folder has a report of the same run over more sessions, which then stays."""
        path = Path(self.output_dir, f"{REPORT}.json")
        try:
            there = json.loads(path.read_text(encoding="utf-8"))
            count = len(there["sessions"])
            same = all(there[key] == value for key, value in self._run_facts().items())
        except (OSError, ValueError, KeyError, TypeError):
            return False
        if same and count > len(self.rows):
            print(f"The reports in {self.output_dir} are of {count} sessions of this run; they stay as they are")
        return bool(same and count > len(self.rows))

    def _write_report(self, text: str) -> None:
        told = {**self._run_facts(), **incremental.summary(self.rows), "finished": self.finished}
        for name, content in (
            (f"{REPORT}.txt", text),
            (f"{REPORT}.csv", incremental.csv_text(self.rows)),
            (f"{REPORT}_summary.csv", incremental.summary_csv(self.rows)),
        ):
            write_text(Path(self.output_dir, name), content)
        write_json(Path(self.output_dir, f"{REPORT}.json"), told)

    def evaluated_items(self, split: str) -> Sequence[Any]:
        return [item for session in self.sessions[: self.session + 1] for item in session.test]

    def count_training_images(self) -> int:
        return sum(len(session.train) for session in self.sessions[: self.session + 1])

    def more_results(self) -> dict[str, Any]:
        told = {"method": self.title(), "finished": self.finished, **incremental.summary(self.rows)}
        return {**super().more_results(), **told}


def _listed(numbers: range) -> str:
    return str(numbers.start) if len(numbers) == 1 else f"{numbers.start} to {numbers.stop - 1}"

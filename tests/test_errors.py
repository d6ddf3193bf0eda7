"""Messages: short and harmless, whatever the bad value is."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from cocoamix.errors import CombinedUserError, UserError, brief, check_choice, nearest, printable, some_of
from cocoamix.io.texts import UnreadableError
from cocoamix.run.results import ResultsError


def test_messages_cannot_inject_terminal_escapes() -> None:
    message = str(UserError("The file a\x1b[2Jb\u202ec\ud800 is wrong.\n"))
    assert message == "The file a\\x1b[2Jb\\u202ec\\ud800 is wrong.\\n"
    assert printable("Köln, 北京 and \N{NO-BREAK SPACE}") == "Köln, 北京 and \N{NO-BREAK SPACE}"


def test_a_long_word_is_shortened_in_the_middle() -> None:
    message = str(UserError(f"It is {'x' * 5000}, which is wrong. Delete it."))
    assert len(message) < 200
    assert message.endswith(", which is wrong. Delete it.")
    path = "/".join(["folder"] * 30)
    assert path in str(UserError(f"There is no {path}."))


def test_values_are_abbreviated() -> None:
    for value in (10**399, 10**5000, "x" * 300, list(range(1000)), {"a": "y" * 999}):
        assert len(brief(value)) < 200


def test_a_value_that_contains_itself_is_abbreviated() -> None:
    value: list[Any] = []
    for _ in range(60):
        value = [value, value]
    assert len(brief(value)) < 200


def test_unknown_choice_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match=r"K is 10000.*, which is not known. Known: a, b\.$") as raised:
        check_choice("K", 10**399, ("a", "b"))
    assert len(str(raised.value)) < 200
    with pytest.raises(UserError, match=r"Did you mean CoOp\? Known: CoOp, KgCoOp\."):
        check_choice("K", "coop", ("cocoamix.CoOp", "CoOp", "KgCoOp"))
    assert nearest("x" * 300, ["x" * 299]) == ""


def test_long_lists_say_how_many_are_omitted() -> None:
    assert some_of(["a", "b"]) == "a, b"
    listed = some_of([f"name{number}" for number in range(1000)], 50)
    assert len(listed) < 80
    assert listed.endswith(" more")


def options(*words: str) -> list[str]:
    return ["--trainer", "CoOp", "DATASET.NAME", "EuroSAT", *words]


@pytest.mark.parametrize(
    "words",
    [
        ["--seed", "9" * 400],
        ["--seed", "9" * 5000],
        ["--trainer", "x" * 300],
        ["--backbone", "\x1b[31m"],
        options("OPTIM.LR", "9" * 400),
        options("OPTIM.LR", "x" * 300),
        options("OPTIM.MAX_EPOCH", "1e999"),
        options("DATASET.NUM_SHOTS", "[" * 300),
        options("x" * 300, "1"),
        options("\ud800", "1"),
        ["--config-file", "x" * 300],
        ["--config-file", "a\0b"],
    ],
    ids=range(12),
)
def test_very_long_options_give_short_messages(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    from cocoamix.train_command import main

    try:
        status = main(words)
    except SystemExit as end:
        status = int(str(end.code))
    printed = capsys.readouterr().err
    assert status == 2
    assert printed.startswith("error: ")
    assert len(printed) < 700
    assert printed.count("\n") == 1
    assert "\x1b" not in printed


def test_errors_survive_pickling() -> None:
    for error in (
        UserError("one"),
        CombinedUserError("several:", ["one", "two"]),
        UnreadableError("file", "is missing"),
        ResultsError(Path("results.json"), "it is malformed"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))

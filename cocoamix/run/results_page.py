"""Generates docs/RESULTS.md from the fields of `cocoamix.run.results`.

python -m cocoamix.run.results_page > docs/RESULTS.md
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from cocoamix.io.plain import NAMES, split_optional

from .data_record import DataRecord, RunData
from .results import VERSION, HeldOut, ModelFile, Results, SecondStage, Session, Weights

HEAD = f"""# results.json

Every evaluation writes `results.json` to the output folder of its run. The report, `cocoamix bench` and the scripts
read it. Your own code can read it as well, without torch:

```python
from cocoamix.run.results import Results

results = Results.read("output/run/results.json")
print(results.version, results.metrics["accuracy"], results.config["OPTIM"]["LR"])
```

- The file is written atomically. If the folder already has results of another evaluation (another trainer, seed,
  protocol or split), they are renamed to `results.json-<time>`.
- This page describes version {VERSION}, which added the key `version`. Files without it have version 1 and can still be
  read. A version newer than the code is an error.
- A key followed by a question mark is optional: it is omitted if it does not apply. Keys that are not on this page,
  such as those of your own trainer, are in `Results.extra`.

This page is generated: `python -m cocoamix.run.results_page > docs/RESULTS.md`.
"""

_KINDS = (Results, RunData, DataRecord, ModelFile, Weights, SecondStage, HeldOut, Session)


def render() -> str:
    """Return the page."""
    return "\n".join([HEAD, *(_section(kind) for kind in _KINDS)])


def _section(kind: type[Any]) -> str:
    hints = get_type_hints(kind)
    title, about = "Keys" if kind is Results else kind.__name__, " ".join((kind.__doc__ or "").split())
    lines = [f"## {title}", "", about, "", "| key | value | what it is |", "|---|---|---|"]
    for one in fields(kind):
        if one.name != "extra":  # not a key of the file
            optional = one.default is None
            value = _name(hints[one.name])
            if not optional and split_optional(hints[one.name])[1]:
                value += " or null"
            lines.append(f"| `{one.name}`{'?' * optional} | {value} | {one.metadata['about']} |")
    return "\n".join(lines) + "\n"


def _name(hint: Any, plural: bool = False) -> str:
    """Return the name of a type for the page."""
    hint, _ = split_optional(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    if get_origin(hint) is tuple:
        return f"list{'s' * plural} of {_name(get_args(hint)[0], plural=True)}"
    if get_origin(hint) is Mapping:
        inner = get_args(hint)[1]
        return "object" if inner is Any else f"object of {_name(inner, plural=True)}"
    if hint is bool:
        return NAMES[bool]
    return NAMES[hint].partition(" ")[2] + "s" * plural  # without the article


if __name__ == "__main__":
    sys.stdout.write(render())

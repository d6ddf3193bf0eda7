"""Turns any tree of results, ours or a peer's, into tables and figures: `cocoamix report DIR [DIR ...]`.

The data flows one way: folders -> `read` (runs) -> `rows` (what may be averaged) -> `tables` -> `render_*` and `plots`.
Nothing here imports torch, so that a report starts at once and runs where nothing else is installed.
"""

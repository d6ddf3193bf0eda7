"""Turn a tree of results, ours or those of other code bases, into tables and figures: `cocoamix report DIR [DIR ...]`.

The data flows one way: `readers` (folders to runs) -> `model` (rows of runs that may be averaged, tables, charts) ->
`render`. Nothing here imports torch, so a report starts at once and runs where nothing else is installed.
"""

"""The lab: plans of runs, reports on their results, and figures. It imports the library, never the reverse.

Three ways lead through it, each readable from top to bottom:

    a plan to its runs         plan.py -> runs.py -> runner.py -> worker.py
    a number to its cell       frame.py -> pivots.py -> tables.py -> render.py
    a figure from its command  figures/__init__.py -> figures/<name>.py
"""

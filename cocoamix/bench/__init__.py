"""Run a whole benchmark with one command: the methods, datasets and seeds of a plan, in CoOp's output layout.

    cocoamix bench list                       list the shipped plans
    cocoamix bench run quick                  run a shipped plan
    cocoamix bench run my.yaml --root DATA    run your own plan
    cocoamix bench run base2new --dry-run     only print the commands

Finished runs are not repeated, stopped runs resume, and failed runs are listed at the end with their reasons.
"""

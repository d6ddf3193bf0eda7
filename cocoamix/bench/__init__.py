"""Whole benchmarks in one command: datasets x methods x seeds from a plan, in CoOp's output layout.

    cocoamix bench list                       the plans that are shipped
    cocoamix bench run quick                  a shipped plan
    cocoamix bench run my.yaml --root DATA    your own
    cocoamix bench run base2new --dry-run     print the commands

Finished runs are not repeated, stopped runs resume, and failed runs are listed at the end with the reason.
"""

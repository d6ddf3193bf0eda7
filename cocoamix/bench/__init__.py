"""Whole benchmarks in one command: datasets x methods x seeds from a plan, in CoOp's output layout.

    cocoamix bench list                       the plans that are shipped
    cocoamix bench run quick                  a shipped plan
    cocoamix bench run my.yaml --root DATA    your own
    cocoamix bench run base2new --dry-run     print the commands

What is finished is not repeated, what was stopped resumes, and what fails is listed at the end with the reason.
"""

"""Datasets on this machine: what is there, what is missing, how to get it, and which images a few-shot run uses.

`cocoamix data list|check|download|export|import`. Nothing is downloaded by importing anything.
"""

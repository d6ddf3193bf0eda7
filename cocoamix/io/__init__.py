"""Atomic files, pickles that run no code, the terminal and progress bars."""

"""Files that are written whole or not at all, pickles that run no code, progress bars."""

"""Figures of single runs, drawn from their checkpoints: `python -m cocoamix.figures`."""

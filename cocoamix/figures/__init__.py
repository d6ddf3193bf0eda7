"""Figures of single runs, drawn from their checkpoints: `cocoamix figures`."""

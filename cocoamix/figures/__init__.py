"""The figures of the paper and of this project: `cocoamix figures`."""

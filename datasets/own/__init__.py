"""Datasets of your own: a folder of images, or a table."""

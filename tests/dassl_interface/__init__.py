"""Dassl's public interface as this project uses it. Passes on Dassl itself and on our small version."""

"""Dassl's public interface as used by this project. The tests pass on Dassl itself and on our small version."""

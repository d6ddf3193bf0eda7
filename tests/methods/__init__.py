"""Tests of methods as modules, without trainers."""

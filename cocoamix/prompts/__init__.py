"""Learned parts of the methods: contexts, conditional and multi-modal prompts, pools and heads."""

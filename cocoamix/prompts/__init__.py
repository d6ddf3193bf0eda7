"""What the methods learn: contexts, conditional and multi-modal prompts, and the heads beside them."""

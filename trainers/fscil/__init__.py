"""Few-shot class-incremental learning (FSCIL): the loop over sessions and its methods."""

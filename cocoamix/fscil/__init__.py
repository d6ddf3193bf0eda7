"""Few-shot class-incremental learning: sessions, their files, the mixture over sessions, and metrics."""

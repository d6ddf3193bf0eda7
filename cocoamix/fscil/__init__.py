"""Few-shot class-incremental learning: cutting classes into sessions, the mixture over sessions, metrics."""

"""Class-incremental trainers: the loop over sessions, and its methods."""

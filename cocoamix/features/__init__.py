"""Image features of the frozen encoder: reading images, encoding them once, and the store."""

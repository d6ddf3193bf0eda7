"""Using what a run has trained: labels for images, other classes, exports."""

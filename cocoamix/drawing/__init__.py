"""Draw figures with matplotlib: one style in light and dark colours, and the kinds of charts."""

"""How figures look: one style in light and dark colours, and the kinds of charts, drawn by matplotlib."""

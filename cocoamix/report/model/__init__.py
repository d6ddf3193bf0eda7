"""What a report says, before it is rendered: rows, tables, statistics."""

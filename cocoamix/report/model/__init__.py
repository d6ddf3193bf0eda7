"""The content of a report before it is rendered: rows, tables, statistics."""

"""Render a report as text, Markdown, LaTeX, HTML, CSV, JSON and figures."""

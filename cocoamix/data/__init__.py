"""List, check and download datasets; export and import few-shot draws."""

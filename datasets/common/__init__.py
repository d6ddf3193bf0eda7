"""Code that the datasets share."""

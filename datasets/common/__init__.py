"""What the datasets share."""

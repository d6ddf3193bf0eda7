"""Read runs from results.json, or from the logs and folders of CoOp and of code derived from it."""

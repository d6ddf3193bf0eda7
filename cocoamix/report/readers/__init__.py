"""Reading runs: results.json, and the logs and folders of the CoOp family."""

"""The method of the paper: CoA-loss, out-classes, CoA-weights and the mixture. Read these first."""

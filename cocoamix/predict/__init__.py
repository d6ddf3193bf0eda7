"""Use of trained models: predictions, new classes and exports."""

"""The TensorBoard writer."""

from __future__ import annotations

from typing import Any

from cocoamix.io.screen import detail


def open_writer(log_dir: str) -> Any:
    """Return a TensorBoard writer. If TensorBoard is not installed, print a note and return None."""
    try:
        # Imported here, because it takes seconds and an evaluation does not need it.
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        print("TensorBoard is not installed: scalars are not written. The log has everything.")
        return None
    detail(f"TensorBoard scalars are written to {log_dir}")
    return SummaryWriter(log_dir=log_dir)

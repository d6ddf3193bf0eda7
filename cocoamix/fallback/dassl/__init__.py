"""The part of Dassl's public interface that our trainers and CoOp's use, for machines without Dassl.

Written from the interface: names, arguments and behaviour are Dassl's (0.6.3), the code is our own.
Where Dassl itself is installed it is used, and nothing in this folder is imported.
"""

__version__ = "0.6.3+cocoamix"

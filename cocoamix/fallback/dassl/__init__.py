"""The part of Dassl's public interface that our trainers and CoOp's use, for machines without Dassl.

Names, arguments and behaviour are those of Dassl 0.6.3; the code is our own. If Dassl is installed, it is used instead
of this folder.
"""

__version__ = "0.6.3+cocoamix"

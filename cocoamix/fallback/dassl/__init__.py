"""What our trainers and datasets need of Dassl, where it is not installed: defaults, registries, items and datasets.

Names and behaviour are those of Dassl 0.6.3; the code is our own. Code of others that needs more needs Dassl itself.
"""

__version__ = "0.6.3+cocoamix"

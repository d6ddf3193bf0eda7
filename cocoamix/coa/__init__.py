"""The method of the paper. Read this package first.

- `mixture`: the mixture model, Eq. (3), with in-class and out-class weights (Lemma 3.3)
- `losses`: CoA-loss and L_prompt, Eqs. (8)-(10), and the losses of Appendix E.3
- `weights`: CoA-weights, Eqs. (13)-(15), in the one-stage and two-stage forms of Appendix D.1
- `out_classes`: the generated out-classes of Section 3.4 and Appendix F

`convergence` ends the second stage. `heldout` and `folds`, which fit weights to held-out images, and
`calibration` go beyond the paper. `head` applies the mixture in an evaluation.
"""

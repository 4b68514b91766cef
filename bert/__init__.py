"""The model: BERT for pre-training on packed, unpadded micro-batches.

Shape letters, used as suffixes of tensor names throughout the project (``hidden_TD``):

======  ==================================================
letter  meaning
======  ==================================================
B       samples (sequences) of a micro-batch
T       real tokens of a micro-batch; there is no padding
S       tokens of the longest sample
D       hidden size
N       attention heads
H       size of a head, D / N
M       masked tokens of a micro-batch
V       vocabulary size
L       layers
======  ==================================================

``batch`` packs samples, ``model`` (on ``encoder`` and ``config``) turns a batch into
``loss.PretrainStats``, ``attention`` holds the kernels behind the one attention signature, and
``pretrained`` reads published weights. The package knows nothing of ranks, logs or the files that
samples come from.
"""

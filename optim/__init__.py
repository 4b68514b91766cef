"""Everything between ``backward()`` and the next forward.

``sync`` computes and reduces gradients, ``clipping`` bounds them, ``optimizers`` applies them at
the rate that ``schedule`` gives. Imports torch only; knows nothing of models, data or logs.
"""

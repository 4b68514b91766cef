"""From text to ordered samples: everything that happens before the clock starts.

The stages, in the order in which a corpus passes through them:

1. documents   MediaWiki dump or plain text -> ``documents/part-00000.jsonl``
2. sentences   one sentence a line, an empty line between documents -> ``sentences/part-00000.txt``
3. holdout     the md5 list of the documents kept for the evaluation -> ``evaluation.md5``
4. samples     sentence pairs with static masks -> ``samples/*/part-00000.h5``
5. presort     shuffled, sorted by length, dealt into stripes -> ``train/`` and ``evaluation/``

``order`` then says which samples make up a training step. Nothing here imports torch.
"""

"""Gives examples the partners that augmentations of several images combine them with.

The partners of an example are those that follow it in the stream. So they depend only on the order
of the records, and a run that resumes at the example finds the same ones.
"""

from collections.abc import Sequence

import tensorflow as tf

from object_detection.data.objects import Example
from object_detection.data.pipeline import bad_records
from object_detection.data.pipeline.transform import Stage

# Of an example between two stages: its seed, int64 [2].
SEED = 'seed'


def apply(examples: tf.data.Dataset, stages: Sequence[Stage]) -> tf.data.Dataset:
    """Applies stages of an `ExampleTransform`, after its first one, to a dataset.

    Args:
      examples: what the first stage returned, each with its `SEED`.
      stages: the other stages.

    Returns:
      A dataset of as many examples, in the same order, without `SEED`.
    """
    for number, stage in enumerate(stages, 1):
        is_last = number == len(stages)

        def change(
            example: Example,
            partners: tuple[Example, ...],
            stage: Stage = stage,
            is_last: bool = is_last,
        ) -> Example:
            example = dict(example)
            seed = example.pop(SEED)
            changed = stage.change(example, seed, partners)
            return changed if is_last else {**changed, SEED: seed}

        examples = with_following(examples, stage.num_partners)
        examples = examples.map(change, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    return examples


def with_following(examples: tf.data.Dataset, count: int) -> tf.data.Dataset:
    """Pairs each example with the `count` that follow it: (example, tuple of examples).

    Where the dataset ends before, the example itself is in place of those that are missing. Tensors
    are passed on, not copied.
    """
    blank = bad_records.empty(examples.element_spec), tf.constant(False)
    elements = examples.map(lambda example: (example, tf.constant(True)))
    # The last examples leave the window when as many others have entered it.
    elements = elements.concatenate(tf.data.Dataset.from_tensors(blank).repeat(count))

    def shift(window: tuple, element: tuple) -> tuple[tuple, tuple]:
        return (*window[1:], element), (*window, element)

    def pair(current: tuple, *following: tuple) -> tuple[Example, tuple[Example, ...]]:
        example, _ = current
        partners = [
            tf.cond(is_example, lambda other=other: other, lambda: example)
            for other, is_example in following
        ]
        return example, tuple(partners)

    windows = elements.scan((blank,) * count, shift)
    return windows.filter(lambda current, *following: current[1]).map(pair)

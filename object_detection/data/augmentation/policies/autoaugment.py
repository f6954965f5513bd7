"""Learned policies of changes (AutoAugment), and changes drawn from a list (RandAugment).

"Learning Data Augmentation Strategies for Object Detection", https://arxiv.org/abs/1906.11172, and
"RandAugment", https://arxiv.org/abs/1909.13719. Unlike in their implementations, masks, keypoints
and all other fields of objects follow the changes.
"""

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from object_detection.data.augmentation.choice import draw_below
from object_detection.data.augmentation.policies.operations import (
    NUM_VALUES,
    OPERATIONS,
    Choice,
    Layers,
    apply,
    values_of,
)
from object_detection.data.objects import Example
from object_detection.errors import UserError, expected

# A line is a sub-policy: operations with their probabilities and magnitudes.
_V0 = """
TranslateX_BBox 0.6 4, Equalize 0.8 10
TranslateY_Only_BBoxes 0.2 2, Cutout 0.8 8
Sharpness 0 8, ShearX_BBox 0.4 0
ShearY_BBox 1 2, TranslateY_Only_BBoxes 0.6 6
Rotate_BBox 0.6 10, Color 1 6
"""
_POLICIES = {
    'v0': _V0,
    'v1': _V0
    + """
Color 0 0, ShearX_Only_BBoxes 0.8 4
ShearY_Only_BBoxes 0.8 2, Flip_Only_BBoxes 0 10
Equalize 0.6 10, TranslateX_BBox 0.2 2
Color 1 10, TranslateY_Only_BBoxes 0.4 6
Rotate_BBox 0.8 10, Contrast 0 10
Cutout 0.2 2, Brightness 0.8 10
Color 1 6, Equalize 1 2
Cutout_Only_BBoxes 0.4 6, TranslateY_Only_BBoxes 0.8 2
Color 0.2 8, Rotate_BBox 0.8 10
Sharpness 0.4 4, TranslateY_Only_BBoxes 0 4
Sharpness 1 4, SolarizeAdd 0.4 4
Rotate_BBox 1 8, Sharpness 0.2 8
ShearY_BBox 0.6 10, Equalize_Only_BBoxes 0.6 8
ShearX_BBox 0.2 6, TranslateY_Only_BBoxes 0.2 10
SolarizeAdd 0.6 8, Brightness 0.8 10
""",
    'v2': """
Color 0 6, Cutout 0.6 8, Sharpness 0.4 8
Rotate_BBox 0.4 8, Sharpness 0.4 2, Rotate_BBox 0.8 10
TranslateY_BBox 1 8, AutoContrast 0.8 2
AutoContrast 0.4 6, ShearX_BBox 0.8 8, Brightness 0 10
SolarizeAdd 0.2 6, Contrast 0 10, AutoContrast 0.6 0
Cutout 0.2 0, Solarize 0.8 8, Color 1 4
TranslateY_BBox 0 4, Equalize 0.6 8, Solarize 0 10
TranslateY_BBox 0.2 2, ShearY_BBox 0.8 8, Rotate_BBox 0.8 8
Cutout 0.8 8, Brightness 0.8 8, Cutout 0.2 2
Color 0.8 4, TranslateY_BBox 1 6, Rotate_BBox 0.6 6
Rotate_BBox 0.6 10, BBox_Cutout 1 4, Cutout 0.2 8
Rotate_BBox 0 0, Equalize 0.6 6, ShearY_BBox 0.6 8
Brightness 0.8 8, AutoContrast 0.4 2, Brightness 0.2 2
TranslateY_BBox 0.4 8, Solarize 0.4 6, SolarizeAdd 0.2 10
Contrast 1 10, SolarizeAdd 0.2 8, Equalize 0.2 4
""",
    'v3': """
Posterize 0.8 2, TranslateX_BBox 1 8
BBox_Cutout 0.2 10, Sharpness 1 8
Rotate_BBox 0.6 8, Rotate_BBox 0.8 10
Equalize 0.8 10, AutoContrast 0.2 10
SolarizeAdd 0.2 2, TranslateY_BBox 0.2 8
Sharpness 0 2, Color 0.4 8
Equalize 1 8, TranslateY_BBox 1 8
Posterize 0.6 2, Rotate_BBox 0 10
AutoContrast 0.6 0, Rotate_BBox 1 6
Equalize 0 4, Cutout 0.8 10
Brightness 1 2, TranslateY_BBox 1 6
Contrast 0 2, ShearY_BBox 0.8 0
AutoContrast 0.8 10, Contrast 0.2 10
Rotate_BBox 1 10, Cutout 1 10
SolarizeAdd 0.8 6, Equalize 0.8 8
""",
    'test': """
TranslateX_BBox 1 4, Equalize 1 10
""",
}


def sub_policies(policy_name: str) -> list[list[Choice]]:
    """Returns the sub-policies of a policy."""
    lines = filter(None, _POLICIES[policy_name].split('\n'))
    return [[_parsed(choice) for choice in line.split(',')] for line in lines]


def _parsed(text: str) -> Choice:
    name, probability, magnitude = text.split()
    return Choice(name, float(probability), float(magnitude))


@dataclasses.dataclass(frozen=True)
class AutoAugmentImage:
    """Applies a random sub-policy of a learned policy (https://arxiv.org/abs/1906.11172).

    Attributes:
      policy_name: name of the policy: v0, v1, v2, v3 or test.

    Raises:
      ValueError: if there is no such policy.
    """

    policy_name: str = 'v0'

    def __post_init__(self):
        if self.policy_name not in _POLICIES:
            raise UserError(
                f'autoaugment_image.policy_name: expected one of {sorted(_POLICIES)}. '
                f'Received: {self.policy_name!r}.'
            )

    @functools.cached_property
    def _table(self) -> list[list[Choice]]:
        return sub_policies(self.policy_name)

    @functools.cached_property
    def _names(self) -> list[str]:
        return sorted({choice.name for choices in self._table for choice in choices})

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Changes `example`; all random choices depend only on `seed`, integer [2]."""
        return self.change(example, self.draw(seed))

    def draw(self, seed: tf.Tensor) -> Layers:
        """Draws a sub-policy, and which of its operations are applied."""
        of_row, of_numbers, of_layers = tf.unstack(tf.random.split(seed, 3))
        shape = len(self._table), max(map(len, self._table))
        operations = np.full(shape, len(self._names), np.int32)
        probabilities = np.zeros(shape, np.float32)
        values = np.zeros([*shape, NUM_VALUES], np.float32)
        for row, choices in enumerate(self._table):
            for layer, choice in enumerate(choices):
                is_in_boxes = OPERATIONS[choice.name].is_in_boxes
                operations[row, layer] = self._names.index(choice.name)
                probabilities[row, layer] = 1.0 if is_in_boxes else choice.probability
                values[row, layer] = values_of(choice)
        row = draw_below(0, shape[0], of_row)
        is_applied = tf.random.stateless_uniform(shape[1:], of_numbers) < tf.gather(
            probabilities, row
        )
        return Layers(
            tf.where(is_applied, tf.gather(operations, row), len(self._names)),
            tf.gather(values, row),
            tf.random.split(of_layers, shape[1]),
        )

    def change(self, example: Example, layers: Layers) -> Example:
        """Applies the operations that were drawn; see `draw`."""
        return apply(example, self._names, layers)


@dataclasses.dataclass(frozen=True)
class RandAugment:
    """Applies operations drawn evenly from a list (https://arxiv.org/abs/1909.13719).

    Attributes:
      num_layers: number of operations; one may be drawn twice.
      magnitude: strength of all operations, 0 to 10.
      operations: names of `OPERATIONS`; () are all but those that change boxes independently.

    Raises:
      ValueError: if a name is unknown.
    """

    num_layers: int = 2
    magnitude: float = 5.0
    operations: tuple[str, ...] = ()

    def __post_init__(self):
        unknown = [name for name in self.operations if name not in OPERATIONS]
        if unknown:
            names = f'names of {sorted(OPERATIONS)}'
            raise expected('rand_augment.operations', names, ', '.join(unknown))

    @property
    def _names(self) -> list[str]:
        if self.operations:
            return list(self.operations)
        return [name for name, operation in OPERATIONS.items() if not operation.is_in_boxes]

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Changes `example`; all random choices depend only on `seed`, integer [2]."""
        return self.change(example, self.draw(seed))

    def draw(self, seed: tf.Tensor) -> Layers:
        """Draws the operations."""
        of_operations, of_layers = tf.unstack(tf.random.split(seed))
        drawn = tf.random.stateless_uniform(
            [self.num_layers], of_operations, 0, len(self._names), tf.int32
        )
        values = np.stack([values_of(Choice(name, 1.0, self.magnitude)) for name in self._names])
        return Layers(drawn, tf.gather(values, drawn), tf.random.split(of_layers, self.num_layers))

    def change(self, example: Example, layers: Layers) -> Example:
        """Applies the operations that were drawn; see `draw`."""
        return apply(example, self._names, layers)

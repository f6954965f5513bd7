"""The naming scheme of a detector's variables, for weights that come from other models."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

Shapes = Mapping[str, Sequence[int]]

# A group of layers of a detector, and the path before their positions in a reference checkpoint.
ReferenceGroup = tuple[Sequence[str], str]

# The beginning of the names of the ranges of activations, which quantized detectors alone have.
RANGES = 'quantization/'

# The beginning of the layers of a feature pyramid that see the backbone.
PROJECTION = 'fpn/projection_'


class VariableNames:
    """The naming scheme of a family of detectors; this base class only knows the backbone.

    The name of a variable is 'component/layer/variable', the name of a layer 'component/layer'.

    Attributes:
      backbone_parts: the components that may contain layers of a backbone; the first one usually
        does.
      backbone_field: path of the config's message that describes the backbone.
      subtracts_means: whether ResNets see RGB images less the means of ImageNet unless the config
        changes it; False if each type of extractor has a normalisation of its own.
    """

    backbone_parts: tuple[str, ...] = ('backbone',)
    backbone_field = 'model'
    subtracts_means = True

    def checkpoint_scopes(self, variables: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        """Returns which variables each `fine_tune_checkpoint_type` restores.

        Args:
          variables: names of all variables of the detector.

        Returns:
          Type -> prefixes of the names of variables.
        """
        del variables
        backbone = tuple(f'{part}/' for part in self.backbone_parts)
        return {'classification': backbone, 'detection': backbone, 'full': ('',)}

    def refusal(self, checkpoint_type: str, variables: Collection[str]) -> str:
        """Returns why a `fine_tune_checkpoint_type` cannot be had of these variables; '' if it can.

        It is a sentence that names the types that are expected.
        """
        del checkpoint_type, variables
        return ''

    def num_classes(self, here: Shapes, there: Shapes, num_classes: int) -> int | None:
        """Returns the number of classes K of another detector; None if it is not known.

        Args:
          here, there: shapes of the variables of this and of the other detector, by our names.
          num_classes: number of classes of the detector.
        """
        del here, there, num_classes
        return None

    def depends_on_classes(
        self, name: str, theirs: tuple[Sequence[int], int], ours: tuple[Sequence[int], int]
    ) -> bool:
        """Whether the number of classes explains a difference between two shapes of a variable.

        Args:
          name: name of the variable.
          theirs, ours: its shape and the number of classes of either detector.
        """
        del name, theirs, ours
        return False

    def depends_on_data(self, name: str, theirs: Sequence[int], ours: Sequence[int]) -> bool:
        """Whether the number of keypoints, or of tracks, explains a difference between two shapes.

        Args:
          name: name of the variable.
          theirs, ours: its shape in either detector.
        """
        del name, theirs, ours
        return False

    def is_addition(self, part: str) -> bool:
        """Whether a component may be added to a trained detector.

        A fine-tuning then starts it with random weights if its file has nothing of it.
        """
        del part
        return False

    def is_dispensable(self, name: str) -> bool:
        """Whether nothing is computed with a variable, so that a file may lack it."""
        del name
        return False

    def advice(self, there: Shapes, here: Shapes) -> str:
        """Returns advice on how to make variables of other shapes fit; '' if none is known.

        Args:
          there, here: shapes of the variables of a checkpoint and of a model, under the same names.
        """
        del there, here
        return ''

    def reference_groups(self, layers: Sequence[str]) -> Iterator[ReferenceGroup]:
        """Yields the layers outside the backbone as the reference's checkpoints group them.

        Args:
          layers: names of all layers of the detector.
        """
        del layers
        return iter(())

    def reference_paths(self, layers: Sequence[str]) -> Mapping[str, str]:
        """Returns where the reference's checkpoints have layers by name, not by position.

        Args:
          layers: names of all layers of the detector.

        Returns:
          Layer -> path, with a slash at its end.
        """
        del layers
        return {}

    def slim_layers(
        self, layers: Collection[str], keys: Collection[str]
    ) -> Iterator[tuple[str, str]]:
        """Yields layers outside the backbone, and their names in a checkpoint of TensorFlow 1.

        Args:
          layers: names of all layers of the detector.
          keys: keys of the checkpoint.
        """
        del layers, keys
        return iter(())


PLAIN_NAMES = VariableNames()


def pyramid_groups(
    layers: Collection[str], extractor: str, prefix: str = ''
) -> Iterator[ReferenceGroup]:
    """Yields the layers of a feature pyramid as the reference's checkpoints group them.

    They count the levels from the coarsest one of the backbone, and those beyond it.

    Args:
      layers: names of all layers of the detector; the pyramid's component is `fpn`.
      extractor: path of the extractor in the checkpoints.
      prefix: beginning of the names of its attributes.
    """
    levels = set(pyramid_levels(layers))
    top = max(levels)
    pyramid = f'{extractor}{prefix}fpn_features_generator/'
    yield [f'{PROJECTION}{top}'], f'{pyramid}top_layers/'

    def with_norm(layer: str) -> list[str]:
        return [name for name in (layer, f'{layer}_bn') if name in layers]

    for i, level in enumerate(sorted(levels - {top}, reverse=True)):
        yield [f'{PROJECTION}{level}'], f'{pyramid}residual_blocks/{i}/'
        yield with_norm(f'fpn/smoothing_{level}'), f'{pyramid}conv_layers/{i}/'
    level = top + 1
    while coarse := with_norm(f'fpn/coarse_{level}'):
        yield coarse, f'{extractor}{prefix}coarse_feature_layers/{level - top - 1}/'
        level += 1


def pyramid_levels(layers: Collection[str]) -> list[int]:
    """Returns the levels of a pyramid that a map of the backbone is projected to, finest first."""
    found = (re.fullmatch(rf'{PROJECTION}(\d+)', layer) for layer in layers)
    return sorted(int(match[1]) for match in found if match)


def by_number(name: str) -> list[str | int]:
    """Returns a key that sorts `conv_2` before `conv_10`."""
    return [int(part) if part.isdigit() else part for part in re.split(r'(\d+)', name)]

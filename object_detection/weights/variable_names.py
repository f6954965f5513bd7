"""The naming scheme of a detector's variables, for weights that come from other models."""

from collections.abc import Collection, Iterator, Mapping, Sequence

Shapes = Mapping[str, Sequence[int]]

# A group of layers of a detector, and the path before their positions in a reference checkpoint.
ReferenceGroup = tuple[Sequence[str], str]


class VariableNames:
    """The naming scheme of a family of detectors; this base class only knows the backbone.

    The name of a variable is 'component/layer/variable', the name of a layer 'component/layer'.

    Attributes:
      backbone_parts: the components that may contain layers of a backbone; the first one usually
        does.
      backbone_field: path of the config's message that describes the backbone.
    """

    backbone_parts: tuple[str, ...] = ('backbone',)
    backbone_field = 'model'

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

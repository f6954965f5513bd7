"""What the names of the variables of detection transformers mean."""

import re
from collections.abc import Collection, Mapping, Sequence

from object_detection.core.variable_names import Shapes, VariableNames

# Heads whose last axis are the classes, and the contents of noisy queries.
_CLASS_LAYER = re.compile(r'(decoder/class_embed_\d+|queries/cells_\d+/score)/(kernel|bias)')
_CONTENTS = 'queries/class_contents'
_HEAD = 'decoder/class_embed_0/bias'


class DetrNames(VariableNames):
    """The names of a detection transformer: backbone, encoder, queries and decoder."""

    backbone_field = 'model.detr.feature_extractor'
    subtracts_means = False

    def checkpoint_scopes(self, variables: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        scopes = dict(super().checkpoint_scopes(variables))
        return scopes | {'detection': (*scopes['classification'], 'encoder/')}

    def num_classes(self, here: Shapes, there: Shapes, num_classes: int) -> int | None:
        if _HEAD not in here or _HEAD not in there:
            return None
        # Both have a column of background, or none has one.
        return there[_HEAD][-1] - (here[_HEAD][-1] - num_classes)

    def depends_on_classes(
        self, name: str, theirs: tuple[Sequence[int], int], ours: tuple[Sequence[int], int]
    ) -> bool:
        axis = 0 if name == _CONTENTS else -1
        if name != _CONTENTS and not _CLASS_LAYER.fullmatch(name):
            return False

        def without_classes(shape: Sequence[int], count: int) -> list[int]:
            sizes = list(shape)
            sizes[axis] -= count
            return sizes

        return without_classes(*theirs) == without_classes(*ours)


DETR_NAMES = DetrNames()

"""What the names of the variables of CenterNet mean."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from object_detection.core.variable_names import ReferenceGroup, Shapes, VariableNames

# Networks on the backbone, which is their first layer.
_NECKS = tuple(
    f'model/_feature_extractor/{name}/layer_with_weights-'
    for name in ('_feature_extractor_model', '_network')
)
_TRACK = 'model/track_reid_classification_net/layer_with_weights-'
_HEADS = 'model/_prediction_head_dict/'
_HEAD_LAYER = re.compile(r'heads/(?P<head>.+)_(?P<stack>\d+)_(?:conv_\d+|output)')
_MERGED_KINDS = (('lateral', ''), ('merge', ''), ('merge', '_bn'))
# Layers of the necks in the order of the reference's networks.
_MERGED = (
    'fpn/projection_top',
    *(f'fpn/{kind}_{i}{end}' for i in range(3) for kind, end in _MERGED_KINDS),
)
_UPSAMPLED = tuple(
    f'fpn/{kind}_{i}{end}' for i in range(3) for kind in ('conv', 'doubling') for end in ('', '_bn')
)
# Layers of hourglass networks, which the checkpoints name, with -- for slashes.
_NAMED = re.compile(
    r'backbone/(?P<path>(?:downsample_input|hourglass_network|output_conv|intermediate_\w+)--.+)'
)
# Layers of the mask network of DeepMAC: those that checkpoints name, and those that they count.
_MASK_NETWORK = 'model/_mask_net/'
_NAMED_MASKS = re.compile(
    r'mask_network/(?P<path>(?:conv_input|hourglass_network|output_conv)--.+|input_layer|fc[12])'
)
_COUNTED_MASKS = re.compile(r'mask_network/resnet_mask_.+')
_CLASSES = re.compile(r'heads/(?:object_center|segmentation--heatmap)_\d+_output/.+')
_CENTERS = re.compile(r'heads/object_center_\d+_output/.+')
# Outputs for each keypoint, and for each track of the training data.
_BY_DATA = re.compile(r'heads/.+--keypoint--[a-z]+_\d+_output/.+|track_classifier/dense_\d+/.+')


class CenterNetNames(VariableNames):
    """The names of a CenterNet: backbone, fpn and heads."""

    backbone_field = 'model.center_net.feature_extractor'
    subtracts_means = False

    def checkpoint_scopes(self, variables: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        del variables
        return {'classification': ('backbone/',), 'detection': ('backbone/', 'fpn/'), 'full': ('',)}

    def refusal(self, checkpoint_type: str, variables: Collection[str]) -> str:
        is_hourglass = any(_NAMED.match(name) for name in variables)
        if checkpoint_type != 'classification' or not is_hourglass:
            return ''
        return (
            "expected fine_tune_checkpoint_type: 'detection' or 'full', as there are no image "
            'classifiers that are hourglass networks.'
        )

    def num_classes(self, here: Shapes, there: Shapes, num_classes: int) -> int | None:
        del here, num_classes
        return next((there[name][-1] for name in there if _CENTERS.fullmatch(name)), None)

    def depends_on_classes(
        self, name: str, theirs: tuple[Sequence[int], int], ours: tuple[Sequence[int], int]
    ) -> bool:
        (shape, _), (other_shape, _) = theirs, ours
        return _CLASSES.fullmatch(name) is not None and shape[:-1] == other_shape[:-1]

    def depends_on_data(self, name: str, theirs: Sequence[int], ours: Sequence[int]) -> bool:
        return _BY_DATA.fullmatch(name) is not None and theirs[:-1] == ours[:-1]

    def reference_groups(self, layers: Sequence[str]) -> Iterator[ReferenceGroup]:
        for neck in (_MERGED, _UPSAMPLED):
            if found := [layer for layer in neck if layer in layers]:
                yield from ((found, path) for path in _NECKS)
        # dense_0, dense_0_bn, dense_1, ...
        if classifier := sorted(layer for layer in layers if layer.startswith('track_classifier/')):
            yield classifier, _TRACK
        if counted := [layer for layer in layers if _COUNTED_MASKS.fullmatch(layer)]:
            yield counted, f'{_MASK_NETWORK}_net/model/layer_with_weights-'
        grouped: dict[str, list[str]] = {}
        for layer in layers:
            if found := _HEAD_LAYER.fullmatch(layer):
                # A slash in the name of a head is '.S' in the names of its checkpoint.
                head = found['head'].replace('--', '.S')
                path = f'{_HEADS}{head}/{found["stack"]}/layer_with_weights-'
                grouped.setdefault(path, []).append(layer)
        yield from ((names, path) for path, names in grouped.items())

    def reference_paths(self, layers: Sequence[str]) -> Mapping[str, str]:
        found = {layer: match['path'] for layer in layers if (match := _NAMED.fullmatch(layer))}
        paths = {
            layer: f'model/_feature_extractor/_network/{path.replace("--", "/")}/'
            for layer, path in found.items()
        }
        for layer in layers:
            if match := _NAMED_MASKS.fullmatch(layer):
                paths[layer] = f'{_MASK_NETWORK}_net/{match["path"].replace("--", "/")}/'
            elif layer == 'mask_network/project_out':
                paths[layer] = f'{_MASK_NETWORK}project_out/'
        return paths


CENTER_NET_NAMES = CenterNetNames()

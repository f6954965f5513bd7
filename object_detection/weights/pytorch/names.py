"""Names of the weights of detectors in files of torchvision and detectron2, as layers of ours.

A row gives the layer there for a layer here. The layers of ResNets are found by
`third_party_names`. Outputs there may be in another order than here, or have a background class
that is left out here; then the row has a function of the arrays, whose first axis is the outputs.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from object_detection.models.backbones.resnet_v1 import Options, Padding
from object_detection.weights.pytorch import arrangements
from object_detection.weights.pytorch.mobilenet_names import (
    MOBILENET_V3,
    MOBILENET_V3_OF_PYRAMID,
    MOBILENET_V3_OF_SSD,
)
from object_detection.weights.pytorch.vgg_names import VGG16_OF_SSD
from object_detection.weights.third_party_names import (
    IMAGENET,
    Format,
    Pixels,
    Translation,
    structured,
)


class Row(NamedTuple):
    """A layer, or layers that are numbered alike.

    Attributes:
      ours: pattern of our layers; the group `n` is the number, `stage` that of a cascade's stage.
      theirs: templates of the layer there, of which the first one that a file has is taken: {n} is
        our number, {before} the one before, {i} our number counted from 0, {twice} 2 * i, {thrice}
        3 * i, {stage} the stage counted from 0.
      arrange: puts the outputs in our order.
      sees_crops: whether it sees the numbers of a crop in a row: channels come first there, and
        last here.
    """

    ours: str
    theirs: tuple[str, ...]
    arrange: arrangements.Arrange = arrangements.same
    sees_crops: bool = False


class System(NamedTuple):
    """Files of one system.

    Attributes:
      title: title of its files.
      example: one of the names by which it is recognised.
      begins: what at least one name begins with.
      backbone: the names of its backbone.
      rows: its other layers; none in files of a backbone alone.
      norm: layer there -> the norm after it.
      anchors: number of anchors of a cell -> their (width / height, size) in their order there.
    """

    title: str
    example: str
    begins: tuple[str, ...]
    backbone: Format
    rows: tuple[Row, ...] = ()
    norm: Callable[[str], str] = '{}.norm'.format
    anchors: Mapping[int, Sequence[tuple[float, int]]] = {}


# Ratios of width to height, in the order of both systems.
_RATIOS = (2.0, 1.0, 0.5)
_OF_PROPOSALS = [(ratio, 1) for ratio in _RATIOS]
_BN = r'(?:weight|bias|running_mean|running_var)'


def _as_detectron2(translate: Translation) -> Translation:
    """Lets a translation see detectron2's form of torchvision's names of norms and shortcuts."""
    forms = ((r'\bbn(\d)\.', r'conv\1.norm.'), (r'\bdownsample\.0\.', 'shortcut.'))
    forms += ((r'\bdownsample\.1\.', 'shortcut.norm.'),)

    def rename(name: str) -> str:
        for pattern, form in forms:
            name = re.sub(pattern, form, name)
        return name

    def translated(names):
        theirs = {rename(name): name for name in names}
        return {ours: theirs[name] for ours, name in translate(theirs).items()}

    return translated


_PYTORCH_VARIABLE = rf'(?P<variable>weight|norm\.{_BN})'
_TORCHVISION_RESNET = Format(
    'torchvision ResNet',
    'layer1.0.conv1.weight',
    _as_detectron2(
        structured(
            rf'(?:backbone\.body\.)?conv1\.{_PYTORCH_VARIABLE}',
            r'(?:backbone\.body\.)?layer(?P<stage>\d)\.(?P<block>\d+)\.'
            rf'(?:conv(?P<conv>[123])|shortcut)\.{_PYTORCH_VARIABLE}',
            first_stage=1,
            first_block=0,
        )
    ),
    IMAGENET,
    Options(stride_in_1x1=False, padding=Padding.SYMMETRIC_ALL),
)
_SCOPE = r'(?:backbone\.(?:bottom_up\.)?|roi_heads\.)?'
_DETECTRON2_RESNET = Format(
    'detectron2 ResNet',
    'stem.conv1.weight',
    structured(
        rf'{_SCOPE}stem\.conv1\.{_PYTORCH_VARIABLE}',
        rf'{_SCOPE}res(?P<stage>\d)\.(?P<block>\d+)\.(?:conv(?P<conv>[123])|shortcut)\.'
        rf'{_PYTORCH_VARIABLE}',
        first_stage=2,
        first_block=0,
    ),
    Pixels(mean=IMAGENET.mean, std=(1.0, 1.0, 1.0), is_bgr=True),
    Options(padding=Padding.SYMMETRIC_ALL),
    ' (networks that torchvision trained have their stride at the 3x3)',
)


def _next_in_row(layer: str) -> str:
    """'head.regression_head.conv.3' -> 'head.regression_head.conv.4'."""
    scope, _, number = layer.rpartition('.')
    return f'{scope}.{int(number) + 1}'


def _next_in_block(layer: str) -> str:
    """'mask_head.2.0' -> 'mask_head.2.1'."""
    return f'{layer.removesuffix(".0")}.1'


_CLASSIFIER, _REGRESSOR = 'head.classification_head', 'head.regression_head'
_TORCHVISION_ROWS = (
    # The second name is that of files of torchvision before 0.13, as its detectors are published.
    Row(
        r'fpn/projection_(?P<n>\d+)',
        ('backbone.fpn.inner_blocks.{i}.0', 'backbone.fpn.inner_blocks.{i}'),
    ),
    Row(
        r'fpn/smoothing_(?P<n>\d+)',
        ('backbone.fpn.layer_blocks.{i}.0', 'backbone.fpn.layer_blocks.{i}'),
    ),
    Row(r'fpn/coarse_(?P<n>\d+)', ('backbone.fpn.extra_blocks.p{n}',)),
    Row(r'rpn/conv', ('rpn.head.conv.0.0', 'rpn.head.conv')),
    Row(r'rpn/conv_(?P<n>\d+)', ('rpn.head.conv.{before}.0',)),
    Row(r'rpn/objectness_\d+', ('rpn.head.cls_logits',), arrangements.objectness),
    Row(r'rpn/box_codes_\d+', ('rpn.head.bbox_pred',), arrangements.codes_of_anchors),
    Row(r'box_classifier/conv_(?P<n>\d+)', ('roi_heads.box_head.{i}.0',)),
    Row(
        r'box_classifier/dense_1',
        ('roi_heads.box_head.fc6', 'roi_heads.box_head.5'),
        sees_crops=True,
    ),
    Row(r'box_classifier/dense_2', ('roi_heads.box_head.fc7',)),
    Row(r'box_head/classes', ('roi_heads.box_predictor.cls_score',)),
    Row(
        r'box_head/box_codes', ('roi_heads.box_predictor.bbox_pred',), arrangements.codes_of_objects
    ),
    Row(
        r'mask_head/conv_(?P<n>\d+)',
        ('roi_heads.mask_head.{i}.0', 'roi_heads.mask_head.mask_fcn{n}'),
    ),
    Row(r'mask_head/deconv', ('roi_heads.mask_predictor.conv5_mask',)),
    Row(
        r'mask_head/masks',
        ('roi_heads.mask_predictor.mask_fcn_logits',),
        arrangements.without_first,
    ),
    Row(r'keypoint_head/conv_(?P<n>\d+)', ('roi_heads.keypoint_head.{twice}',)),
    Row(r'keypoint_head/keypoints', ('roi_heads.keypoint_predictor.kps_score_lowres',)),
    Row(
        r'box_predictor/class_tower_(?P<n>\d+)',
        (f'{_CLASSIFIER}.conv.{{i}}.0', f'{_CLASSIFIER}.conv.{{twice}}'),
    ),
    Row(
        r'box_predictor/box_tower_(?P<n>\d+)',
        (f'{_REGRESSOR}.conv.{{i}}.0', f'{_REGRESSOR}.conv.{{twice}}'),
    ),
    Row(r'box_predictor/classes', (f'{_CLASSIFIER}.cls_logits',), arrangements.classes_of_anchors),
    Row(r'box_predictor/box_codes', (f'{_REGRESSOR}.bbox_reg',), arrangements.codes_of_anchors),
)
_SSD_ROWS = (
    # The second names are those of convolutions alone, without depthwise ones and norms.
    Row(r'fpn/map_(?P<n>\d+)_projection', ('backbone.extra.{i}.0.0', 'backbone.extra.{before}.0')),
    Row(r'fpn/map_(?P<n>\d+)_depthwise', ('backbone.extra.{i}.1.0',)),
    Row(r'fpn/map_(?P<n>\d+)_conv', ('backbone.extra.{i}.2.0', 'backbone.extra.{before}.2')),
    Row(r'box_predictor/classes_(?P<n>\d+)_depthwise', (f'{_CLASSIFIER}.module_list.{{n}}.0.0',)),
    Row(r'box_predictor/box_codes_(?P<n>\d+)_depthwise', (f'{_REGRESSOR}.module_list.{{n}}.0.0',)),
    Row(
        r'box_predictor/classes_(?P<n>\d+)',
        (f'{_CLASSIFIER}.module_list.{{n}}.1', f'{_CLASSIFIER}.module_list.{{n}}'),
        arrangements.classes_of_anchors,
    ),
    Row(
        r'box_predictor/box_codes_(?P<n>\d+)',
        (f'{_REGRESSOR}.module_list.{{n}}.1', f'{_REGRESSOR}.module_list.{{n}}'),
        arrangements.codes_of_anchors,
    ),
)
# Two sizes of squares come first, then each ratio and its inverse.
_OF_SSD = [(1.0, 1), (1.0, 2), (2.0, 1), (0.5, 1), (3.0, 1), (1 / 3, 1)]
TORCHVISION = System(
    'torchvision detector',
    'backbone.body.layer1.0.conv1.weight',
    ('backbone.body.',),
    _TORCHVISION_RESNET,
    _TORCHVISION_ROWS,
    _next_in_block,
    {3: _OF_PROPOSALS, 9: [(ratio, size) for ratio in _RATIOS for size in (1, 2, 3)]},
)
# The detectors that torchvision published first were trained with norms without an epsilon.
TORCHVISION_FIRST = TORCHVISION._replace(
    begins=('backbone.fpn.inner_blocks.0.weight',),
    backbone=_TORCHVISION_RESNET._replace(epsilon=0.0),
)
TORCHVISION_MOBILENET = TORCHVISION._replace(
    example='backbone.body.1.block.0.0.weight',
    begins=('backbone.body.0.0.',),
    backbone=MOBILENET_V3_OF_PYRAMID,
    anchors={15: [(ratio, size) for ratio in _RATIOS for size in range(5)]},
)

# Its towers are rows of convolution, norm and activation. Its norms always had an epsilon.
TORCHVISION_FCOS = TORCHVISION._replace(
    begins=(f'{_REGRESSOR}.bbox_ctrness.',),
    rows=(
        Row(r'box_predictor/class_tower_(?P<n>\d+)', (f'{_CLASSIFIER}.conv.{{thrice}}',)),
        Row(r'box_predictor/box_tower_(?P<n>\d+)', (f'{_REGRESSOR}.conv.{{thrice}}',)),
        Row(r'box_predictor/centerness', (f'{_REGRESSOR}.bbox_ctrness',), arrangements.by_anchor),
        *(row for row in _TORCHVISION_ROWS if '_tower_' not in row.ours),
    ),
    norm=_next_in_row,
)
TORCHVISION_SSDLITE = TORCHVISION._replace(
    example='backbone.features.0.1.block.0.0.weight',
    begins=('backbone.features.0.0.0.',),
    backbone=MOBILENET_V3_OF_SSD,
    rows=_SSD_ROWS,
    anchors={6: _OF_SSD},
)
TORCHVISION_SSD = TORCHVISION_SSDLITE._replace(
    example=VGG16_OF_SSD.example,
    begins=('backbone.scale_weight',),
    backbone=VGG16_OF_SSD,
    # Maps with fewer boxes have the first ones.
    anchors={4: _OF_SSD[:4], 6: _OF_SSD},
)

_STAGE = r'(?:_(?P<stage>\d+))?/'
DETECTRON2 = System(
    'detectron2 detector',
    'backbone.bottom_up.res2.0.conv1.weight',
    ('backbone.bottom_up.', 'backbone.res2.'),
    _DETECTRON2_RESNET,
    (
        Row(r'fpn/projection_(?P<n>\d+)', ('backbone.fpn_lateral{n}',)),
        Row(r'fpn/smoothing_(?P<n>\d+)', ('backbone.fpn_output{n}',)),
        Row(r'fpn/coarse_(?P<n>\d+)', ('backbone.top_block.p{n}',)),
        Row(
            r'rpn/conv',
            ('proposal_generator.rpn_head.conv.conv0', 'proposal_generator.rpn_head.conv'),
        ),
        Row(r'rpn/conv_(?P<n>\d+)', ('proposal_generator.rpn_head.conv.conv{before}',)),
        Row(
            r'rpn/objectness_\d+',
            ('proposal_generator.rpn_head.objectness_logits',),
            arrangements.objectness,
        ),
        Row(
            r'rpn/box_codes_\d+',
            ('proposal_generator.rpn_head.anchor_deltas',),
            arrangements.codes_of_anchors,
        ),
        # Stages of a cascade are numbered.
        Row(
            rf'box_classifier{_STAGE}conv_(?P<n>\d+)',
            ('roi_heads.box_head.{stage}.conv{n}', 'roi_heads.box_head.conv{n}'),
        ),
        Row(
            rf'box_classifier{_STAGE}dense_1',
            ('roi_heads.box_head.{stage}.fc1', 'roi_heads.box_head.fc1'),
            sees_crops=True,
        ),
        Row(
            rf'box_classifier{_STAGE}dense_(?P<n>[2-9])',
            ('roi_heads.box_head.{stage}.fc{n}', 'roi_heads.box_head.fc{n}'),
        ),
        Row(
            rf'box_head{_STAGE}classes',
            ('roi_heads.box_predictor.{stage}.cls_score', 'roi_heads.box_predictor.cls_score'),
            arrangements.last_to_first,
        ),
        Row(
            rf'box_head{_STAGE}box_codes',
            ('roi_heads.box_predictor.{stage}.bbox_pred', 'roi_heads.box_predictor.bbox_pred'),
            arrangements.codes,
        ),
        Row(r'mask_head/conv_(?P<n>\d+)', ('roi_heads.mask_head.mask_fcn{n}',)),
        Row(r'mask_head/deconv', ('roi_heads.mask_head.deconv',)),
        Row(r'mask_head/masks', ('roi_heads.mask_head.predictor',)),
        Row(r'keypoint_head/conv_(?P<n>\d+)', ('roi_heads.keypoint_head.conv_fcn{n}',)),
        Row(r'keypoint_head/keypoints', ('roi_heads.keypoint_head.score_lowres',)),
        Row(r'box_predictor/class_tower_(?P<n>\d+)', ('head.cls_subnet.{twice}',)),
        Row(r'box_predictor/box_tower_(?P<n>\d+)', ('head.bbox_subnet.{twice}',)),
        Row(r'box_predictor/classes', ('head.cls_score',), arrangements.objects_of_anchors),
        Row(r'box_predictor/box_codes', ('head.bbox_pred',), arrangements.codes_of_anchors),
    ),
    anchors={3: _OF_PROPOSALS, 9: [(ratio, size) for size in (1, 2, 3) for ratio in _RATIOS]},
)
SYSTEMS = (
    TORCHVISION_FCOS,
    TORCHVISION_FIRST,
    TORCHVISION,
    TORCHVISION_MOBILENET,
    TORCHVISION_SSDLITE,
    TORCHVISION_SSD,
    DETECTRON2,
    System(MOBILENET_V3.title, MOBILENET_V3.example, ('features.0.0.',), MOBILENET_V3),
    System('torchvision ResNet', _TORCHVISION_RESNET.example, ('layer1.',), _TORCHVISION_RESNET),
    System('detectron2 ResNet', _DETECTRON2_RESNET.example, ('stem.conv1.',), _DETECTRON2_RESNET),
)


def match(
    system: System, layers: Sequence[str], keys: Sequence[str]
) -> Iterator[tuple[str, str, Row]]:
    """Yields a layer of a detector, the layer there and its row, for the layers that a file has.

    Args:
      system: the system of the file.
      layers: names of the layers of the detector.
      keys: names of the arrays of the file.
    """
    weights = {key.removesuffix('.weight') for key in keys if key.endswith('.weight')}
    for row in system.rows:
        # Norms have the name of the layer before them; in heads of several levels, one a level.
        pattern = re.compile(rf'(?:{row.ours})(?P<norm>_bn(?:_\d+)?)?')
        found = [match for layer in layers if (match := pattern.fullmatch(layer))]
        numbers = [int(each['n']) for each in found if each.groupdict().get('n')]
        for each in found:
            groups = each.groupdict()
            n, stage = int(groups.get('n') or 0), int(groups.get('stage') or 1) - 1
            i = n - min(numbers, default=0)
            for template in row.theirs:
                numbers_there = {'before': n - 1, 'i': i, 'twice': 2 * i, 'thrice': 3 * i}
                layer = template.format(n=n, stage=stage, **numbers_there)
                layer = system.norm(layer) if each['norm'] else layer
                if layer in weights:
                    yield each.string, layer, row
                    break

"""The names of layers there that layers here are matched with."""

from object_detection.weights.pytorch import names

# Layers here, without the backbone, of torchvision's maskrcnn_resnet50_fpn_v2, and there.
_V2 = {
    **{f'fpn/{kind}_{level}{norm}': f'backbone.fpn.{theirs}_blocks.{level - 2}.{index}'
       for kind, theirs in (('projection', 'inner'), ('smoothing', 'layer'))
       for level in (2, 3, 4, 5)
       for index, norm in enumerate(('', '_bn'))},
    'rpn/conv': 'rpn.head.conv.0.0',
    'rpn/conv_2': 'rpn.head.conv.1.0',
    'rpn/objectness_0': 'rpn.head.cls_logits',
    'rpn/objectness_1': 'rpn.head.cls_logits',
    'rpn/box_codes_0': 'rpn.head.bbox_pred',
    **{f'{ours}/conv_{number}{norm}': f'roi_heads.{theirs}.{number - 1}.{index}'
       for ours, theirs in (('box_classifier', 'box_head'), ('mask_head', 'mask_head'))
       for number in (1, 2, 3, 4)
       for index, norm in enumerate(('', '_bn'))},
    'box_classifier/dense_1': 'roi_heads.box_head.5',
    'box_head/classes': 'roi_heads.box_predictor.cls_score',
    'box_head/box_codes': 'roi_heads.box_predictor.bbox_pred',
    'mask_head/deconv': 'roi_heads.mask_predictor.conv5_mask',
    'mask_head/masks': 'roi_heads.mask_predictor.mask_fcn_logits',
}  # fmt: skip
_CASCADE = {
    'fpn/projection_2': 'backbone.fpn_lateral2',
    'fpn/smoothing_5': 'backbone.fpn_output5',
    'rpn/conv': 'proposal_generator.rpn_head.conv',
    'rpn/objectness_4': 'proposal_generator.rpn_head.objectness_logits',
    'rpn/box_codes_4': 'proposal_generator.rpn_head.anchor_deltas',
    **{
        f'{ours}{suffix}/{layer}': f'roi_heads.{theirs}'.format(stage)
        for stage, suffix in enumerate(('', '_2', '_3'))
        for ours, layer, theirs in (
            ('box_classifier', 'dense_1', 'box_head.{}.fc1'),
            ('box_classifier', 'dense_2', 'box_head.{}.fc2'),
            ('box_head', 'classes', 'box_predictor.{}.cls_score'),
            ('box_head', 'box_codes', 'box_predictor.{}.bbox_pred'),
        )
    },
    'mask_head/conv_4': 'roi_heads.mask_head.mask_fcn4',
    'mask_head/deconv': 'roi_heads.mask_head.deconv',
    'mask_head/masks': 'roi_heads.mask_head.predictor',
}


def matched(system: names.System, expected: dict[str, str]) -> dict[str, str]:
    keys = [f'{theirs}.weight' for theirs in dict.fromkeys(expected.values())]
    found = names.match(system, list(expected), keys)
    return {ours: theirs for ours, theirs, _ in found}


def test_the_second_version_of_torchvision():
    assert matched(names.TORCHVISION, _V2) == _V2


def test_a_cascade_of_detectron2():
    assert matched(names.DETECTRON2, _CASCADE) == _CASCADE


def test_several_convolutions_before_the_proposals_of_detectron2():
    expected = {
        'rpn/conv': 'proposal_generator.rpn_head.conv.conv0',
        'rpn/conv_2': 'proposal_generator.rpn_head.conv.conv1',
    }
    assert matched(names.DETECTRON2, expected) == expected

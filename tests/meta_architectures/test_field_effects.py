"""Each field of a model has an effect, or a warning or an error names it."""

import collections
import contextlib
import itertools
import pathlib
from collections.abc import Callable, Iterator
from unittest import mock

import pytest
from google.protobuf import text_format

from object_detection.meta_architectures.center_net import build as center_net_build
from object_detection.meta_architectures.faster_rcnn import build as faster_rcnn_build
from object_detection.meta_architectures.ssd import build as ssd_build
from object_detection.models.feature_extractor import FeatureExtractor
from object_detection.protos.center_net_pb2 import CenterNet
from object_detection.protos.model_pb2 import DetectionModel
from tests import tiny_models
from tests.field_variants import variants
from tests.meta_architectures import field_effects, loss_families
from tests.meta_architectures.center_net import test_center_net, test_frames
from tests.meta_architectures.detr import configs as detr_configs
from tests.meta_architectures.faster_rcnn import test_cascade, test_keypoint_stage, test_rfcn
from tests.meta_architectures.ssd import configs

_TWO_STAGES = 'model { faster_rcnn { number_of_stages: 2 } }'
_MASKS = 'model { faster_rcnn { masks_from_crops: false } }'
_CONTEXT = """
model { faster_rcnn { context_config {
  max_num_context_features: 6 context_feature_length: 5 attention_bottleneck_dimension: 8
} } }
"""
# Layers without a norm have a bias anyway.
_NORMS = """
model { faster_rcnn {
  first_stage_box_predictor_conv_hyperparams { batch_norm {} }
  second_stage_box_predictor { %s { conv_hyperparams { batch_norm {} } } }
} }
"""
_OTHER_SSD = """
box_predictor { weight_shared_convolutional_box_predictor {
  depth: 8 num_layers_before_predictor: 1 box_code_size: 3
  conv_hyperparams { batch_norm {} }
} }
anchor_generator { multiscale_anchor_generator { max_level: 5 aspect_ratios: 1 } }
box_coder { square_box_coder {} }
loss { classification_loss { weighted_softmax {} } hard_example_miner {} }
"""
_FCOS = """
anchor_generator { multiscale_anchor_generator {
  max_level: 5 aspect_ratios: 1 anchor_scale: 1 scales_per_octave: 1
} }
matcher { point_matcher {} } box_coder { distance_box_coder {} } centerness {}
"""
_FPN = """
type: 'ssd_fpn' neck: 'fpn' fpn { min_level: 4 max_level: 6 additional_layer_depth: 72 }
"""
_BIFPN = """
type: 'ssd_bifpn' bifpn { min_level: 4 max_level: 6 num_iterations: 1 num_filters: 8 }
"""


def _faster_rcnn(*settings: str) -> DetectionModel:
    return tiny_models.tiny_pipeline(*settings).model


def _cascade() -> DetectionModel:
    model = _faster_rcnn(_TWO_STAGES, test_cascade.CASCADE)
    for name in ('initial_crop_size', 'maxpool_kernel_size', 'maxpool_stride'):
        model.faster_rcnn.ClearField(name)
    model.faster_rcnn.roi_align.output_size = 4
    return model


def _on_one_map(*settings: str) -> DetectionModel:
    """Without a pyramid, for `small_networks`."""
    model = tiny_models.tiny_pipeline(*settings, loss_families.ONE_MAP).model
    model.faster_rcnn.second_stage_batch_size = 8
    model.faster_rcnn.ClearField('clip_anchors_to_image')
    extractor = model.faster_rcnn.feature_extractor
    extractor.Clear()
    extractor.type = 'faster_rcnn_resnet50_keras'
    return model


def _ssd_with_pyramid(text: str) -> DetectionModel:
    model = configs.tiny(
        'anchor_generator { multiscale_anchor_generator '
        '{ min_level: 4 max_level: 6 aspect_ratios: 1 } }'
    )
    extractor = model.ssd.feature_extractor
    extractor.ClearField('num_layers')
    # Some widths are as small as min_depth lets them be, others not.
    extractor.depth_multiplier, extractor.min_depth = 0.125, 8
    extractor.backbone = 'resnet_v1_18'
    text_format.Merge(text, extractor)
    return model


_OF_DEEPMAC = (
    test_frames.DEEPMAC,
    test_frames.DEEPMAC
    + """
    predict_full_resolution_masks: true box_consistency_loss_weight: 1
    color_consistency_loss_weight: 1 color_consistency_warmup_steps: 2
    augmented_self_supervision_loss_weight: 1 augmented_self_supervision_warmup_steps: 2
    pointly_supervised_keypoint_loss_weight: 1
    """,
)


def _center_net(*fields: str, deepmac: str = '') -> tuple[Callable, tuple[str, ...]]:
    """Returns the row of some fields; a graph of all tasks would be large."""

    def make() -> DetectionModel:
        model = test_center_net.parse()
        text = f'{test_frames.TASKS} deepmac_mask_estimation {{ {deepmac} }}'
        all_tasks = text_format.Parse(text, CenterNet())
        for name in fields:
            model.center_net.MergeFrom(CenterNet(**{name: getattr(all_tasks, name)}))
        return model

    return make, fields


def _detr(kind: str, *fields: str) -> tuple[Callable, tuple[str, ...]]:
    """Returns the row of some fields of a detection transformer; without any, of all."""
    return lambda: DetectionModel(detr=detr_configs.tiny(kind)), fields


# Name -> a model, and the fields of its message to set; () for all.
MODELS: dict[str, tuple[Callable[[], DetectionModel], tuple[str, ...]]] = {
    'ssd': (configs.tiny, ()),
    'other_ssd': (
        lambda: configs.tiny(_OTHER_SSD),
        (
            'anchor_generator.multiscale_anchor_generator',
            'box_coder.square_box_coder',
            'box_predictor.weight_shared_convolutional_box_predictor',
            'loss.hard_example_miner',
        ),
    ),
    'fcos': (
        lambda: configs.tiny(_FCOS),
        ('matcher.point_matcher', 'box_coder.distance_box_coder', 'centerness'),
    ),
    'faster_rcnn': (lambda: _on_one_map(_TWO_STAGES, _NORMS % 'mask_rcnn_box_predictor'), ()),
    'mask_rcnn': (
        lambda: _on_one_map(_MASKS, _NORMS % 'mask_rcnn_box_predictor'),
        ('second_stage_box_predictor.mask_rcnn_box_predictor',),
    ),
    'keypoint_rcnn': (
        lambda: _on_one_map(
            *(test_keypoint_stage.HEAD, test_keypoint_stage.NO_MASKS),
            _NORMS % 'mask_rcnn_box_predictor',
        ),
        ('second_stage_box_predictor.mask_rcnn_box_predictor', 'keypoint_roi_align'),
    ),
    'context_rcnn': (lambda: _on_one_map(_TWO_STAGES, _CONTEXT), ('context_config',)),
    'rfcn': (
        lambda: _on_one_map(test_rfcn.RFCN, _NORMS % 'rfcn_box_predictor'),
        ('second_stage_box_predictor.rfcn_box_predictor',),
    ),
    'center_net': (
        test_center_net.parse,
        (
            *('num_classes', 'image_resizer', 'use_depthwise', 'object_center_params'),
            *('object_detection_task', 'post_processing', 'output_prediction_dict'),
            'ignore_padding',
        ),
    ),
    'keypoints': _center_net('keypoint_label_map_path', 'keypoint_estimation_task'),
    'masks': _center_net('mask_estimation_task', 'densepose_estimation_task'),
    'tracks': _center_net('track_estimation_task', 'temporal_offset_task'),
    'rt_detr': _detr('rt_detr'),
    'rt_detr_v2': _detr('rt_detr_v2', 'decoder'),
    'd_fine': _detr('d_fine', 'encoder', 'decoder', 'loss'),
    'rf_detr': _detr('rf_detr', 'encoder', 'queries', 'decoder', 'loss'),
    'detr': _detr('detr', 'encoder', 'queries', 'decoder', 'loss', 'batch_norm_epsilon'),
    **{
        f'deepmac_{index}': _center_net('deepmac_mask_estimation', deepmac=text)
        for index, text in enumerate(_OF_DEEPMAC)
    },
}
# The same of feature extractors, which are built as they are.
EXTRACTORS: dict[str, tuple[Callable[[], DetectionModel], tuple[str, ...]]] = {
    'of_ssd': (configs.tiny, ('feature_extractor',)),
    'of_fpn': (lambda: _ssd_with_pyramid(_FPN), ('feature_extractor',)),
    'of_bifpn': (lambda: _ssd_with_pyramid(_BIFPN), ('feature_extractor',)),
    'of_faster_rcnn': (lambda: _faster_rcnn(_TWO_STAGES), ('feature_extractor',)),
    'of_center_net': (test_center_net.parse, ('feature_extractor',)),
    'of_rt_detr': _detr('rt_detr', 'feature_extractor'),
    # What needs a pyramid.
    'cascade': (
        _cascade,
        (
            *('cascade_stages', 'roi_align'),
            'first_stage_anchor_generator.multiscale_anchor_generator',
            'second_stage_box_predictor.mask_rcnn_box_predictor.box_head',
        ),
    ),
}


# What asks for that which is done anyway.
DONE_ANYWAY = {
    # Boxes are suppressed outright without soft_nms_sigma, which is reported with it:
    # test_post_processing_builder.py.
    'batch_non_max_suppression.use_hard_nms',
    # Boxes at peaks are not converted to another frame. Their scores are sigmoids of heat maps;
    # SOFTMAX is refused.
    'center_net.post_processing.batch_non_max_suppression.change_coordinate_frame',
    'center_net.post_processing.score_converter',
    # The default of the loss of classes of the second stage.
    'second_stage_classification_loss.weighted_softmax',
    # XLA compiles all forms for several classes; for one, core/test_post_processing.py.
    'batch_non_max_suppression.use_static_shapes',
}


@contextlib.contextmanager
def small_networks() -> Iterator[None]:
    """Puts single convolutions in place of feature extractors."""

    def one_map(*_: object) -> FeatureExtractor:
        return loss_families.extractor(2, [4], 2)

    def three_maps(*_: object) -> FeatureExtractor:
        return loss_families.extractor(4, [8, 16, 32], 1)

    with (
        mock.patch.object(center_net_build, 'build_extractor', one_map),
        mock.patch.object(ssd_build, 'build_extractor', three_maps),
        mock.patch.object(faster_rcnn_build, 'build_extractor', test_rfcn.small_extractor),
    ):
        yield


def effects_of(name: str, folder: pathlib.Path, step: int = 1) -> dict[str, set[str]]:
    """Returns the fields of each effect."""
    make, fields = (MODELS | EXTRACTORS)[name]
    model = make()
    if model.center_net.keypoint_label_map_path:
        path = folder / 'labels.pbtxt'
        path.write_text(test_frames.LABELS)
        model.center_net.keypoint_label_map_path = str(path)
    family = model.WhichOneof('model')
    names = fields or [
        field.name
        for field in getattr(model, family).DESCRIPTOR.fields
        if field.name != 'feature_extractor'
    ]
    all_fields = variants(model, [f'{family}.{field}' for field in names])
    found: dict[str, set[str]] = collections.defaultdict(set)
    with small_networks() if name in MODELS else contextlib.nullcontext():
        base = field_effects.outcome(model)
        assert not base.errors
        assert field_effects.outcome(model) == base
        for field, effect in field_effects.effects(itertools.islice(all_fields, 0, None, step)):
            if effect or not field.endswith(tuple(DONE_ANYWAY)):
                found[effect].add(field)
    return found


def test_a_sample_of_fields(tmp_path):
    assert effects_of('ssd', tmp_path, step=60).keys() <= {
        'changed',
        'refused',
        'warned',
        'no base',
        'empty',
    }


@pytest.mark.slow
@pytest.mark.parametrize('name', MODELS | EXTRACTORS)
def test_all_fields(name, tmp_path):
    found = effects_of(name, tmp_path)
    assert found[''] == set()
    # What cannot be built is below a message that an error names.
    assert {
        field
        for field in found['no base']
        if not any(field.startswith((f'{place}.', f'{place}[')) for place in found['refused'])
    } == set()

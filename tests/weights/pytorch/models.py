"""The detectors of torchvision as configs, as far as their weights go, and their names there."""

from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.protos import pipeline_pb2

IMAGES = """
preprocess { scale: 0.00392156863 mean: [0.485, 0.456, 0.406] std: [0.229, 0.224, 0.225] }
"""
_HYPERPARAMS = """
conv_hyperparams { activation: NONE initializer { random_normal_initializer { stddev: 0.01 } } }
"""
FASTER_RCNN = f"""
faster_rcnn {{
  number_of_stages: 2
  num_classes: 90
  image_resizer {{ fixed_shape_resizer {{ height: 128 width: 128 }} }}
  feature_extractor {{
    type: 'faster_rcnn_resnet50_fpn_keras' stride_in_1x1: false padding_mode: SYMMETRIC_ALL
    {IMAGES} {_HYPERPARAMS}
    fpn {{ min_level: 2 max_level: 6 extra_level_type: MAX_POOL smoothing_type: AFTER_TOP_DOWN }}
  }}
  first_stage_anchor_generator {{
    multiscale_anchor_generator {{
      min_level: 2 max_level: 6 anchor_scale: 8.0 aspect_ratios: [1.0, 2.0, 0.5]
      scales_per_octave: 1 normalize_coordinates: false
    }}
  }}
  first_stage_objectness_type: SIGMOID_1
  first_stage_box_predictor_depth: 256
  first_stage_box_predictor_conv_hyperparams {{
    op: CONV initializer {{ random_normal_initializer {{ stddev: 0.01 }} }}
  }}
  roi_align {{ output_size: 7 }}
  second_stage_box_predictor {{
    mask_rcnn_box_predictor {{
      box_head {{ num_fcs: 2 fc_depth: 1024 }}
      fc_hyperparams {{ op: FC initializer {{ random_normal_initializer {{ stddev: 0.01 }} }} }}
    }}
  }}
  second_stage_post_processing {{ score_converter: SOFTMAX }}
}}
"""
_ON_FASTER_RCNN = """
faster_rcnn {{ {fields} second_stage_box_predictor {{ mask_rcnn_box_predictor {{
  conv_hyperparams {{
    op: CONV activation: RELU initializer {{ random_normal_initializer {{ stddev: 0.01 }} }}
  }}
  {head}
}} }} }}
"""
_MASK_RCNN = _ON_FASTER_RCNN.format(
    fields='number_of_stages: 3 mask_roi_align { output_size: 14 }',
    head='predict_instance_masks: true mask_height: 28 mask_width: 28 mask_head_deconv: true '
    'mask_prediction_num_conv_layers: 5 mask_prediction_conv_depth: 256',
)
_KEYPOINT_RCNN = _ON_FASTER_RCNN.format(
    fields='num_classes: 1',
    head='predict_keypoints: true keypoint_head { num_keypoints: 17 num_convs: 8 conv_depth: 512 }',
)
RETINANET = f"""
ssd {{
  num_classes: 90
  image_resizer {{ fixed_shape_resizer {{ height: 128 width: 128 }} }}
  feature_extractor {{
    type: 'ssd_resnet50_v1_fpn_keras' {_HYPERPARAMS}
    fpn {{ min_level: 3 max_level: 7 smoothing_type: AFTER_TOP_DOWN }}
  }}
  box_predictor {{ weight_shared_convolutional_box_predictor {{
    depth: 256 num_layers_before_predictor: 4 kernel_size: 3
    {_HYPERPARAMS.replace('NONE', 'RELU')}
  }} }}
  anchor_generator {{ multiscale_anchor_generator {{
    min_level: 3 max_level: 7 anchor_scale: 4.0 aspect_ratios: [1.0, 2.0, 0.5] scales_per_octave: 3
  }} }}
  box_coder {{ faster_rcnn_box_coder {{ y_scale: 1 x_scale: 1 height_scale: 1 width_scale: 1 }} }}
  matcher {{ argmax_matcher {{ matched_threshold: 0.5 unmatched_threshold: 0.4 }} }}
  similarity_calculator {{ iou_similarity {{}} }}
  loss {{
    classification_loss {{ weighted_sigmoid_focal {{}} }}
    localization_loss {{ weighted_smooth_l1 {{}} }}
  }}
  post_processing {{ score_converter: SIGMOID }}
}}
"""
# Name in the recorded models -> parts of the model's config.
MODELS = {
    'fasterrcnn': (FASTER_RCNN,),
    'maskrcnn': (FASTER_RCNN, _MASK_RCNN),
    'keypointrcnn': (FASTER_RCNN, _KEYPOINT_RCNN),
    'retinanet': (RETINANET,),
}
# A detector with few channels, together with a narrow ResNet-18.
_SMALL = {
    'faster_rcnn': """
faster_rcnn {
  num_classes: 3
  feature_extractor {
    type: 'faster_rcnn_resnet18_fpn_keras' fpn { additional_layer_depth: 8 }
  }
  first_stage_box_predictor_depth: 8
  roi_align { output_size: 2 }
  second_stage_box_predictor { mask_rcnn_box_predictor {
    box_head { fc_depth: 6 } mask_prediction_conv_depth: 4
  } }
}
""",
    'ssd': """
ssd {
  num_classes: 3
  feature_extractor { type: 'ssd_resnet18_v1_fpn_keras' fpn { additional_layer_depth: 8 } }
  box_predictor { weight_shared_convolutional_box_predictor { depth: 8 } }
}
""",
}


def pipeline_of(name, *overrides, is_small=True, text=('', '')):
    """The config of a name of MODELS; `overrides` are text protos of a model.

    `text` is replaced in the config: what, and by what.
    """
    pipeline = pipeline_pb2.TrainEvalPipelineConfig()
    for part in MODELS[name]:
        text_format.Merge(part.replace(*text), pipeline.model)
    if is_small:
        family = pipeline.model.WhichOneof('model')
        text_format.Merge(_SMALL[family], pipeline.model)
        if family == 'faster_rcnn':
            pipeline.model.faster_rcnn.feature_extractor.ClearField('stride_in_1x1')
        if name == 'keypointrcnn':
            head = pipeline.model.faster_rcnn.second_stage_box_predictor.mask_rcnn_box_predictor
            head.keypoint_head.conv_depth = 4
    for part in overrides:
        text_format.Merge(part, pipeline.model)
    return pipeline


def build(name, *overrides, **options):
    """The detector of a config; see `pipeline_of`."""
    model = pipeline_of(name, *overrides, **options).model
    detector = model_builder.build(model, is_training=False)
    detector.build_variables()
    return detector

"""Small messages of single-shot detectors for tests."""

import keras
from google.protobuf import text_format

from object_detection.models import image_channels
from object_detection.models.feature_extractor import FeatureExtractor
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.image_values import scale_to_unit
from object_detection.models.normalization import BatchNormParams, normalized
from object_detection.protos.model_pb2 import DetectionModel

# The initializer keeps the size of activations in inference too, where the norms of a new network
# normalize nothing: logits have a standard deviation of about 1.
TINY = """
  ssd {
    num_classes: 3
    image_resizer { fixed_shape_resizer { height: 64 width: 64 } }
    feature_extractor {
      type: 'ssd_mobilenet_v2_keras'
      depth_multiplier: 0.1
      min_depth: 8
      num_layers: 3
      conv_hyperparams {
        activation: RELU_6
        regularizer { l2_regularizer { weight: 0.00004 } }
        initializer { variance_scaling_initializer { factor: 6 } }
        batch_norm { decay: 0.97 epsilon: 0.001 }
      }
      override_base_feature_extractor_hyperparams: true
    }
    box_predictor {
      convolutional_box_predictor {
        use_dropout: false
        conv_hyperparams { initializer { random_normal_initializer { stddev: 0.05 } } }
      }
    }
    anchor_generator {
      ssd_anchor_generator { num_layers: 3 aspect_ratios: 1 aspect_ratios: 2 aspect_ratios: 0.5 }
    }
    box_coder { faster_rcnn_box_coder {} }
    matcher { argmax_matcher { force_match_for_each_row: true use_matmul_gather: true } }
    similarity_calculator { iou_similarity {} }
    encode_background_as_zeros: true
    loss {
      classification_loss { weighted_sigmoid_focal { alpha: 0.75 gamma: 2 } }
      localization_loss { weighted_smooth_l1 {} }
    }
    post_processing {
      batch_non_max_suppression { max_detections_per_class: 5 max_total_detections: 10 }
      score_converter: SIGMOID
    }
  }"""


def tiny(changes: str = '') -> DetectionModel:
    """Returns the tiny model with the fields of `changes`, a text of an Ssd message, merged in."""
    config = text_format.Parse(TINY, DetectionModel())
    text_format.Merge(changes, config.ssd)
    return config


def small_extractor(*_: object, **__: object) -> FeatureExtractor:
    """Builds a convolution and a norm for each of three maps in place of a whole network."""
    hyperparams = LayerHyperparams(
        initializer=keras.initializers.HeNormal(),
        batch_norm=BatchNormParams(scale=True),
        activation='relu6',
    )
    images, strides = keras.Input((None, None, image_channels.current())), [16, 32, 64]
    maps = []
    for stride in strides:
        conv = hyperparams.conv(64, 3, strides=stride, name=f'conv_{stride}')
        norm = hyperparams.norm(frozen=False, name=f'conv_{stride}_bn')
        activation = hyperparams.activation_layer(name=f'conv_{stride}_relu')
        maps.append(activation(normalized(conv, norm, images)))
    return FeatureExtractor(
        backbone=keras.Model(images, maps, name='backbone'),
        strides=strides,
        normalize=scale_to_unit,
    )

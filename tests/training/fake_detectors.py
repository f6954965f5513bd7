"""What takes the weights of files in tests: variables alone, or a feature extractor."""

import tensorflow as tf

from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.meta_architectures.faster_rcnn.feature_extractor import build_faster_rcnn
from object_detection.meta_architectures.faster_rcnn.variable_names import FASTER_RCNN_NAMES
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.image_values import subtract_means
from tests.extractor_options import two_stage_options


class VariablesDetector:
    """Variables by name -> shape, filled with one number, instead of a detector."""

    name = 'detector'
    variable_names = FASTER_RCNN_NAMES

    def __init__(self, shapes, *, num_classes, value=0.0):
        self.num_classes = num_classes
        self.variables = {name: tf.Variable(tf.fill(s, value)) for name, s in shapes.items()}

    def build_variables(self):
        """Does nothing: it has them."""

    def named_variables(self):
        return self.variables

    def parts(self):
        return {}

    def normalize(self, images):
        return subtract_means(images)

    def values(self):
        return {name: variable.numpy().flat[0] for name, variable in self.variables.items()}


class ExtractorDetector:
    """A feature extractor as the parts of a detector."""

    num_classes = 3
    name = 'detector'
    variable_names = FASTER_RCNN_NAMES
    quantization = None
    named_variables = DetectionModel.named_variables

    def __init__(self, type_name, **options):
        has_pyramid = '_fpn_' in type_name
        if has_pyramid:
            small = {'pyramid_depth': 8, 'box_head_depth': 8}
            options = {'hyperparams': LayerHyperparams(), **small, **options}
        self.extractor = build_faster_rcnn(
            type_name, two_stage_options(batch_norm_trainable=False, **options)
        )
        if has_pyramid:
            self.extractor.box_classifier_features(tf.zeros([1, 2, 2, 8]))
        self.parts, self.normalize = self.extractor.parts, self.extractor.normalize

    def build_variables(self):
        """Does nothing: it has them."""

    def value(self, layer_path):
        """The value of 'conv1_conv/kernel', in whichever part it is."""
        variables = self.named_variables()
        part = 'backbone' if f'backbone/{layer_path}' in variables else 'box_classifier'
        return variables[f'{part}/{layer_path}'].numpy()

"""A family of detectors as small as one can be: what another family has to bring along."""

import dataclasses
from collections.abc import Iterator

import keras
import tensorflow as tf

from object_detection.builders import image_resizer_builder
from object_detection.config import families
from object_detection.core.loss_sum import over_images
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.protos.model_pb2 import ExperimentalModel

LOSSES = ('Loss/box_loss', 'Loss/class_loss')


class ToyDetector(DetectionModel):
    """Finds one object an image, by its mean colour."""

    def __init__(self, *, num_classes, resizer, brightness=1.0):
        super().__init__(num_classes=num_classes, resizer=resizer, name='toy')
        self.brightness = brightness
        self.boxes = keras.layers.Dense(4, activation='sigmoid', name='boxes')
        self.classes = keras.layers.Dense(num_classes, name='classes')

    def normalize(self, images):
        return self.brightness * images / 255.0

    def forward(self, images, true_shapes, training, groundtruth, seeds):
        colours = tf.reduce_mean(images, axis=[1, 2])
        return {'boxes': self.boxes(colours), 'class_logits': self.classes(colours)}

    def postprocess(self, predictions, true_shapes):
        scores = tf.nn.softmax(predictions['class_logits'])  # [B, K]
        return {
            'detection_boxes': predictions['boxes'][:, tf.newaxis],  # [B, 1, 4]
            'detection_scores': tf.reduce_max(scores, axis=1, keepdims=True),
            'detection_classes': tf.cast(tf.argmax(scores, axis=1), tf.float32)[:, tf.newaxis],
            'num_detections': tf.ones([tf.shape(scores)[0]]),
        }

    def loss_sums(self, predictions, groundtruth, seeds):
        errors = tf.abs(predictions['boxes'] - groundtruth.boxes[:, 0])
        crossed = tf.nn.softmax_cross_entropy_with_logits(
            groundtruth.classes[:, 0], predictions['class_logits']
        )
        of_boxes = tf.reduce_mean(errors, axis=-1)
        return dict(zip(LOSSES, (over_images(of_boxes), over_images(crossed)), strict=True))

    def loss_names(self):
        return LOSSES

    def parts(self):
        return {'boxes': self.boxes, 'classes': self.classes}

    def build_variables(self):
        self.boxes.build([None, 3])
        self.classes.build([None, 3])


@dataclasses.dataclass(frozen=True)
class Options:
    brightness: float = 1.0

    def __post_init__(self):
        if self.brightness <= 0:
            raise ValueError(f'brightness: expected above 0. Received: {self.brightness:g}.')


def build(config: ExperimentalModel, is_training: bool) -> ToyDetector:
    del is_training
    return ToyDetector(
        num_classes=config.num_classes,
        resizer=image_resizer_builder.build(config.image_resizer),
        brightness=families.named_options(config, Options).brightness,
    )


def check(config: ExperimentalModel) -> Iterator[str]:
    if config.num_classes > 99:
        yield (
            'model.experimental_model.num_classes: expected at most 99. '
            f'Received: {config.num_classes}.'
        )


FAMILY = families.ModelFamily(
    title='Toy', build=build, loss_names=lambda config: LOSSES, rules=check, options=Options
)

"""A detector of a few weights, data and configs, for tests of the machinery around detectors."""

import keras
import numpy as np
import tensorflow as tf

from object_detection.core.fields import InputFields
from object_detection.core.loss_sum import over_images
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

NUM_CLASSES = 2
SIZE = 8


class FakeDetector(keras.layers.Layer):
    """Regresses the first box of an image from its mean colour, with the contract's methods."""

    def __init__(self, units: int = 4, name: str = 'fake'):
        super().__init__(name=name)
        self.num_classes = NUM_CLASSES
        self.weight_decay = None
        self.head = keras.layers.Dense(
            units, kernel_regularizer=keras.regularizers.L2(0.01), name='head'
        )
        self.frozen = keras.layers.Dense(1, name='frozen', trainable=False)

    needs_masks = False
    pads_normalized = False
    variable_names = DetectionModel.variable_names
    named_trainable_variables = DetectionModel.named_trainable_variables
    normalize_padded = DetectionModel.normalize_padded
    side_inputs = DetectionModel.side_inputs

    def build_variables(self):
        self.head.build([None, 3])
        self.frozen.build([None, 3])

    def named_variables(self):
        layers = {'box_head/dense': self.head, 'backbone/frozen': self.frozen}
        return {
            f'{name}/{variable.path.split("/")[-1]}': variable.value
            for name, layer in layers.items()
            for variable in layer.variables
        }

    def regularization_losses(self):
        return list(self.losses) if self.weight_decay is None else [self.weight_decay()]

    def normalize(self, images):
        return images / 255.0

    def predict(self, images, true_shapes, training=False, groundtruth=None, seeds=None):
        del true_shapes, groundtruth
        boxes = tf.cast(self.head(tf.reduce_mean(images, axis=[1, 2])), tf.float32)
        return {'boxes': boxes}

    def postprocess(self, predictions, true_shapes):
        boxes = predictions['boxes'][:, tf.newaxis]
        batch = tf.shape(boxes)[0]
        return {
            'detection_boxes': tf.clip_by_value(boxes, 0.0, 1.0),
            'detection_scores': tf.ones([batch, 1]),
            'detection_classes': tf.zeros([batch, 1]),
            'num_detections': tf.ones([batch]),
            'raw_detection_boxes': boxes,
        }

    def loss_sums(self, predictions, groundtruth, seeds=None):
        errors = tf.reduce_sum((predictions['boxes'] - groundtruth.boxes[:, 0]) ** 2, axis=-1)
        return {
            'Loss/BoxClassifierLoss/localization_loss': over_images(errors),
            'Loss/RPNLoss/objectness_loss': over_images(0.0 * errors + 0.5),
        }


def dataset(num_images: int, batch_size: int, *, repeat: bool = False) -> tf.data.Dataset:
    """Batches under the names of `InputFields`; the last one may be partial."""
    random = np.random.default_rng(0)
    images = random.uniform(0, 255, [num_images, SIZE, SIZE, 3]).astype(np.float32)
    boxes = np.sort(random.uniform(0, 1, [num_images, 2, 2, 2]), axis=2).reshape(num_images, 2, 4)
    examples = {
        InputFields.IMAGE: images,
        InputFields.TRUE_IMAGE_SHAPE: np.tile([[SIZE, SIZE - 2, 3]], [num_images, 1]).astype('i4'),
        InputFields.SOURCE_ID: np.array([str(i) for i in range(num_images)]),
        InputFields.HASH_FROM_SOURCE_ID: np.arange(num_images, dtype=np.int32),
        InputFields.GROUNDTRUTH_BOXES: boxes.astype(np.float32),
        InputFields.GROUNDTRUTH_CLASSES: np.tile(np.eye(2, dtype='f4')[None], [num_images, 1, 1]),
        InputFields.GROUNDTRUTH_WEIGHTS: np.ones([num_images, 2], np.float32),
        InputFields.NUM_GROUNDTRUTH_BOXES: np.full([num_images], 2, np.int32),
    }
    batches = tf.data.Dataset.from_tensor_slices(examples).batch(batch_size)
    return batches.repeat() if repeat else batches


def pipeline_config(**train_config) -> TrainEvalPipelineConfig:
    """A config that the training code reads; the model itself is not in it."""
    config = TrainEvalPipelineConfig()
    train = config.train_config
    train.batch_size = 2
    train.optimizer.use_moving_average = False
    config.eval_config.best_checkpoint.keep = False
    rate = train.optimizer.momentum_optimizer.learning_rate.constant_learning_rate
    rate.learning_rate = 0.01
    for name, value in train_config.items():
        setattr(train, name, value)
    return config


class FakeEvaluator:
    """Counts images and sums what it sees, so that batches can be told apart."""

    def __init__(self):
        self.source_ids = []
        self.keys = set()

    def add_batch(self, batch, detections):
        self.source_ids += [text.decode() for text in batch[InputFields.SOURCE_ID]]
        self.keys |= detections.keys()

    notes = ()

    def part(self):
        return self.source_ids

    def merge(self, part):
        self.source_ids += part

    def evaluate(self):
        return {'images': float(len(self.source_ids))}


def patch_builders(patch, *, detector=FakeDetector, num_images=6, repeat=True) -> None:
    """Makes training and evaluation build the fakes; `patch` is pytest's monkeypatch.setattr."""
    root = 'object_detection.'
    patch(f'{root}builders.model_builder.build', lambda config, is_training: detector())
    patch(f'{root}training.monitoring.model_summary.lines', lambda detector, **options: ['a fake'])
    patch(f'{root}validation.validate.validate', lambda pipeline, **options: None)
    patch(
        f'{root}builders.dataset_builder.build_train',
        lambda config, input_context, seed, start, left_out, step=0: dataset(
            num_images, config.train_config.batch_size, repeat=repeat
        ),
    )
    patch(
        f'{root}builders.dataset_builder.build_eval',
        lambda config, index, left_out: dataset(5, config.eval_config.batch_size),
    )
    patch(
        f'{root}builders.evaluator_builder.build',
        lambda config, categories, annotations: [FakeEvaluator()],
    )


def write_label_map(path) -> str:
    path.write_text('item { id: 1 name: "cat" } item { id: 2 name: "dog" }')
    return str(path)

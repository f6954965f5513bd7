"""Builds batches of noise to measure speed without data."""

import logging

import tensorflow as tf

from object_detection.builders.input_readers import batches as batches_builder
from object_detection.builders.input_readers import examples as examples_builder
from object_detection.data.pipeline import synthetic
from object_detection.protos import input_reader_pb2, model_pb2

_log = logging.getLogger(__name__)

# Default size of the images of a synthetic reader, the most frequent size of COCO.
_USUAL_SIZE = (480, 640)


def build(
    model: model_pb2.DetectionModel,
    reader: input_reader_pb2.InputReader,
    *,
    batch_size: int,
    seed: int,
    replicas: int = 1,
    for_evaluation: bool = False,
) -> tf.data.Dataset:
    """Builds one batch of each size for each replica and keeps them in memory."""
    transform = examples_builder.transform(model, reader, for_evaluation=for_evaluation)
    size = (transform.resizer.static_shape or _USUAL_SIZE)[:2]
    examples = synthetic.examples(
        # With one bucket, its size is the resizer's static shape.
        examples_builder.bucket_sizes(reader) or [size],
        batch_size * replicas,
        num_objects=reader.synthetic_input_reader.num_objects,
        num_classes=transform.num_classes,
        with_masks=reader.load_instance_masks,
        seed=seed,
        context_size=transform.context_size if reader.load_context_features else None,
    )
    _log.warning(
        'the %s data are synthetic: noise, made once and repeated. Speed can be measured; losses '
        'and metrics tell nothing',
        'evaluation' if for_evaluation else 'training',
    )
    examples = examples.enumerate().map(
        lambda index, example: transform(example, tf.stack([seed, index])),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    is_training = not for_evaluation
    batches = batches_builder.batch(
        examples, reader, batch_size, drop_remainder=is_training, replicas=replicas
    )
    return batches.cache()

"""The parts of the training input, each alone."""

import time
from collections.abc import Callable, Sequence

_RUNS = 2


def measure(config, pattern: str, num_records: int) -> dict[str, float]:
    """Times the parts of a config's training input; processor milliseconds an image.

    Args:
      config: TrainEvalPipelineConfig of a Faster R-CNN.
      pattern: of the TFRecords, with PNG masks.
      num_records: how many are read.
    """
    import tensorflow as tf

    from object_detection.builders import image_resizer_builder
    from object_detection.core.fields import InputFields
    from object_detection.data import instance_masks, objects
    from object_detection.data.augmentation.symmetry import RandomHorizontalFlip
    from object_detection.data.decoder import PNG_MASKS, ExampleDecoder

    files = sorted(tf.io.gfile.glob(pattern))
    records = list(tf.data.TFRecordDataset(files, buffer_size=1 << 20).take(num_records))
    model = config.model.faster_rcnn
    resizer = image_resizer_builder.build(model.image_resizer)
    decoder, flip = ExampleDecoder(mask_type=PNG_MASKS), RandomHorizontalFlip(probability=1.0)
    examples = [objects.clip_boxes(decoder(record)) for record in records]
    images = [(example[InputFields.IMAGE],) for example in examples]
    masks = [
        (example[InputFields.GROUNDTRUTH_ENCODED_MASKS], example[InputFields.GROUNDTRUTH_BOXES])
        for example in examples
    ]
    jpegs = [(tf.io.encode_jpeg(image, quality=93),) for (image,) in images]
    size = model.groundtruth_mask_crop_size

    def decode_masks(encoded: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
        del boxes
        lengths = tf.TensorSpec([], tf.int32)
        return tf.map_fn(
            lambda png: tf.size(tf.io.decode_png(png)), encoded, fn_output_signature=lengths
        )

    parts = {
        'JPEG (tf.io.decode_jpeg)': (lambda data: tf.io.decode_jpeg(data, channels=3), jpegs),
        'decoder: record with its JPEG': (decoder, [(record,) for record in records]),
        'decoder: record without its JPEG': (
            decoder.annotations,
            [(record,) for record in records],
        ),
        'flip of the image': (lambda image: flip({InputFields.IMAGE: image}, [0, 0]), images),
        'resizer: resize and pad': (lambda image: resizer(image)[0], images),
        'masks: PNG (tf.io.decode_png)': (decode_masks, masks),
        'masks: PNG and crops': (
            lambda encoded, boxes: instance_masks.crop_encoded(encoded, boxes, size),
            masks,
        ),
    }
    return {name: _milliseconds(*part) for name, part in parts.items()}


def _milliseconds(function: Callable[..., object], inputs: Sequence[tuple]) -> float:
    import tensorflow as tf

    compiled = tf.function(function, autograph=False, reduce_retracing=True)
    for arguments in inputs:
        compiled(*arguments)
    start = time.process_time()
    for _ in range(_RUNS):
        for arguments in inputs:
            compiled(*arguments)
    return (time.process_time() - start) / (_RUNS * len(inputs)) * 1000

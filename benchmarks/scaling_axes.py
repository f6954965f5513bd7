"""What `scaling.py` lets grow: each axis makes input of a size and the function that takes it."""

import dataclasses
import pathlib
from collections.abc import Callable

import numpy as np

from object_detection.benchmarking import work

_CLASSES = 80
_OBJECTS_PER_IMAGE = 100
# Size of the generated photos.
_HEIGHT, _WIDTH = 480, 640
_SMALL_MODEL = 'mask_rcnn_resnet18_fpn_shapes'
_CATEGORIES = [{'id': index + 1, 'name': f'class {index + 1}'} for index in range(_CLASSES)]


@dataclasses.dataclass(frozen=True)
class Axis:
    """One kind of size.

    Attributes:
      what: one line about it.
      prepare: (size, folder for files) -> what is timed.
      sizes, short_sizes, quick_sizes: ascending; the short ones take a few seconds together.
    """

    what: str
    prepare: Callable[[int, pathlib.Path], Callable[[], object]]
    sizes: tuple[int, ...]
    short_sizes: tuple[int, ...]
    quick_sizes: tuple[int, ...]


def records_by_objects(size: int, folder: pathlib.Path) -> Callable[[], object]:
    """Reads a training batch of photos with `size` objects with masks each."""
    import tensorflow as tf
    from google.protobuf import text_format

    from object_detection.builders import dataset_builder
    from object_detection.data import tf_examples
    from object_detection.protos import pipeline_pb2

    path = folder / f'objects-{size}.record'
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(tf_examples.serialize(_photo(size)))
    text = f"""
    model {{ faster_rcnn {{
      num_classes: {_CLASSES} number_of_stages: 3
      image_resizer {{ fixed_shape_resizer {{ height: {_HEIGHT} width: {_WIDTH} }} }}
      groundtruth_mask_crop_size: 112
    }} }}
    train_config {{ batch_size: 1 }}
    train_input_reader {{
      load_instance_masks: true mask_type: PNG_MASKS max_number_of_boxes: {size}
      tf_record_input_reader {{ input_path: '{path}' }}
    }}
    """
    config = text_format.Parse(text, pipeline_pb2.TrainEvalPipelineConfig())
    batches = iter(dataset_builder.build_train(config, seed=1))
    next(batches)

    def run():
        # More than the pipeline holds ready.
        for _ in range(8):
            next(batches)

    return run


def targets_by_objects(size: int, folder: pathlib.Path) -> Callable[[], object]:
    """Matches the anchors of an image of 832 x 1344 pixels to `size` objects."""
    import tensorflow as tf

    from object_detection.core.groundtruth import Groundtruth
    from object_detection.targets.assigners import Candidates, SimilarityAssigner
    from object_detection.targets.matchers import ArgMaxMatcher
    from object_detection.targets.similarities import IouSimilarity

    del folder
    matcher = ArgMaxMatcher(0.7, 0.3, force_match_for_each_row=True)
    assigner = SimilarityAssigner(IouSimilarity(), matcher)
    anchors = tf.constant(_boxes(np.random.default_rng(0), 279_300) * 1000)
    boxes = tf.constant(_boxes(np.random.default_rng(1), size)[np.newaxis] * 1000)

    @tf.function(autograph=False)
    def assign(boxes: tf.Tensor) -> tf.Tensor:
        ones = tf.ones([1, size])
        return assigner.assign(Candidates(anchors), Groundtruth(boxes, ones[..., tf.newaxis], ones))

    return lambda: assign(boxes).numpy()


def suppression_by(what: str) -> Callable[[int, pathlib.Path], Callable[[], object]]:
    """Chooses detections, with the size as one of the arguments of `_suppression`."""
    return lambda size, folder: _suppression(**{what: size})


def annotations_json(size: int, folder: pathlib.Path) -> Callable[[], object]:
    """Reads a COCO annotation file, as conversion does, and groups its objects by image."""
    from object_detection.data.file_access import LocalFiles
    from object_detection.data.formats.coco import CocoSource

    path = folder / f'{size}.json'
    _write_annotations(size, path)

    def run() -> int:
        entries = CocoSource(str(folder), str(path), masks=True).entries(LocalFiles())
        return sum(len(entry.annotations) for entry in entries)

    return run


def annotations_evaluated(size: int, folder: pathlib.Path) -> Callable[[], object]:
    """Computes COCO's metrics of boxes, as many detections as annotations."""
    from object_detection.metrics.coco.evaluator import CocoEvaluator

    del folder
    rng = np.random.default_rng(0)
    boxes = _boxes(rng, _OBJECTS_PER_IMAGE)[np.newaxis]
    classes = rng.integers(1, _CLASSES + 1, (1, _OBJECTS_PER_IMAGE))
    count = np.full(1, _OBJECTS_PER_IMAGE)
    batch = {
        'original_image_spatial_shape': np.array([[_HEIGHT, _WIDTH]]),
        'evaluation_boxes': boxes,
        'evaluation_classes': classes,
        'evaluation_is_crowd': np.zeros((1, _OBJECTS_PER_IMAGE), bool),
        'evaluation_area': np.zeros((1, _OBJECTS_PER_IMAGE), np.float32),
        'num_evaluation_boxes': count,
    }
    detections = {
        'detection_boxes': boxes + rng.normal(0, 0.01, boxes.shape).astype(np.float32),
        'detection_classes': (classes - 1).astype(np.float32),
        'detection_scores': np.sort(rng.uniform(0, 1, (1, _OBJECTS_PER_IMAGE)))[:, ::-1],
        'num_detections': count,
    }

    def run() -> dict:
        evaluator = CocoEvaluator(_CATEGORIES)
        for image in range(size // _OBJECTS_PER_IMAGE):
            evaluator.add_batch(batch | {'source_id': np.array([f'{image}'], object)}, detections)
        return evaluator.evaluate()

    return run


def records_counted(size: int, folder: pathlib.Path) -> Callable[[], object]:
    """Counts the records of a file."""
    import tensorflow as tf

    from object_detection.data.pipeline import record_files

    path = folder / f'{size}.record'
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(size):
            writer.write(b'a record')
    return lambda: record_files.count([str(path)])


def inference_by_pixels(size: int, folder: pathlib.Path) -> Callable[[], object]:
    """Detects in one image of `size` pixels."""
    del folder
    side = round(size**0.5 / 64) * 64
    return _inference(1, side)


def inference_by_batch(size: int, folder: pathlib.Path) -> Callable[[], object]:
    """Detects in a batch of images of 256 x 256 pixels."""
    del folder
    return _inference(size, 256)


def training_by_batch(size: int, folder: pathlib.Path) -> Callable[[], object]:
    """Trains a step on a batch of images of 256 x 256 pixels."""
    import measure
    import tensorflow as tf

    from object_detection.config.reader import read_pipeline
    from object_detection.training import setup

    del folder
    pipeline = read_pipeline(measure.find_config(_SMALL_MODEL))
    pipeline.train_config.batch_size = size
    detector = work.build_detector(pipeline, 'float32', is_training=True)
    crop_size = pipeline.model.faster_rcnn.groundtruth_mask_crop_size
    arrays = work.batch(size, (256, 256), detector.num_classes, crop_size)
    batch = {name: tf.constant(array) for name, array in arrays.items()}
    specs = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batch.items()}
    step = setup.build_step(pipeline.train_config, detector, specs, 0)
    step(batch)
    return lambda: {name: value.numpy() for name, value in step(batch).items()}


def _inference(batch_size: int, side: int) -> Callable[[], object]:
    import measure
    import tensorflow as tf

    from object_detection.config.reader import read_pipeline

    pipeline = read_pipeline(measure.find_config(_SMALL_MODEL))
    detector = work.build_detector(pipeline, 'float32', is_training=False)
    images = tf.constant(work.images(batch_size, (side, side)))
    shapes = tf.constant([[side, side, 3]] * batch_size)

    @tf.function(autograph=False)
    def detect(images: tf.Tensor) -> tf.Tensor:
        predictions = detector.predict(detector.normalize(images), shapes)
        return detector.postprocess(predictions, shapes)['detection_masks']

    detect(images)
    return lambda: detect(images).numpy()


def _suppression(
    *, anchors: int = 2_000, classes: int = _CLASSES, detections: int = 100
) -> Callable[[], object]:
    """Post-processing of one image: boxes of all sizes, scores as a trained network has them."""
    import tensorflow as tf

    from object_detection.core import post_processing

    rng = np.random.default_rng(0)
    boxes = tf.constant(_boxes(rng, anchors)[np.newaxis, :, np.newaxis])
    logits = rng.normal(-4, 1.5, (1, anchors, classes)).astype(np.float32)
    scores = tf.sigmoid(logits)
    params = post_processing.NmsParams(
        score_threshold=1e-8,
        max_detections_per_class=detections,
        max_total_detections=detections,
        change_coordinate_frame=False,
    )

    @tf.function(autograph=False)
    def choose(boxes: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
        found = post_processing.batch_multiclass_non_max_suppression(boxes, scores, params)
        return found.scores

    return lambda: choose(boxes, scores).numpy()


def _boxes(rng: np.random.Generator, count: int) -> np.ndarray:
    """float32 [count, 4], normalized."""
    corners = rng.uniform(0, 0.8, (count, 2))
    sizes = rng.uniform(0.02, 0.2, (count, 2))
    return np.concatenate([corners, corners + sizes], axis=1).astype(np.float32)


def _photo(count: int) -> dict[str, bytes]:
    """Features of a photo of noise with objects, each with the mask of its box."""
    import io

    from PIL import Image

    from object_detection.core import tf_example_keys as keys
    from object_detection.data import tf_examples

    def encoded(pixels: np.ndarray, kind: str) -> bytes:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, kind)
        return file.getvalue()

    rng = np.random.default_rng(0)
    boxes, masks = _boxes(rng, count), []
    for box in boxes:
        ymin, xmin, ymax, xmax = (box * [_HEIGHT, _WIDTH, _HEIGHT, _WIDTH]).astype(int)
        mask = np.zeros((_HEIGHT, _WIDTH), np.uint8)
        mask[ymin:ymax, xmin:xmax] = 1
        masks.append(encoded(mask, 'PNG'))
    pixels = rng.integers(0, 255, (_HEIGHT, _WIDTH, 3), np.uint8)
    return {
        keys.ENCODED: tf_examples.bytes_feature([encoded(pixels, 'JPEG')]),
        keys.FORMAT: tf_examples.bytes_feature([b'jpeg']),
        keys.HEIGHT: tf_examples.int64_feature([_HEIGHT]),
        keys.WIDTH: tf_examples.int64_feature([_WIDTH]),
        keys.SOURCE_ID: tf_examples.bytes_feature([b'1']),
        keys.CLASS_LABEL: tf_examples.int64_feature([1] * count),
        keys.MASK: tf_examples.bytes_feature(masks),
        **{
            key: tf_examples.float_feature(boxes[:, column])
            for column, key in enumerate(keys.BOX_SIDES)
        },
    }


def _write_annotations(count: int, path: pathlib.Path) -> None:
    """Writes an annotation file piece by piece, so that it takes no memory."""
    polygon = '[[' + ', '.join(f'{value}.25' for value in range(40)) + ']]'
    num_images = max(count // _OBJECTS_PER_IMAGE, 1)
    with open(path, 'w') as file:
        file.write('{"categories": [{"id": 1, "name": "thing"}], "images": [')
        file.write(
            ', '.join(
                f'{{"id": {index}, "file_name": "{index}.jpg", "height": 480, "width": 640}}'
                for index in range(num_images)
            )
        )
        file.write('], "annotations": [')
        for index in range(count):
            file.write(
                f'{", " if index else ""}{{"id": {index}, "image_id": {index % num_images}, '
                '"category_id": 1, "bbox": [10.5, 20.5, 30.25, 40.75], "area": 900.5, '
                f'"iscrowd": 0, "segmentation": {polygon}}}'
            )
        file.write(']}')


_SIDE_SQUARES = tuple(side**2 for side in (64, 128, 256, 512, 1024, 2048, 4096))

AXES = {
    'objects_read': Axis(
        'objects with masks in an image, read for training (8 images)',
        records_by_objects,
        (1, 10, 50, 100, 200, 500, 1000),
        (20, 60, 180),
        (1, 5),
    ),
    'objects_matched': Axis(
        'objects that 279,300 anchors are matched to',
        targets_by_objects,
        (1, 10, 50, 100, 200, 500, 1000),
        (5, 15, 45),
        (1, 5),
    ),
    'anchors': Axis(
        'boxes, each with scores of 80 classes, suppressed',
        suppression_by('anchors'),
        (1_000, 3_000, 10_000, 30_000, 100_000),
        (1_000, 3_000, 10_000),
        (100, 200),
    ),
    'classes': Axis(
        'classes of 2,000 boxes, suppressed',
        suppression_by('classes'),
        (1, 10, 80, 400, 1_203),
        (80, 240, 720),
        (1, 5),
    ),
    'detections': Axis(
        'detections of an image, chosen among 2,000 boxes of 80 classes',
        suppression_by('detections'),
        (10, 100, 300, 1_000),
        (30, 100, 300),
        (5, 10),
    ),
    'annotations_json': Axis(
        'annotations of a COCO file, parsed and grouped by image',
        annotations_json,
        (1_000, 10_000, 100_000, 300_000, 1_000_000),
        (1_000, 4_000, 16_000),
        (100, 1_000),
    ),
    'annotations_evaluated': Axis(
        'annotations, and as many detections, evaluated (boxes, 100 an image)',
        annotations_evaluated,
        (1_000, 10_000, 100_000, 300_000, 1_000_000),
        (2_000, 6_000, 18_000),
        (100, 1_000),
    ),
    'records_counted': Axis(
        'records of a file, counted',
        records_counted,
        (1_000, 10_000, 100_000, 1_000_000),
        (1_000, 10_000, 100_000),
        (100, 1_000),
    ),
    'pixels': Axis(
        f'pixels of an image, inference of {_SMALL_MODEL}',
        inference_by_pixels,
        _SIDE_SQUARES[1:],
        _SIDE_SQUARES[1:4],
        _SIDE_SQUARES[:2],
    ),
    'batch_inference': Axis(
        f'images of 256 x 256 in a batch, inference of {_SMALL_MODEL}',
        inference_by_batch,
        (1, 2, 4, 8, 16),
        (1, 2, 4),
        (1, 2),
    ),
    'batch_training': Axis(
        f'images of 256 x 256 in a batch, a training step of {_SMALL_MODEL}',
        training_by_batch,
        (1, 2, 4, 8),
        (1, 2, 4),
        (1, 2),
    ),
}

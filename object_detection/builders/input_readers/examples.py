"""Builds the decoder, the filter and the transform of records for a reader and a model."""

import os

from object_detection.builders import image_resizer_builder, training_rules
from object_detection.builders.input_readers import rules
from object_detection.config import families
from object_detection.core.fields import InputFields as F
from object_detection.data import label_map
from object_detection.data.decoder import NUMERICAL_MASKS, PNG_MASKS, ExampleDecoder
from object_detection.data.image_item import ImageHandler
from object_detection.data.label_map import LabelMap
from object_detection.data.pipeline.bad_records import BadRecords
from object_detection.data.pipeline.left_out import EmptyImageFilter, UsableObjects
from object_detection.data.pipeline.transform import ExampleTransform
from object_detection.errors import UserError
from object_detection.protos import input_reader_pb2, model_pb2
from object_detection.resizers.value_range import ValueRange

MASK_TYPES = {
    input_reader_pb2.DEFAULT: NUMERICAL_MASKS,
    input_reader_pb2.NUMERICAL_MASKS: NUMERICAL_MASKS,
    input_reader_pb2.PNG_MASKS: PNG_MASKS,
}

# Option of a reader -> the fields that its decoder is asked for.
_FIELDS = {
    'load_multiclass_scores': (F.MULTICLASS_SCORES,),
    'load_instance_masks': (F.GROUNDTRUTH_INSTANCE_MASK_WEIGHTS,),
    'load_track_id': (F.GROUNDTRUTH_TRACK_IDS,),
    'load_keypoint_depth_features': (
        F.GROUNDTRUTH_KEYPOINT_DEPTHS,
        F.GROUNDTRUTH_KEYPOINT_DEPTH_WEIGHTS,
    ),
    'load_dense_pose': (F.GROUNDTRUTH_DP_POINTS,),
    'load_context_features': (F.CONTEXT_FEATURES,),
    'load_context_image_ids': (F.CONTEXT_FEATURES_IMAGE_ID_LIST,),
    'load_image_labels': (
        F.GROUNDTRUTH_IMAGE_CLASSES,
        F.GROUNDTRUTH_VERIFIED_NEG_CLASSES,
        F.GROUNDTRUTH_NOT_EXHAUSTIVE_CLASSES,
    ),
}


def bucket_sizes(reader: input_reader_pb2.InputReader) -> tuple[tuple[int, int], ...]:
    """Returns (height, width) of each of a reader's `aspect_ratio_buckets`; () without them.

    With several, images are [b, None, None, 3] in the `element_spec`, and every batch has one of
    these sizes; in a step, all replicas of one input pipeline have the same.
    """
    return tuple((bucket.height, bucket.width) for bucket in reader.aspect_ratio_buckets)


def decoder(
    reader: input_reader_pb2.InputReader, value_range: ValueRange | None = None
) -> ExampleDecoder:
    """Builds the decoder of a reader's records, for the range of values that a model declares."""
    labels, keypoint_ids = _label_map(reader), None
    if reader.use_keypoint_label_map and labels is not None:
        keypoint_ids = _keypoint_ids(labels, reader)
    if reader.expand_labels_hierarchy and labels is not None:
        label_map.check_hierarchy(labels, reader.label_map_path)
    return ExampleDecoder(
        label_map=labels,
        mask_type=_mask_type(reader),
        num_keypoints=reader.num_keypoints,
        keypoint_ids=keypoint_ids,
        fields=[name for flag, names in _FIELDS.items() if getattr(reader, flag) for name in names],
        expand_hierarchy=reader.expand_labels_hierarchy,
        image=ImageHandler(
            reader.max_image_pixels,
            num_channels=reader.num_channels,
            num_additional_channels=reader.num_additional_channels,
            value_range=value_range,
        ),
    )


def left_out(
    reader: input_reader_pb2.InputReader, where: str, path: str | os.PathLike | None = None
) -> BadRecords:
    """Builds what counts the bad records of a reader; `path` is the file that lists them."""
    return BadRecords(
        where,
        max_share=round(reader.max_bad_records_share, 6),
        is_strict=reader.strict_data,
        path=path,
    )


def empty_image_filter(reader: input_reader_pb2.InputReader, where: str) -> EmptyImageFilter | None:
    """Builds the filter of images without a usable object; None if the reader keeps them."""
    if not reader.filter_empty_images:
        return None
    return EmptyImageFilter(usable_objects(reader), where)


def usable_objects(reader: input_reader_pb2.InputReader) -> UsableObjects:
    """Builds the decoder of the objects of a reader's records that training can use."""
    plain = ExampleDecoder(
        label_map=_label_map(reader), expand_hierarchy=reader.expand_labels_hierarchy
    )
    return UsableObjects(plain, skip_crowd=reader.skip_crowd)


def transform(
    model: model_pb2.DetectionModel,
    reader: input_reader_pb2.InputReader,
    *,
    class_weight: object = (),
    **options,
) -> ExampleTransform:
    """Builds the transform for the detector that `model` describes.

    Args:
      model: message with the number of classes, the resizer and the size of masks.
      reader: message with the number of boxes, the label map and the buckets.
      class_weight: `train_config.class_weight`.
      options: further options of `ExampleTransform`.

    Raises:
      ValueError: if no model is set, or a number is out of range.
    """
    config = families.options(model)
    if config is None:
        raise UserError('model is not set; the input pipeline needs its num_classes and resizer.')
    options |= families.needs(model).example_options
    return ExampleTransform(
        class_weights=training_rules.class_weights(
            class_weight, reader.label_map_path, config.num_classes
        ),
        resizer=image_resizer_builder.build(config.image_resizer, bucket_sizes(reader)),
        num_classes=config.num_classes,
        max_number_of_boxes=reader.max_number_of_boxes,
        keypoint_type_weights=tuple(reader.keypoint_type_weight),
        **options,
    )


def _label_map(reader: input_reader_pb2.InputReader) -> LabelMap | None:
    return label_map.load(reader.label_map_path) if reader.label_map_path else None


def _keypoint_ids(labels: LabelMap, reader: input_reader_pb2.InputReader) -> dict[str, int]:
    ids = label_map.keypoint_ids(labels, reader.label_map_path)
    if max(ids.values()) >= reader.num_keypoints:
        raise UserError(
            f'num_keypoints: expected more than the last position of the keypoints of '
            f'{reader.label_map_path}, {max(ids.values())}. Received: {reader.num_keypoints}.'
        )
    return ids


def _mask_type(reader: input_reader_pb2.InputReader) -> str | None:
    if not reader.load_instance_masks:
        return None
    # These examples have PNG masks; `mask_type` only applies to records.
    return PNG_MASKS if rules.reads_annotations(reader) else MASK_TYPES[reader.mask_type]

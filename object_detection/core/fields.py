"""Names of the entries of examples, batches, predictions and detections.

They are part of the interface and equal the names of the reference system, for users' scripts.
`docs/conventions.md` gives the shape, dtype and frame of each.
"""


class InputFields:
    """Entries of a decoded example and of the batches of a dataset."""

    IMAGE = 'image'
    TRUE_IMAGE_SHAPE = 'true_image_shape'
    ORIGINAL_IMAGE_SPATIAL_SHAPE = 'original_image_spatial_shape'
    SOURCE_ID = 'source_id'
    HASH_FROM_SOURCE_ID = 'hash_from_source_id'
    FILENAME = 'filename'
    KEY = 'key'
    GROUNDTRUTH_BOXES = 'groundtruth_boxes'
    GROUNDTRUTH_CLASSES = 'groundtruth_classes'
    MULTICLASS_SCORES = 'multiclass_scores'
    GROUNDTRUTH_WEIGHTS = 'groundtruth_weights'
    GROUNDTRUTH_IS_CROWD = 'groundtruth_is_crowd'
    GROUNDTRUTH_AREA = 'groundtruth_area'
    GROUNDTRUTH_DIFFICULT = 'groundtruth_difficult'
    GROUNDTRUTH_GROUP_OF = 'groundtruth_group_of'
    GROUNDTRUTH_KEYPOINTS = 'groundtruth_keypoints'
    GROUNDTRUTH_KEYPOINT_VISIBILITIES = 'groundtruth_keypoint_visibilities'
    GROUNDTRUTH_KEYPOINT_WEIGHTS = 'groundtruth_keypoint_weights'
    GROUNDTRUTH_KEYPOINT_DEPTHS = 'groundtruth_keypoint_depths'
    GROUNDTRUTH_KEYPOINT_DEPTH_WEIGHTS = 'groundtruth_keypoint_depth_weights'
    # Points of DensePose; the reference has points and surface positions in one tensor.
    GROUNDTRUTH_DP_NUM_POINTS = 'groundtruth_dp_num_points'
    GROUNDTRUTH_DP_PART_IDS = 'groundtruth_dp_part_ids'
    GROUNDTRUTH_DP_POINTS = 'groundtruth_dp_points'
    GROUNDTRUTH_DP_SURFACE = 'groundtruth_dp_surface'
    GROUNDTRUTH_TRACK_IDS = 'groundtruth_track_ids'
    # How far an object moved since the frame before, and whether it was there; not of records.
    GROUNDTRUTH_TEMPORAL_OFFSETS = 'groundtruth_temporal_offsets'
    GROUNDTRUTH_TRACK_MATCH_FLAGS = 'groundtruth_track_match_flags'
    GROUNDTRUTH_INSTANCE_MASK_WEIGHTS = 'groundtruth_instance_mask_weights'
    GROUNDTRUTH_INSTANCE_MASKS = 'groundtruth_instance_masks'
    GROUNDTRUTH_INSTANCE_MASK_CROPS = 'groundtruth_instance_mask_crops'
    GROUNDTRUTH_ENCODED_MASKS = 'groundtruth_encoded_masks'
    # Classes of the whole image: ids as decoded, one number for each class in batches.
    GROUNDTRUTH_IMAGE_CLASSES = 'groundtruth_image_classes'
    GROUNDTRUTH_IMAGE_CONFIDENCES = 'groundtruth_image_confidences'
    GROUNDTRUTH_VERIFIED_NEG_CLASSES = 'groundtruth_verified_neg_classes'
    GROUNDTRUTH_NOT_EXHAUSTIVE_CLASSES = 'groundtruth_not_exhaustive_classes'
    # Features of other images of the scene.
    CONTEXT_FEATURES = 'context_features'
    CONTEXT_FEATURES_IMAGE_ID_LIST = 'context_features_image_id_list'
    VALID_CONTEXT_SIZE = 'valid_context_size'
    IMAGE_ADDITIONAL_CHANNELS = 'image_additional_channels'
    NUM_GROUNDTRUTH_BOXES = 'num_groundtruth_boxes'
    # Number of objects that an image lost, for a warning.
    NUM_INVALID_OBJECTS = 'num_invalid_objects'
    NUM_EXCESS_OBJECTS = 'num_excess_objects'
    # The same objects by kind, as `objects.INVALID_KINDS` lists them.
    INVALID_OBJECTS = 'invalid_objects'
    # Which record an example is: its file, the offset of its content, and how many records were
    # read before it. Removed from batches.
    RECORD_FILE = 'record_file'
    RECORD_OFFSET = 'record_offset'
    RECORD_NUMBER = 'record_number'
    # Class texts of an image that are not in the label map, for a warning.
    UNKNOWN_CLASSES = 'unknown_classes'
    # State from which the input pipeline resumes after the batch, in training.
    STREAM_STATE = 'stream_state'
    # Ground truth as annotated, neither clipped nor resized, for evaluators only.
    EVALUATION_BOXES = 'evaluation_boxes'
    EVALUATION_CLASSES = 'evaluation_classes'
    EVALUATION_IS_CROWD = 'evaluation_is_crowd'
    EVALUATION_DIFFICULT = 'evaluation_difficult'
    EVALUATION_GROUP_OF = 'evaluation_group_of'
    EVALUATION_AREA = 'evaluation_area'
    EVALUATION_MASKS = 'evaluation_masks'
    EVALUATION_KEYPOINTS = 'evaluation_keypoints'
    EVALUATION_KEYPOINT_VISIBILITIES = 'evaluation_keypoint_visibilities'
    NUM_EVALUATION_BOXES = 'num_evaluation_boxes'


class DetectionFields:
    """Entries of what `postprocess` returns and an exported model outputs."""

    BOXES = 'detection_boxes'
    SCORES = 'detection_scores'
    CLASSES = 'detection_classes'
    MASKS = 'detection_masks'
    KEYPOINTS = 'detection_keypoints'
    KEYPOINT_SCORES = 'detection_keypoint_scores'
    KEYPOINT_DEPTHS = 'detection_keypoint_depths'
    EMBEDDINGS = 'detection_embeddings'
    TEMPORAL_OFFSETS = 'detection_temporal_offsets'
    SURFACE_COORDS = 'detection_surface_coords'
    MULTICLASS_SCORES = 'detection_multiclass_scores'
    ANCHOR_INDICES = 'detection_anchor_indices'
    NUM_DETECTIONS = 'num_detections'
    RAW_BOXES = 'raw_detection_boxes'
    RAW_SCORES = 'raw_detection_scores'
    # Present only if the config requests them.
    FEATURES = 'detection_features'
    CROPPED_FEATURES = 'cropped_rpn_box_features'

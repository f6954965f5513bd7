"""The keys of tf.Examples, which are the same as in the reference system's records.

N objects of an image have one value each in a list, in the same order, unless a comment says
otherwise. Coordinates are normalized to the image: 0 and 1 are its edges.
"""

# The image: one value each.
ENCODED = 'image/encoded'  # bytes of the image file
FORMAT = 'image/format'  # 'jpeg', 'png', ...
HEIGHT = 'image/height'  # int64, pixels
WIDTH = 'image/width'
FILENAME = 'image/filename'
SOURCE_ID = 'image/source_id'  # text that identifies an image
SHA256 = 'image/key/sha256'  # hexadecimal, of the image file
ADDITIONAL_CHANNELS = 'image/additional_channels/encoded'  # files of one channel, a list

# Classes of the whole image: lists of any length, not one value an object.
IMAGE_CLASS_TEXT = 'image/class/text'  # name or display name in the label map
IMAGE_CLASS_LABEL = 'image/class/label'  # int64, 1-based
IMAGE_CLASS_CONFIDENCE = 'image/class/confidence'  # float32; 0: the class is not in the image
NEGATIVE_CLASSES = 'image/neg_category_ids'  # int64: classes known to be absent
NOT_EXHAUSTIVE_CLASSES = 'image/not_exhaustive_category_ids'  # int64: some objects lack boxes

# Features of other images of the same scene: N * CONTEXT_FEATURE_LENGTH numbers.
CONTEXT_FEATURES = 'image/context_features'  # float32
CONTEXT_FEATURE_LENGTH = 'image/context_feature_length'  # int64, one value
CONTEXT_IMAGE_IDS = 'image/context_features_image_id_list'  # N source ids
# Which of the context features are those of the image itself, int64; in sequences, of each frame.
CONTEXT_INDICES = 'context_features_idx'
SEQUENCE_CONTEXT_INDICES = 'image/context_features_idx'

# Embeddings of objects of the image, of which context features are made.
CLASS_SCORE = 'image/object/class/score'  # float32, of a box that a model added
EMBEDDING = 'image/embedding'  # float32, count * length numbers
EMBEDDING_SCORE = 'image/embedding_score'  # float32, one of each
EMBEDDING_LENGTH = 'image/embedding_length'  # int64, one value
EMBEDDING_COUNT = 'image/embedding_count'  # int64, one value
UNIX_TIME = 'image/unix_time'  # float32, seconds, exact to two minutes
UNIX_SECONDS = 'image/unix_seconds'  # int64, UTC; not of the reference system
EMBEDDING_MODEL = (
    'image/embedding_model'  # text, its fingerprint; of memories, not of the reference
)

# The objects' boxes, float32.
YMIN = 'image/object/bbox/ymin'
XMIN = 'image/object/bbox/xmin'
YMAX = 'image/object/bbox/ymax'
XMAX = 'image/object/bbox/xmax'
BOX_SIDES = (YMIN, XMIN, YMAX, XMAX)

# What else is known of each object.
CLASS_TEXT = 'image/object/class/text'  # name or display name in the label map
CLASS_LABEL = 'image/object/class/label'  # int64, 1-based
CLASS_SCORES = 'image/object/class/multiclass_scores'  # float32 [N * C], object by object
AREA = 'image/object/area'  # float32, square pixels
IS_CROWD = 'image/object/is_crowd'  # int64, 0 or 1
DIFFICULT = 'image/object/difficult'  # int64, 0 or 1
GROUP_OF = 'image/object/group_of'  # int64, 0 or 1
WEIGHT = 'image/object/weight'  # float32
TRACK_ID = 'image/object/track/label'  # int64, the same for one object in several images
MASK_WEIGHT = 'image/object/mask/weight'  # float32
MASK = 'image/object/mask'  # PNG files of the image's size, or float32 [N * H * W]

# Keypoints, K of each object: lists of N * K values, object by object.
KEYPOINT_Y = 'image/object/keypoint/y'  # float32
KEYPOINT_X = 'image/object/keypoint/x'
KEYPOINT_VISIBILITY = 'image/object/keypoint/visibility'  # int64: not labelled, covered, visible
KEYPOINT_TEXT = 'image/object/keypoint/text'  # names
KEYPOINT_DEPTH = 'image/object/keypoint/z'  # float32
KEYPOINT_DEPTH_WEIGHT = 'image/object/keypoint/z/weights'  # float32
NUM_KEYPOINTS = 'image/object/keypoint/num'  # int64 [N], labelled ones

# DensePose points: `DENSEPOSE_NUM` int64 [N] says how many each object has in the other lists.
DENSEPOSE_NUM = 'image/object/densepose/num'
DENSEPOSE_PART = 'image/object/densepose/part_index'  # int64, 0-based
DENSEPOSE_Y = 'image/object/densepose/y'  # float32
DENSEPOSE_X = 'image/object/densepose/x'
DENSEPOSE_U = 'image/object/densepose/u'  # float32, position on the part
DENSEPOSE_V = 'image/object/densepose/v'

# Further values of each object, which some formats have.
TRUNCATED = 'image/object/truncated'  # int64, 0 or 1; KITTI: the hidden share, float32
OCCLUDED = 'image/object/occluded'  # int64, 0 or 1; KITTI: 0 to 3
VIEW = 'image/object/view'  # text, the pose in PASCAL VOC
DEPICTION = 'image/object/depiction'  # int64, 0 or 1: a drawing of an object
INSIDE = 'image/object/inside'  # int64, 0 or 1: a picture from within, such as of a car
MASK_WEIGHT = 'image/object/mask/weight'  # float32
ALPHA = 'image/object/alpha'  # float32, radians, and all of KITTI from here on
HEIGHT_3D = 'image/object/3d_bbox/height'  # float32, metres
WIDTH_3D = 'image/object/3d_bbox/width'
LENGTH_3D = 'image/object/3d_bbox/length'
X_3D = 'image/object/3d_bbox/x'
Y_3D = 'image/object/3d_bbox/y'
Z_3D = 'image/object/3d_bbox/z'
ROTATION_3D = 'image/object/3d_bbox/rot_y'
# The keys of `AnnotatedImage.object_details`.
OBJECT_DETAILS = frozenset(
    (
        *(DIFFICULT, GROUP_OF, WEIGHT, TRUNCATED, OCCLUDED, VIEW, DEPICTION, INSIDE),
        *(TRACK_ID, MASK_WEIGHT),
        *(ALPHA, HEIGHT_3D, WIDTH_3D, LENGTH_3D, X_3D, Y_3D, Z_3D, ROTATION_3D),
    )
)

# Where and when an image was taken, one value each, for context of other images.
LOCATION = 'image/location'  # text, such as the id of a camera or of a video
DATE_CAPTURED = 'image/date_captured'  # text, YYYY-MM-DD HH:MM:SS
SEQUENCE_ID = 'image/seq_id'  # text
SEQUENCE_NUM_FRAMES = 'image/seq_num_frames'  # int64
SEQUENCE_FRAME_NUMBER = 'image/seq_frame_num'  # int64, from 0 on
# The keys of `AnnotatedImage.image_details`.
IMAGE_DETAILS = frozenset(
    (
        *(IMAGE_CLASS_TEXT, IMAGE_CLASS_LABEL, IMAGE_CLASS_CONFIDENCE),
        *(NEGATIVE_CLASSES, NOT_EXHAUSTIVE_CLASSES),
        *(LOCATION, DATE_CAPTURED, SEQUENCE_ID, SEQUENCE_NUM_FRAMES, SEQUENCE_FRAME_NUMBER),
    )
)

# tf.SequenceExamples: lists with one entry for each frame, beside `ENCODED` and `SOURCE_ID`; format
# and context features stand once, in the context.
SEQUENCE_BOX_SIDES = tuple(f'region/bbox/{side}' for side in ('ymin', 'xmin', 'ymax', 'xmax'))
SEQUENCE_LABEL = 'region/label/string'  # name or display name in the label map
SEQUENCE_LABEL_INDEX = 'region/label/index'  # int64, 1-based
SEQUENCE_CONFIDENCE = 'region/label/confidence'  # float32, the weight of the object
IS_ANNOTATED = 'region/is_annotated'  # int64, 0 or 1
TIMESTAMP = 'image/timestamp'  # int64, seconds
# The context of a tf.SequenceExample, one value each.
DATASET_NAME = 'example/dataset_name'  # text
CLIP_START = 'clip/start/timestamp'  # int64, seconds
CLIP_END = 'clip/end/timestamp'  # int64, seconds
CLIP_FRAMES = 'clip/frames'  # int64, number of frames
MEDIA_ID = 'clip/media_id'  # text, such as the id of a video
CHANNELS = 'image/channels'  # int64

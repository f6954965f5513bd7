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
SOURCE_ID = 'image/source_id'  # text that tells images apart
SHA256 = 'image/key/sha256'  # hexadecimal, of the image file

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
MASK = 'image/object/mask'  # PNG files of the image's size, or float32 [N * H * W]

# Keypoints, K of each object: lists of N * K values, object by object.
KEYPOINT_Y = 'image/object/keypoint/y'  # float32
KEYPOINT_X = 'image/object/keypoint/x'
KEYPOINT_VISIBILITY = 'image/object/keypoint/visibility'  # int64: not labelled, covered, visible
KEYPOINT_TEXT = 'image/object/keypoint/text'  # names
NUM_KEYPOINTS = 'image/object/keypoint/num'  # int64 [N], labelled ones

# DensePose points: `DENSEPOSE_NUM` int64 [N] says how many each object has in the other lists.
DENSEPOSE_NUM = 'image/object/densepose/num'
DENSEPOSE_PART = 'image/object/densepose/part_index'  # int64, 0-based
DENSEPOSE_Y = 'image/object/densepose/y'  # float32
DENSEPOSE_X = 'image/object/densepose/x'
DENSEPOSE_U = 'image/object/densepose/u'  # float32, position on the part
DENSEPOSE_V = 'image/object/densepose/v'

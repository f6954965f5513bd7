"""The input types of an exported model; this module does not load TensorFlow."""

from object_detection.errors import UserError, expected

IMAGE_TENSOR = 'image_tensor'
FLOAT_IMAGE_TENSOR = 'float_image_tensor'
ENCODED_IMAGE_STRING_TENSOR = 'encoded_image_string_tensor'
TF_EXAMPLE = 'tf_example'
# The input type of images and boxes, for which classes and masks are predicted.
IMAGE_AND_BOXES_TENSOR = 'image_and_boxes_tensor'

# The first one is the default of commands.
INPUT_TYPES = (
    IMAGE_TENSOR,
    FLOAT_IMAGE_TENSOR,
    ENCODED_IMAGE_STRING_TENSOR,
    TF_EXAMPLE,
    IMAGE_AND_BOXES_TENSOR,
)


def check(input_type: str, value_range: tuple[float, float] | None = None) -> None:
    """Raises UserError unless it is one of `INPUT_TYPES` that can hold the values of a range."""
    if input_type not in INPUT_TYPES:
        raise expected('Export: input_type', f'one of {", ".join(INPUT_TYPES)}', repr(input_type))
    if input_type not in (IMAGE_TENSOR, IMAGE_AND_BOXES_TENSOR) or value_range is None:
        return
    low, high = value_range
    if low < 0 or high > 255:
        raise UserError(
            f'Export: input_type {input_type} takes bytes, but value_range of the image_resizer is '
            f'{low:g} to {high:g}. Expected {FLOAT_IMAGE_TENSOR}, {ENCODED_IMAGE_STRING_TENSOR} or '
            f'{TF_EXAMPLE}.'
        )

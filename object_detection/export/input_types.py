"""What an exported model may take; apart, because commands list it without loading TensorFlow."""

from object_detection.errors import UserError

IMAGE_TENSOR = 'image_tensor'
FLOAT_IMAGE_TENSOR = 'float_image_tensor'
ENCODED_IMAGE_STRING_TENSOR = 'encoded_image_string_tensor'
TF_EXAMPLE = 'tf_example'
# Images with boxes, whose classes and masks are predicted.
IMAGE_AND_BOXES_TENSOR = 'image_and_boxes_tensor'

# The first is what commands take if none is named.
INPUT_TYPES = (
    IMAGE_TENSOR,
    FLOAT_IMAGE_TENSOR,
    ENCODED_IMAGE_STRING_TENSOR,
    TF_EXAMPLE,
    IMAGE_AND_BOXES_TENSOR,
)


def check(input_type: str) -> None:
    """Raises ValueError unless `input_type` is one of `INPUT_TYPES`."""
    if input_type not in INPUT_TYPES:
        raise UserError(
            f'Export: input_type must be one of {", ".join(INPUT_TYPES)}. Received: {input_type!r}.'
        )
